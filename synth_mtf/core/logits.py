"""Alignment logits as a sum whose large parts are touched as rarely as can be.

    B = sum of terms

A term is a tensor, or an `InnerProduct` that has not been multiplied out. What
has no batch dimension is summed separately; the inner products of one example
become a single product over everything that they sum over.
"""

import dataclasses
from collections.abc import Sequence
from typing import Optional, Union

import mesh_tensorflow as mtf

from synth_mtf.core import kernels
from synth_mtf.core.dimensions import arrange
from synth_mtf.core.layer_call import LayerCall


@dataclasses.dataclass(frozen=True)
class InnerProduct:
  """Alignment logits that have not been multiplied out.

      B[i, j] = sum_k query[i, k] key[j, k]

  Several of them over the same batch are one product over all their k, which
  is cheaper than the sum of the products.

  Attributes:
    query: [batch..., length, heads, k], or a subset.
    key: [batch..., memory_length, heads, k], or a subset.
    k: the dimension that is summed over.
  """

  query: mtf.Tensor
  key: mtf.Tensor
  k: mtf.Dimension

  @property
  def dims(self) -> set[mtf.Dimension]:
    """The dimensions of the logits."""
    return set(self.query.shape.dims + self.key.shape.dims) - {self.k}


Term = Union[mtf.Tensor, InnerProduct]


@dataclasses.dataclass(frozen=True)
class Logits:
  """Alignment logits B, as the sum of three parts; None stands for 0.

  Attributes:
    shared_terms: what has no batch dimensions, not yet summed; each a subset of
      [heads, length, memory_length].
    local: what has some, a subset of [batch..., heads, length, memory_length].
    product: the same, not multiplied out.
  """

  shared_terms: list[mtf.Tensor]
  local: Optional[mtf.Tensor]
  product: Optional[InnerProduct]

  @property
  def shared(self) -> Optional[mtf.Tensor]:
    """The part without batch dimensions."""
    return mtf.add_n(self.shared_terms) if self.shared_terms else None

  @property
  def are_shared(self) -> bool:
    """Whether they are the same for the whole batch."""
    return self.local is None and self.product is None

  def multiplied_out(self, call: LayerCall) -> Optional[mtf.Tensor]:
    """The part that has a batch dimension, as one tensor."""
    product = self.product and multiply(call, self.product)
    return plus(self.local, product)


def add(call: LayerCall, terms: Sequence[Term]) -> Logits:
  """Sums terms by what they depend on."""
  shared_dims = set(call.shared)
  tensors, products = [], []
  for term in terms:
    if not isinstance(term, InnerProduct):
      tensors.append(term)
    elif term.dims <= shared_dims:
      tensors.append(multiply(call, term))
    else:
      products.append(term)
  shared = [t for t in tensors if set(t.shape.dims) <= shared_dims]
  local = [t for t in tensors if not set(t.shape.dims) <= shared_dims]
  return Logits(
    shared,
    mtf.add_n(local) if local else None,
    join(call, products) if products else None,
  )


def add_to_keys(
  call: LayerCall, logits: Logits, bias: mtf.Tensor
) -> tuple[Logits, Optional[mtf.Tensor]]:
  """Adds a bias of [batch..., memory_length] to logits, or hands it back.

  Off a TPU it joins a product, as one more k with queries of 1: that saves a
  pass over B.

  Returns:
    The logits, and the bias if it is still to be added.
  """
  product = logits.product
  if product is None or kernels.is_tpu(bias.mesh):
    return logits, bias
  k = mtf.Dimension('keys', 1)
  ones = mtf.ones(bias.mesh, mtf.Shape([k]), product.query.dtype)
  bias = mtf.cast(bias, product.key.dtype)
  keys = InnerProduct(
    ones, mtf.reshape(bias, mtf.Shape(bias.shape.dims + [k])), k
  )
  return dataclasses.replace(logits, product=join(call, [product, keys])), None


def multiply(call: LayerCall, product: InnerProduct) -> mtf.Tensor:
  """The logits of an inner product, [batch..., heads, length, memory_length].

  Dimensions that neither factor has are left out.
  """
  dims = [d for d in call.local.dims if d in product.dims]
  return mtf.einsum([product.query, product.key], mtf.Shape(dims))


def join(call: LayerCall, products: Sequence[InnerProduct]) -> InnerProduct:
  """One inner product whose k runs over those of all products."""
  if len(products) == 1:
    return products[0]
  k = 'inner_product'
  query = _concat(
    [p.query for p in products],
    [p.k for p in products],
    call.batch + call.length + call.heads,
    k,
  )
  key = _concat(
    [p.key for p in products],
    [p.k for p in products],
    call.batch + [call.memory_length] + call.heads,
    k,
  )
  return InnerProduct(query, key, query.shape.dims[-1])


def _concat(
  factors: Sequence[mtf.Tensor],
  ks: Sequence[mtf.Dimension],
  order: Sequence[mtf.Dimension],
  name: str,
) -> mtf.Tensor:
  """Makes the other dims agree, and concatenates along the k of each."""
  present = {d for f in factors for d in f.shape.dims}
  dims = [d for d in order if d in present]
  return mtf.concat(
    [
      mtf.rename_dimension(arrange(f, mtf.Shape(dims + [k])), k.name, name)
      for f, k in zip(factors, ks)
    ],
    name,
  )


def plus(
  x: Optional[mtf.Tensor], y: Optional[mtf.Tensor]
) -> Optional[mtf.Tensor]:
  """The sum of two parts, in x's type; None stands for 0."""
  if x is None or y is None:
    return y if x is None else x
  return x + mtf.cast(y, x.dtype)


def weighted(x: mtf.Tensor, alpha: Optional[mtf.Tensor]) -> mtf.Tensor:
  """The product alpha x, where None stands for 1."""
  return x if alpha is None else x * mtf.cast(alpha, x.dtype)
