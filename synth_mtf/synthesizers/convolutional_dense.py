"""Convolutional Dense: each token's row also depends on its neighbours."""

import dataclasses

import gin
import mesh_tensorflow as mtf

from synth_mtf.core.dimensions import fuses_products
from synth_mtf.core.layer_call import LayerCall
from synth_mtf.core.neighbours import (
  joined_neighbours,
  neighbours,
  sum_over_neighbours,
)
from synth_mtf.synthesizers.local import (
  Local,
  project,
  projection_weights,
  with_projection_bias,
)


@gin.configurable(module='synth_mtf')
@dataclasses.dataclass(eq=False)
class ConvolutionalDense(Local):
  """Dense with one or both layers replaced by convolutions.

      linear           S(X) = W2 conv(X; W1)
      conv-ReLU-conv   S(X) = conv(ReLU(conv(X; W1)); W2)

  (Version 1, section 6.2) with conv(X; W)_i = sum_o W[o] x_(i+o) over
  `filter_width` neighbours: o is centered in an encoder and at most 0 in a
  decoder. Neighbours in padding or in another sequence count as 0. W1 is
  [filter_width, d_model, heads, d_kv]. W2 is [heads, d_kv, memory_length], or
  [heads, filter_width, d_kv, memory_length] if it is a convolution. Version 1
  lists both forms in one bullet; widths, shapes and borders are our choice.

  Args:
    filter_width: number of tokens that a filter sees.
    relu: True for conv-ReLU-conv, False for the linear form.

  The other arguments are those of `Local`.
  """

  filter_width: int = 3
  relu: bool = True

  @property
  def filter_dim(self) -> mtf.Dimension:
    return mtf.Dimension('filter_width', self.filter_width)

  @property
  def letter(self) -> str:
    name = 'CRC' if self.relu else 'Conv'
    is_usual = self.filter_width == ConvolutionalDense.filter_width
    return name if is_usual else f'{name}{self.filter_width}'

  def summed_dims(self, d_kv: mtf.Dimension) -> list[mtf.Dimension]:
    return ([self.filter_dim] if self.relu else []) + [d_kv]

  def hidden(self, call: LayerCall) -> mtf.Tensor:
    is_fused = call.context.train and fuses_products(call.x.mesh)
    h = self._convolved_on_tpu(call) if is_fused else self._convolved(call)
    if not self.relu:
      return h
    join = joined_neighbours if is_fused else neighbours
    return join(call.context, mtf.relu(h), self.filter_dim)

  def _convolved(self, call: LayerCall) -> mtf.Tensor:
    x = neighbours(call.context, call.x, self.filter_dim)
    dims = [*call.heads, self.d_kv(call)]
    return project(call, x, 'W1', dims, 2, self._gain, self.use_bias)

  def _convolved_on_tpu(self, call: LayerCall) -> mtf.Tensor:
    """Computes conv(X; W1) as sum_o (X W1[o])_(i+o).

    Cores that share the heads then sum one gradient for each token instead of
    one for each of its neighbours, and the neighbours are not stored.
    """
    *kept, d_model = call.x.shape.dims
    dims = [*call.heads, self.d_kv(call)]
    summed = [self.filter_dim, d_model]
    w = projection_weights(call, 'W1', summed, dims, self._gain)
    y = mtf.einsum([call.x, w], mtf.Shape([*kept, self.filter_dim, *dims]))
    h = sum_over_neighbours(call.context, y, self.filter_dim)
    return with_projection_bias(call, h, 'W1', dims) if self.use_bias else h

  @property
  def _gain(self) -> float:
    """Compensates for ReLU, which halves the second moment."""
    return 2.0 if self.relu else 1.0
