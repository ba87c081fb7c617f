"""Local, the base class of functions with a hidden layer, such as Dense."""

import abc
import dataclasses

import mesh_tensorflow as mtf

from synth_mtf.core.layer_call import LayerCall
from synth_mtf.core.logits import InnerProduct, weighted
from synth_mtf.synthesizers.base import Table


@dataclasses.dataclass(eq=False)
class Local(Table):
  """S(x_i) = W2 h(X)_i: each token computes its own row of logits.

  A subclass defines the hidden layer h. W2, [heads, d_kv, memory_length], maps
  to N columns, or to M in cross-attention.

  Args:
    key_value_size: width of the hidden layer in each head. Default: the
      layer's `key_value_size`.
    use_bias: adds b1, [heads, d_kv], to W1 x and b2, [heads, memory_length], to
      the logits, both initially 0. Default: none, as everywhere in T5.
    shared_heads: all heads share one W2, [d_kv, memory_length], and one b2.

  The other arguments are those of `Table`; with a `tile_length` of b, W2 has b
  columns, which repeat over the sequence.
  """

  key_value_size: int | None = None
  use_bias: bool = False
  shared_heads: bool = False

  last_factors = ('W2', 'b2')
  position_axes = {'W2': (-1,), 'b2': (-1,)}

  @abc.abstractmethod
  def hidden(self, call: LayerCall) -> mtf.Tensor:
    """Computes h(X), [batch..., length, heads, *summed_dims], of variance 1.

    The dimensions to sum over may also be joined in one, `d_kv`.
    """

  def d_kv(self, call: LayerCall) -> mtf.Dimension:
    return mtf.Dimension('d_kv', self.key_value_size or call.kv_dim.size)

  def summed_dims(self, d_kv: mtf.Dimension) -> list[mtf.Dimension]:
    return [d_kv]

  def logits(self, call: LayerCall, alpha: mtf.Tensor | None) -> InnerProduct:
    """[..., length, heads, d_kv] x [heads, d_kv, memory_length]."""
    self.check_lengths(call, queries=False)
    summed = self.summed_dims(self.d_kv(call))
    k = mtf.Dimension('d_kv', mtf.Shape(summed).size)
    heads = [] if self.shared_heads else call.heads
    dtype = call.logits_dtype
    dims = [*heads, *summed, self.columns_dim]
    w2 = call.variable('W2', dims, stddev=k.size**-0.5, dtype=dtype)
    w2 = mtf.replace_dimensions(w2, summed, k)
    hidden = mtf.cast(self.hidden(call), dtype)
    if {*summed} <= {*hidden.shape.dims}:
      hidden = mtf.replace_dimensions(hidden, summed, k)
    if self.use_bias:
      b2 = call.variable('b2', [*heads, self.columns_dim], 0.0, dtype)
      hidden, w2 = _with_bias(hidden, w2, b2, k)
      k = hidden.shape.dims[-1]
    return InnerProduct(weighted(hidden, alpha), call.index.columns(w2), k)


def _with_bias(
  hidden: mtf.Tensor, w2: mtf.Tensor, b2: mtf.Tensor, k: mtf.Dimension
) -> tuple[mtf.Tensor, mtf.Tensor]:
  """Adds a bias to a product: W2 h + b2 = [W2, b2] [h, 1].

  Args:
    hidden: h, [..., k].
    w2: [..., k, memory_length].
    b2: [..., memory_length].
    k: the dimension to sum over.
  """
  constant = mtf.Dimension(k.name, 1)
  *others, columns = b2.shape.dims
  ones = mtf.ones(hidden.mesh, hidden.shape - k + constant, hidden.dtype)
  b2 = mtf.reshape(b2, mtf.Shape([*others, constant, columns]))
  w2 = mtf.concat([w2, b2], k.name)
  return mtf.concat([hidden, ones], k.name), w2


def project(
  call: LayerCall,
  x: mtf.Tensor,
  name: str,
  dims: list[mtf.Dimension],
  reduced: int = 1,
  gain: float = 1.0,
  use_bias: bool = False,
) -> mtf.Tensor:
  """Multiplies x by a new W, which initially preserves the second moment.

  Args:
    call: the layer call.
    x: [..., in]; `in` are the last `reduced` dimensions.
    name: the variable's name.
    dims: the dimensions to project to.
    reduced: number of dimensions of x to sum over.
    gain: factor on the second moment, which compensates for a nonlinearity.
    use_bias: adds a bias, named after W (W1: b1), initially 0.
  """
  kept = x.shape.dims[:-reduced]
  w = projection_weights(call, name, x.shape.dims[-reduced:], dims, gain)
  y = call.projections.einsum([x, w], mtf.Shape([*kept, *dims]))
  return with_projection_bias(call, y, name, dims) if use_bias else y


def projection_weights(
  call: LayerCall,
  name: str,
  summed: list[mtf.Dimension],
  dims: list[mtf.Dimension],
  gain: float,
) -> mtf.Tensor:
  """Makes the W of `project`, [summed..., dims...]."""
  stddev = (gain / mtf.Shape(summed).size) ** 0.5
  return call.variable(name, [*summed, *dims], stddev)


def with_projection_bias(
  call: LayerCall, y: mtf.Tensor, name: str, dims: list[mtf.Dimension]
) -> mtf.Tensor:
  """Adds the bias of `project`, [dims...], to its product."""
  return y + call.variable(f'b{name[1:]}', dims, 0.0)


def relu_layer(
  call: LayerCall, d_kv: mtf.Dimension, use_bias: bool
) -> mtf.Tensor:
  """ReLU(W1 x_i), [batch..., length, heads, d_kv]; W1 [d_model, heads, d_kv].

  ReLU halves the second moment; the gain of 2 compensates for it.
  """
  dims = [*call.heads, d_kv]
  return mtf.relu(
    project(call, call.x, 'W1', dims, gain=2.0, use_bias=use_bias)
  )
