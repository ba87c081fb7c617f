"""The host's feed-forward layer, which leaves padding out."""

import functools
from typing import Optional

import gin
import mesh_tensorflow as mtf
from mesh_tensorflow.transformer import transformer, transformer_layers

from synth_mtf.cpu import padding


@gin.configurable('FeedForward', module='synth_mtf')
class DenseReluDense(transformer_layers.DenseReluDense):
  """The host's DenseReluDense, whose products leave padding out.

      Y = f(X W_i) W_o

  For `synth_mtf.feed_forward.layer`. The host names variables after the class,
  hence this one's name. Arguments are the host's; with `use_bias`, rows of
  padding are not 0 between the products, and all are multiplied.
  """

  def call(
    self,
    context: transformer.Context,
    x: mtf.Tensor,
    losses: Optional[list[mtf.Tensor]] = None,
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
    functions = self.activation
    if not isinstance(functions, list):
      functions = [functions]
    factors = []
    for i, function in enumerate(functions):
      factor = dense(x, d_ff, f'wi_{i}' if len(functions) > 1 else 'wi')
      if isinstance(function, str) and function != 'linear':
        function = getattr(mtf, function)
      factors.append(function(factor) if callable(function) else factor)
    h = functools.reduce(mtf.multiply, factors)
    if context.train and self.dropout_rate:
      h = mtf.dropout(
        h,
        context.train,
        keep_prob=1.0 - self.dropout_rate,
        noise_shape=h.shape - context.length_dim,
      )
    return dense(h, x.shape.dims[-1], 'wo')
