"""Mixtures of synthesizers: the weight alpha of each function.

    B = sum_i alpha_i S_i(X)                                   (eq. 8 and 9)

(arXiv 2005.00743, "Mixture of Synthesizers"). The layer's `mixing` argument is
one of the keys of `MIXINGS`. A single function has no alpha.
"""

import collections
from collections.abc import Sequence
from typing import Callable, Optional

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf

from synth_mtf.core.layer_call import LayerCall
from synth_mtf.core.logits import Term
from synth_mtf.synthesizers.base import SynthesizingFunction

# Returns alpha_i for a number of functions; None stands for 1.
Alphas = Callable[[LayerCall, int], list[Optional[mtf.Tensor]]]


def per_head(call: LayerCall, count: int) -> list[Optional[mtf.Tensor]]:
  """Learned per head, summing to 1: [heads] each (the paper's)."""
  return _softmax(call, count, call.heads)


def per_layer(call: LayerCall, count: int) -> list[Optional[mtf.Tensor]]:
  """Learned per layer, summing to 1: [] each (mesh_tensorflow's own)."""
  return _softmax(call, count, [])


def plain_sum(call: LayerCall, count: int) -> list[Optional[mtf.Tensor]]:
  """alpha_i = 1: nothing is learned."""
  del call
  return [None] * count


MIXINGS: dict[str, Alphas] = {
  'softmax': per_head,
  'layer_softmax': per_layer,
  'sum': plain_sum,
}


def mixture(
  call: LayerCall,
  functions: Sequence[SynthesizingFunction],
  alphas: Sequence[Optional[mtf.Tensor]],
) -> list[Term]:
  """The terms alpha_i S_i(X), each in the variable scope of its function."""
  terms = []
  for scope, function, alpha in zip(scopes(functions), functions, alphas):
    with tf.variable_scope(scope):
      terms.append(function.logits(call, alpha))
  return terms


def scopes(functions: Sequence[SynthesizingFunction]) -> list[str]:
  """The variable scope of each function: random, random_1, dense, ..."""
  seen: collections.Counter[str] = collections.Counter()
  names = []
  for function in functions:
    count = seen[function.scope]
    names.append(f'{function.scope}_{count}' if count else function.scope)
    seen[function.scope] += 1
  return names


def _softmax(
  call: LayerCall, count: int, dims: list[mtf.Dimension]
) -> list[Optional[mtf.Tensor]]:
  """Softmax over the functions of the variable `alpha`, which starts at 0."""
  if count == 1:
    return [None]
  context = call.context
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
