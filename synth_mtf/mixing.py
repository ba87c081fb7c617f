"""Mixtures of synthesizers: the weight alpha of each function.

    B = sum_i alpha_i S_i(X)                                   (eq. 8 and 9)

The three ways to choose alpha are the keys of `MIXINGS`; the layer's `mixing`
argument names one. A single function has no alpha.
"""

from typing import Optional

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf

from synth_mtf.synthesizers.base import Site


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
