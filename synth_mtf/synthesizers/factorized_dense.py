"""Factorized Dense: the outer product of two short vectors per token."""

import dataclasses
import math
from typing import Any

import gin
import mesh_tensorflow as mtf

from synth_mtf.core.dimensions import is_tpu
from synth_mtf.core.indexing import gather
from synth_mtf.core.layer_call import LayerCall
from synth_mtf.core.logits import OuterProduct, Term, weighted
from synth_mtf.core.products import outer_product
from synth_mtf.errors import ConfigurationError
from synth_mtf.synthesizers.base import Table
from synth_mtf.synthesizers.local import relu_layer


@gin.configurable(module='synth_mtf')
@dataclasses.dataclass(eq=False)
class FactorizedDense(Table):
  """FD, S(x_l)[i b + j] = A_l[i] B_l[j] with a b = N (eq. 5, 6).

      h = ReLU(W1 x_l),  A = WA h in R^a,  B = WB h in R^b

  W1 is [d_model, heads, d_kv], WA [heads, d_kv, a], WB [heads, d_kv, b]. We
  interpret two details. A's entries are repeated b times and B is tiled a
  times, so that each entry of a row is a different product; the paper only says
  that both are duplicated. A and B share W1, as Table 1 counts d^2 once.

  Args:
    factors: (a, b), with a b equal to the number of columns. Default: the pair
      of divisors closest to each other.
    key_value_size: width of the hidden layer in each head. Default: the
      layer's `key_value_size`.
    use_bias: adds b1, bA and bB, initially 0, to W1 x, A and B. Default: none,
      as everywhere in T5.

  The other arguments are those of `Table`; a b is its `tile_length`.
  """

  factors: Any = None
  key_value_size: int | None = None
  use_bias: bool = False

  letter = 'FD'
  last_factors = ('WB', 'bB')

  def __post_init__(self) -> None:
    super().__post_init__()
    columns = self.tile_length
    self.factors = tuple(self.factors or most_square(columns))
    is_pair = len(self.factors) == 2 and min(self.factors) >= 1
    if not is_pair or math.prod(self.factors) != columns:
      raise ConfigurationError(
        f'FactorizedDense.factors = {self.factors}: expected (a, b) with '
        f'a b = {columns}, for example {most_square(columns)}; change '
        f'FactorizedDense.factors or {self.limit_of_keys}'
      )

  def logits(self, call: LayerCall, alpha: mtf.Tensor | None) -> Term:
    """Computes the outer product of A and B as one row of N columns."""
    self.check_lengths(call, queries=False)
    d_kv = mtf.Dimension('d_kv', self.key_value_size or call.kv_dim.size)
    hidden = relu_layer(call, d_kv, self.use_bias)
    hidden = mtf.cast(hidden, call.logits_dtype)
    a_size, b_size = self.factors
    a = self._factor(call, hidden, 'A', mtf.Dimension('a', a_size))
    b = self._factor(call, hidden, 'B', mtf.Dimension('b', b_size))
    return self._columns(call, weighted(a, alpha), b)

  def _factor(
    self, call: LayerCall, hidden: mtf.Tensor, name: str, dim: mtf.Dimension
  ) -> mtf.Tensor:
    """Computes A or B, [batch..., heads, length, a or b]."""
    d_kv = hidden.shape.dims[-1]
    dtype = call.logits_dtype
    dims = [*call.heads, d_kv, dim]
    w = call.variable(f'W{name}', dims, d_kv.size**-0.5, dtype)
    # In this order, products on a CPU need not transpose the logits.
    shape = mtf.Shape([*call.batch, *call.heads, *call.length, dim])
    y = mtf.einsum([hidden, w], shape)
    if self.use_bias:
      y += call.variable(f'b{name}', [*call.heads, dim], 0.0, dtype)
    return y

  def _columns(self, call: LayerCall, a: mtf.Tensor, b: mtf.Tensor) -> Term:
    """Computes A_i B_j at the columns that the keys read."""
    a_dim = a.shape.dims[-1]
    b_dim = b.shape.dims[-1]
    # Columns that differ between examples, or that each device makes by itself.
    if call.index.is_packed or call.splits(call.memory_length):
      keys = call.index.keys % self.tile_length
      rows = [*call.batch, *call.heads, *call.length]
      return mtf.multiply(
        gather(a, keys // b_dim.size, 'a'),
        gather(b, keys % b_dim.size, 'b'),
        output_shape=mtf.Shape([*rows, call.memory_length]),
      )
    if is_tpu(a.mesh) and self._reads_whole_blocks(call):
      return _blocks(call, a, b)
    outer = outer_product(a, b, a.shape + b_dim)
    table = mtf.replace_dimensions(outer, [a_dim, b_dim], self.columns_dim)
    return call.index.columns(table)

  def _reads_whole_blocks(self, call: LayerCall) -> bool:
    """Whether the keys are the columns of the first entries of A."""
    keys = call.memory_length.size
    return keys <= self.tile_length and keys % self.factors[1] == 0


def _blocks(call: LayerCall, a: mtf.Tensor, b: mtf.Tensor) -> OuterProduct:
  """Returns the outer product in the order of `OuterProduct`."""
  a_dim = a.shape.dims[-1]
  b_dim = b.shape.dims[-1]
  read = mtf.Dimension(a_dim.name, call.memory_length.size // b_dim.size)
  if read != a_dim:
    a = mtf.slice(a, 0, read.size, a_dim.name)
  before = [*call.batch, *call.heads]
  return OuterProduct(
    mtf.transpose(a, mtf.Shape([*before, read, *call.length])),
    mtf.transpose(b, mtf.Shape([*before, b_dim, *call.length])),
    [read, b_dim],
    call.memory_length,
  )


def most_square(n: int) -> tuple[int, int]:
  """Returns the factors (a, b) of n, a <= b, that are closest to each other."""
  a = next(a for a in range(math.isqrt(n), 0, -1) if n % a == 0)
  return a, n // a
