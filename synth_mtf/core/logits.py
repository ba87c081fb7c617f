"""Alignment logits, a sum of terms that are multiplied out as late as possible.

    B = sum of terms

A term is a tensor, or an `InnerProduct`, `OuterProduct` or `Scaled` table that
has not been multiplied out. Terms without a batch dimension are summed
separately. Inner products with a batch dimension are joined into one.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import TypeAlias

import mesh_tensorflow as mtf

from synth_mtf.core.dimensions import arrange
from synth_mtf.core.gradients import not_before
from synth_mtf.core.layer_call import LayerCall
from synth_mtf.core.products import outer_product, product


@dataclasses.dataclass(frozen=True)
class InnerProduct:
  """Alignment logits that have not been multiplied out.

      B[i, j] = sum_k query[i, k] key[j, k]

  A product over the joined k of several terms is cheaper than their sum.

  Attributes:
    query: [batch..., length, heads, k], or a subset.
    key: [batch..., memory_length, heads, k], or a subset.
    k: the dimension to sum over.
  """

  query: mtf.Tensor
  key: mtf.Tensor
  k: mtf.Dimension


@dataclasses.dataclass(frozen=True)
class OuterProduct:
  """Alignment logits that have not been multiplied out.

      B[i, j] = a[i, j // b] b[i, j mod b]

  Attributes:
    a: [batch..., heads, a, length].
    b: [batch..., heads, b, length].
    blocks: [a, b], the keys as a blocks of b.
    columns: the same keys as one dimension, memory_length.
  """

  a: mtf.Tensor
  b: mtf.Tensor
  blocks: Sequence[mtf.Dimension]
  columns: mtf.Dimension


@dataclasses.dataclass(frozen=True)
class Scaled:
  """Alignment logits alpha T that have not been multiplied out.

  Attributes:
    table: T, over dimensions of [batch..., heads, length, memory_length].
    alpha: [heads] or [].
  """

  table: mtf.Tensor
  alpha: mtf.Tensor


Term: TypeAlias = mtf.Tensor | Scaled | InnerProduct | OuterProduct


@dataclasses.dataclass(frozen=True)
class Logits:
  """Alignment logits B, as terms with and without a batch dimension.

  Attributes:
    shared: terms without a batch dimension, over [heads, length,
      memory_length].
    local: other terms, over [batch..., heads, length, memory_length], with at
      most one inner product.
  """

  shared: Sequence[Term]
  local: Sequence[Term]

  @property
  def terms(self) -> list[Term]:
    return [*self.shared, *self.local]


def add(call: LayerCall, terms: Sequence[Term]) -> Logits:
  """Groups terms into `Logits` and joins their inner products."""
  shared_dims = set(call.shared)
  shared: list[Term] = []
  local: list[Term] = []
  products: list[InnerProduct] = []
  for term in terms:
    if dims_of(term) <= shared_dims:
      shared.append(term)
    elif isinstance(term, InnerProduct):
      products.append(term)
    else:
      local.append(term)
  if len(products) > 1:
    products = [_join(call, products)]
  return Logits(shared, [*local, *products])


def factors(term: Term) -> Sequence[mtf.Tensor]:
  """Returns the tensors that a term multiplies; one if it is a tensor."""
  if isinstance(term, InnerProduct):
    return [term.query, term.key]
  if isinstance(term, OuterProduct):
    return [term.a, term.b]
  if isinstance(term, Scaled):
    return [term.table, term.alpha]
  return [term]


def dims_of(term: Term) -> set[mtf.Dimension]:
  """Returns the dimensions of a term's logits."""
  dims = {d for x in factors(term) for d in x.shape.dims}
  if isinstance(term, InnerProduct):
    return dims - {term.k}
  if isinstance(term, OuterProduct):
    return dims - {*term.blocks} | {term.columns}
  return dims


def needed(terms: Sequence[Term]) -> list[mtf.Tensor]:
  """Returns what `gradients.recompute_in_backward` must depend on.

  That is a factor of each term that has not been multiplied out, or else the
  first term.
  """
  inputs = []
  for term in terms:
    first, *others = factors(term)
    if others:
      inputs.append(first)
  return inputs or [*terms[:1]]


def multiplied_out(call: LayerCall, term: Term) -> mtf.Tensor:
  """Returns a term as one tensor over the dimensions of its factors."""
  if isinstance(term, InnerProduct):
    shape = mtf.Shape([d for d in call.local.dims if d in dims_of(term)])
    return product(term.query, term.key, shape)
  if isinstance(term, OuterProduct):
    b = _in_blocks(call, term, term.blocks)
    return mtf.replace_dimensions(b, [*term.blocks], term.columns)
  return weighted(*factors(term))


def total(call: LayerCall, logits: Logits) -> mtf.Tensor:
  """Returns B as one tensor; sums shared terms before broadcasting them."""
  return _total(logits, functools.partial(multiplied_out, call))


def total_in_blocks(
  call: LayerCall, logits: Logits, blocks: Sequence[mtf.Dimension]
) -> mtf.Tensor:
  """Returns B as [batch..., heads, blocks..., length].

  The blocks, those of an `OuterProduct`, replace memory_length.
  """
  b = _total(logits, lambda term: _in_blocks(call, term, blocks))
  return arrange(b, mtf.Shape(_keys_first(call, blocks)))


def _total(
  logits: Logits, multiply: Callable[[Term], mtf.Tensor]
) -> mtf.Tensor:
  sums = []
  for terms in (logits.local, logits.shared):
    if terms:
      sums.append(mtf.add_n([multiply(term) for term in terms]))
  return mtf.add_n(sums)


def _in_blocks(
  call: LayerCall, term: Term, blocks: Sequence[mtf.Dimension]
) -> mtf.Tensor:
  """Returns a term over a subset of [batch..., heads, blocks..., length]."""
  if isinstance(term, OuterProduct):
    return outer_product(term.a, term.b, mtf.Shape(_keys_first(call, blocks)))
  b = multiplied_out(call, term)
  order = _keys_first(call, [call.memory_length])
  b = mtf.transpose(b, mtf.Shape([d for d in order if d in b.shape.dims]))
  return mtf.replace_dimensions(b, call.memory_length, [*blocks])


def _keys_first(
  call: LayerCall, keys: Sequence[mtf.Dimension]
) -> list[mtf.Dimension]:
  """The order in which a TPU can split the keys without copying.

  It cannot split the last dimension, which runs along its vector registers.
  """
  return [*call.batch, *call.heads, *keys, *call.length]


def tables_added_last(logits: Logits) -> Logits:
  """Returns the logits, whose tables are added to the terms of each example.

  Their sum with the relative position bias would impose the layout of the bias
  on a TPU, which would copy each table, its gradient and its update.
  """
  if not logits.local:
    return logits
  tables = [term for term in logits.shared if isinstance(term, Scaled)]
  others = [term for term in logits.shared if not isinstance(term, Scaled)]
  return Logits(others, [*logits.local, *tables])


def multiplied_after(y: mtf.Tensor, logits: Logits) -> Logits:
  """Returns the logits, whose products a TPU multiplies out only after y."""

  def after(term: Term) -> Term:
    if isinstance(term, InnerProduct):
      return dataclasses.replace(term, query=not_before(y, term.query))
    if isinstance(term, OuterProduct):
      return dataclasses.replace(term, a=not_before(y, term.a))
    return term

  return Logits(
    [after(term) for term in logits.shared],
    [after(term) for term in logits.local],
  )


def _join(call: LayerCall, products: Sequence[InnerProduct]) -> InnerProduct:
  """Joins inner products into one, over the sum of their k."""
  ks = [p.k for p in products]
  queries = [p.query for p in products]
  keys = [p.key for p in products]
  query = _concat(queries, ks, [*call.batch, *call.length, *call.heads])
  key = _concat(keys, ks, [*call.batch, call.memory_length, *call.heads])
  return InnerProduct(query, key, query.shape.dims[-1])


def _concat(
  xs: Sequence[mtf.Tensor],
  ks: Sequence[mtf.Dimension],
  order: Sequence[mtf.Dimension],
) -> mtf.Tensor:
  """Concatenates tensors along k, with other dimensions in this order."""
  name = 'inner_product'
  present = {d for x in xs for d in x.shape.dims}
  dims = [d for d in order if d in present]
  columns = []
  for x, k in zip(xs, ks, strict=True):
    x = arrange(x, mtf.Shape([*dims, k]))
    columns.append(mtf.rename_dimension(x, k.name, name))
  return mtf.concat(columns, name)


def weighted(x: mtf.Tensor, alpha: mtf.Tensor | None = None) -> mtf.Tensor:
  """Returns alpha x, where None stands for 1."""
  return x if alpha is None else x * mtf.cast(alpha, x.dtype)
