"""Mixtures of synthesizers: the weight alpha of each function.

    B = sum_i alpha_i S_i(X)                                   (eq. 8 and 9)

The three ways to choose alpha are the keys of `MIXINGS`; the layer's `mixing`
argument names one. A single function has no alpha.
"""

import collections
import dataclasses
from collections.abc import Sequence
from typing import Callable, Optional, Union

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf

from synth_mtf.synthesizers.base import (
  InnerProduct,
  Site,
  SynthesizingFunction,
)

Term = Union[mtf.Tensor, InnerProduct]


def per_head(site: Site, count: int) -> list[Optional[mtf.Tensor]]:
  """Learned for each head, summing to 1: [heads] each (section 3.3)."""
  return _softmax(site, count, site.heads)


def per_layer(site: Site, count: int) -> list[Optional[mtf.Tensor]]:
  """Learned for each layer, summing to 1: [] each (mesh_tensorflow's own)."""
  return _softmax(site, count, [])


def plain_sum(site: Site, count: int) -> list[Optional[mtf.Tensor]]:
  """alpha_i = 1: nothing is learned."""
  del site
  return [None] * count


MIXINGS = {'softmax': per_head, 'layer_softmax': per_layer, 'sum': plain_sum}


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


def mixture(
  site: Site,
  functions: Sequence[SynthesizingFunction],
  alphas: Callable[[Site, int], list[Optional[mtf.Tensor]]],
) -> list[Term]:
  """The terms alpha_i S_i(X), each made in the scope of its function."""
  terms = []
  for scope, function, alpha in zip(
    scopes(functions), functions, alphas(site, len(functions))
  ):
    with tf.variable_scope(scope):
      terms.append(function.logits(site, alpha))
  return terms


def add(site: Site, terms: Sequence[Term]) -> Logits:
  """Sums terms; large tensors are touched as rarely as possible.

  What has no batch dimension is summed apart, and the inner products of one
  example become one product over all that they sum over.
  """
  shared_dims = set(site.shared)
  tensors, products = [], []
  for term in terms:
    if not isinstance(term, InnerProduct):
      tensors.append(term)
    elif term.dims <= shared_dims:
      tensors.append(multiply(site, term))
    else:
      products.append(term)
  shared = [t for t in tensors if set(t.shape.dims) <= shared_dims]
  local = [t for t in tensors if not set(t.shape.dims) <= shared_dims]
  return Logits(
    shared,
    mtf.add_n(local) if local else None,
    join(site, products) if products else None,
  )


def multiply(site: Site, product: InnerProduct) -> mtf.Tensor:
  """The logits of an inner product, [batch..., heads, length, memory_length].

  Dimensions that neither factor has are left out.
  """
  dims = [d for d in site.local.dims if d in product.dims]
  return mtf.einsum([product.query, product.key], mtf.Shape(dims))


def join(site: Site, products: Sequence[InnerProduct]) -> InnerProduct:
  """One inner product whose k runs over those of all products."""
  if len(products) == 1:
    return products[0]
  k = 'inner_product'
  query = _concat(
    [p.query for p in products],
    [p.k for p in products],
    site.batch + site.length + site.heads,
    k,
  )
  key = _concat(
    [p.key for p in products],
    [p.k for p in products],
    site.batch + [site.memory_length] + site.heads,
    k,
  )
  return InnerProduct(query, key, query.shape.dims[-1])


def _concat(factors, ks, order, name):
  """Concatenates along the k of each, having made the other dims agree."""
  present = {d for f in factors for d in f.shape.dims}
  dims = [d for d in order if d in present]
  return mtf.concat(
    [
      mtf.rename_dimension(arrange(f, mtf.Shape(dims + [k])), k.name, name)
      for f, k in zip(factors, ks)
    ],
    name,
  )


def arrange(x: mtf.Tensor, shape: mtf.Shape) -> mtf.Tensor:
  """Gives x exactly these dimensions, in this order."""
  if set(x.shape.dims) != set(shape.dims):
    x = mtf.broadcast(x, shape)
  return mtf.transpose(x, shape)


def scopes(functions: Sequence[SynthesizingFunction]) -> list[str]:
  """A variable scope for each function: random, random_1, dense, ..."""
  seen = collections.Counter()
  names = []
  for function in functions:
    count = seen[function.scope]
    names.append(f'{function.scope}_{count}' if count else function.scope)
    seen[function.scope] += 1
  return names


def _softmax(site, count, dims):
  """Softmax over the functions of the variable `alpha`, which starts at 0."""
  if count == 1:
    return [None]
  context = site.context
  functions = mtf.Dimension('synthesizers', count)
  types = context.variable_dtype
  alpha = mtf.get_variable(
    context.mesh,
    'alpha',
    mtf.Shape(context.model.ensemble_dims + [functions] + dims),
    initializer=tf.zeros_initializer(),
    dtype=mtf.VariableDType(types.master_dtype, types.slice_dtype, tf.float32),
  )
  return mtf.unstack(mtf.softmax(alpha, functions), functions)
