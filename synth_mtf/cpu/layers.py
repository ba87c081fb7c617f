"""T5's embedding and feed-forward layer for gin/common/fast_cpu.gin.

They give the host's results from the host's variables.
"""

import functools
from collections.abc import Callable

import gin
import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer, transformer_layers

from synth_mtf.core.dimensions import is_tpu, parts
from synth_mtf.core.indexing import gather
from synth_mtf.cpu import padding


@gin.configurable(module='synth_mtf')
class EmbeddingByIndex(transformer.VocabEmbedding):
  """The host's embedding, which copies rows instead of multiplying.

      Y = one_hot(ids) E = E[ids], 0 where an id is not in the vocabulary
      dE[i] = sum of the dY of those tokens whose id is i

  The host's product takes 2 tokens x vocab x d_model operations each way, an
  eighth of a train step of T5 (Base), and reads all of E in each decoding step.
  It is still used on TPUs, for ensembles, and if the mesh splits the
  vocabulary.

  Bind it to `get_vocab_embedding_cls.cls`. Variables are the host's.
  """

  def ids_to_embedding(
    self, ids: mtf.Tensor, context: transformer.Context
  ) -> mtf.Tensor:
    """Returns the embeddings, [..., d_model], of int32 ids [...]."""
    weights = self._embedding_weights
    vocab = self._vocab_dim
    is_split = parts(vocab, context.model) > 1
    is_plain = weights.shape.dims == [vocab, self._output_dim]
    if is_tpu(weights.mesh) or is_split or not is_plain:
      return super().ids_to_embedding(ids, context)
    is_known = mtf.logical_and(
      mtf.greater_equal(ids, 0), mtf.less(ids, vocab.size)
    )
    rows = gather(weights, ids * mtf.cast(is_known, tf.int32), vocab.name)
    y = rows * mtf.cast(is_known, rows.dtype)
    if self._scale_variable_like_classifier_weights:
      y *= self._output_dim.size**0.5
    return y

  def hidden_to_logits(
    self, hidden: mtf.Tensor, context: transformer.Context
  ) -> mtf.Tensor:
    """Maps [..., d_model] to softmax logits, [..., vocab]; 0 at padding."""
    masks = padding.mask(context, context.sequence_id, context.length_dim)
    if not self._scale_variable_like_classifier_weights:
      hidden *= self._output_dim.size**-0.5
    shape = mtf.Shape([*hidden.shape.dims[:-1], self._vocab_dim])
    return padding.einsum(masks, [hidden, self._embedding_weights], shape)


@gin.configurable('FeedForward', module='synth_mtf')
class DenseReluDense(transformer_layers.DenseReluDense):
  """The host's DenseReluDense, with products that skip padding.

      Y = f(X W_i) W_o

  Bind it to `synth_mtf.feed_forward.layer`. It shares the host's class name
  because the host names variables after the class. Arguments are the host's.
  With `use_bias`, padding is not 0 between the products, so none is skipped.
  """

  def call(
    self,
    context: transformer.Context,
    x: mtf.Tensor,
    losses: list[mtf.Tensor] | None = None,
  ) -> mtf.Tensor:
    """Calls the layer on x, [batch..., length, d_model], 0 at padding."""
    masks = padding.mask(context, context.sequence_id, context.length_dim)
    if not masks or self.use_bias or mtf.layers.unit_scaling_convention():
      return super().call(context, x, losses)

    def dense(x: mtf.Tensor, new_dim: mtf.Dimension, name: str) -> mtf.Tensor:
      weights = mtf.layers.get_dense_kernel_weights(
        x,
        [new_dim],
        x.shape.dims[-1:],
        context.model.ensemble_dims,
        kernel_initializer=None,
        name=name,
        variable_dtype=context.variable_dtype,
      )
      shape = mtf.Shape([*x.shape.dims[:-1], new_dim])
      return padding.einsum(masks, [x, weights], shape)

    d_ff = mtf.Dimension('d_ff', self.hidden_size)
    if isinstance(self.activation, list):
      factors = []
      for i, activation in enumerate(self.activation):
        name = f'wi_{i}' if len(self.activation) > 1 else 'wi'
        factors.append(_activated(dense(x, d_ff, name), activation))
      h = functools.reduce(mtf.multiply, factors)
    else:
      h = _activated(dense(x, d_ff, 'wi'), self.activation)
    if context.train and self.dropout_rate:
      h = mtf.dropout(
        h,
        context.train,
        keep_prob=1.0 - self.dropout_rate,
        noise_shape=h.shape - context.length_dim,
      )
    return dense(h, x.shape.dims[-1], 'wo')


def _activated(
  x: mtf.Tensor, activation: str | Callable[[mtf.Tensor], mtf.Tensor] | None
) -> mtf.Tensor:
  """Applies an activation, a function or its name in Mesh-TensorFlow."""
  if activation is None or activation == 'linear':
    return x
  if isinstance(activation, str):
    return getattr(mtf, activation)(x)
  return activation(x)
