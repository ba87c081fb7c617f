"""Mixtures of synthesizers: the weight alpha of each function.

    B = sum_i alpha_i S_i(X)                                   (eq. 8 and 9)

(arXiv 2005.00743, "Mixture of Synthesizers"). A single function has no alpha.
"""

import collections
from collections.abc import Sequence
from typing import Optional

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf

from synth_mtf.core.layer_call import LayerCall
from synth_mtf.core.logits import Term
from synth_mtf.synthesizers.base import SynthesizingFunction

# Learned per head, summing to 1 (the paper's); the same per layer
# (mesh_tensorflow's own); all 1.
MIXINGS = ('softmax', 'layer_softmax', 'sum')


def make_alphas(
  call: LayerCall, count: int, mixing: str
) -> list[Optional[mtf.Tensor]]:
  """alpha_i of each function, [heads] or []; None stands for 1.

  The softmax over the functions of the variable `alpha`, which starts at 0.
  """
  if count == 1 or mixing == 'sum':
    return [None] * count
  context = call.context
  functions = mtf.Dimension('synthesizers', count)
  heads = call.heads if mixing == 'softmax' else []
  types = context.variable_dtype
  alpha = mtf.get_variable(
    context.mesh,
    'alpha',
    mtf.Shape([*context.model.ensemble_dims, functions, *heads]),
    initializer=tf.zeros_initializer(),
    dtype=mtf.VariableDType(types.master_dtype, types.slice_dtype, tf.float32),
  )
  return mtf.unstack(mtf.softmax(alpha, functions), functions)


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
