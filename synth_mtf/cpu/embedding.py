"""The host's embedding, read by index instead of by a product."""

import gin
import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer

from synth_mtf.core import kernels
from synth_mtf.core.dimensions import is_tpu, parts
from synth_mtf.cpu import padding


@gin.configurable(module='synth_mtf')
class EmbeddingByIndex(transformer.VocabEmbedding):
  """The host's embedding, which copies rows where the host multiplies.

      Y = one_hot(ids) E = E[ids], 0 where an id is not in the vocabulary
      dE[i] = sum of the dY of those tokens whose id is i

  The product takes 2 [tokens] [vocab] [d_model] operations each way, an eighth
  of a train step of T5 (Base), and in a step of decoding it reads all of E. It
  remains where a copy will not do: on a TPU, where the mesh splits the
  vocabulary, and for an ensemble.

  For `get_vocab_embedding_cls.cls`. Variables are the host's.
  """

  def ids_to_embedding(
    self, ids: mtf.Tensor, context: transformer.Context
  ) -> mtf.Tensor:
    """The embeddings, [..., d_model], of ids, int32 [...]."""
    weights, vocab = self._embedding_weights, self._vocab_dim
    if (
      is_tpu(weights.mesh)
      or parts(vocab, context.model) > 1
      or weights.shape.dims != [vocab, self._output_dim]
    ):
      return super().ids_to_embedding(ids, context)
    known = mtf.logical_and(
      mtf.greater_equal(ids, 0), mtf.less(ids, vocab.size)
    )
    rows = kernels.gather(weights, ids * mtf.cast(known, tf.int32), vocab.name)
    y = rows * mtf.cast(known, rows.dtype)
    if self._scale_variable_like_classifier_weights:
      y *= self._output_dim.size**0.5
    return y

  def hidden_to_logits(
    self, hidden: mtf.Tensor, context: transformer.Context
  ) -> mtf.Tensor:
    """The softmax's logits, [..., vocab], of [..., d_model]; 0 at padding."""
    masks = padding.mask(context, context.sequence_id, context.length_dim)
    if not masks:
      return super().hidden_to_logits(hidden, context)
    if not self._scale_variable_like_classifier_weights:
      hidden *= self._output_dim.size**-0.5
    shape = mtf.Shape([*hidden.shape.dims[:-1], self._vocab_dim])
    return padding.einsum(masks, [hidden, self._embedding_weights], shape)
