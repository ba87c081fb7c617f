"""Alignment logits and visibility to weighted values.

    Y = dropout(softmax(B)) G(X)

over `memory_length`, restricted to what is visible. There are two ways to
compute it, which agree; the dimensions of the logits say which one applies:

  batch-shared   B has no batch dimension. Exponentials are taken once for the
                 whole batch, padding enters the two products with them, and
                 nothing of size [batch, heads, length, memory_length] is made.
  general        anything else.

T5 draws one dropout decision for each key and head and shares it among the
queries: dropout of the weights is then a factor on the values.
"""

import dataclasses
from typing import Callable, Optional

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf

from synth_mtf.mixing import Logits, arrange, join, multiply
from synth_mtf.positions import is_tpu
from synth_mtf.synthesizers.base import InnerProduct, Site
from synth_mtf.visibility import Visibility

# exp(-75) and 2^20 exp(75) are both normal float32 numbers.
_MAX_EXPONENT = 75.0
_HIDDEN = -1e9  # what the host adds to hidden logits


@dataclasses.dataclass(frozen=True)
class Dropout:
  """Dropout of the attention weights.

  Attributes:
    rate: probability of dropping; 0 outside training.
    broadcast_dims: dimensions that share one decision.
  """

  rate: float
  broadcast_dims: list[mtf.Dimension]

  def per_key(self, site: Site) -> bool:
    """Whether all queries share their decisions."""
    return self.rate == 0 or set(site.length) <= set(self.broadcast_dims)

  def of_values(self, values: mtf.Tensor, site: Site) -> mtf.Tensor:
    """The factor of each key and head, on [..., memory_length, heads, d_kv]."""
    if self.rate == 0:
      return values
    missing = [d for d in site.heads if d not in values.shape.dims]
    if missing:
      values = mtf.broadcast(
        values, mtf.Shape(values.shape.dims[:-1] + missing + [site.kv_dim])
      )
    return self._dropout(values, [site.kv_dim])

  def of_weights(self, weights: mtf.Tensor) -> mtf.Tensor:
    """Dropout of [..., heads, length, memory_length] itself."""
    return self._dropout(weights, [])

  def _dropout(self, x, dims):
    shared = set(self.broadcast_dims) | set(dims)
    return mtf.dropout(
      x,
      is_training=True,
      rate=self.rate,
      noise_shape=mtf.Shape([d for d in x.shape.dims if d not in shared]),
    )


def softmax_average(
  site: Site,
  logits: Logits,
  visibility: Visibility,
  values: mtf.Tensor,
  dropout: Dropout,
  use_log_z: Optional[Callable[[mtf.Tensor], None]] = None,
) -> mtf.Tensor:
  """softmax(B) G(X).

  Args:
    site: the layer call.
    logits: B.
    visibility: what takes part in the softmax.
    values: G(X), [batch..., memory_length, heads, d_kv].
    dropout: dropout of the weights.
    use_log_z: is given the logarithm of the softmax's denominator,
      [batch..., heads, length], if there is a use for it.

  Returns:
    Y, [batch..., length, heads, d_kv], 0 at padding.
  """
  path = (
    _shared_softmax
    if _is_shared(site, logits, visibility, dropout)
    else (_general_softmax)
  )
  return path(site, logits, visibility, values, dropout, use_log_z)


def unnormalized_average(
  site: Site,
  logits: Logits,
  visibility: Visibility,
  values: mtf.Tensor,
  dropout: Dropout,
  use_log_z: Optional[Callable[[mtf.Tensor], None]] = None,
) -> mtf.Tensor:
  """B G(X): the logits themselves are the weights (MLP-Mixer, section 2).

  Arguments and result are those of `softmax_average`.
  """
  del use_log_z  # there is no denominator
  weights = _add(_multiplied_out(site, logits), logits.shared)
  values = _at(visibility.keys, values)
  if visibility.pairs is not None:
    weights *= mtf.cast(visibility.pairs, weights.dtype)
  if dropout.per_key(site):
    values = dropout.of_values(values, site)
  else:
    weights = dropout.of_weights(mtf.broadcast(weights, site.local))
  return _at(visibility.queries, _weighted_sum(site, weights, values))


NORMALIZATIONS = {
  'softmax': softmax_average,
  'none': unnormalized_average,
  None: unnormalized_average,
}


def _is_shared(site, logits, visibility, dropout):
  """Whether the attention weights are the same for the whole batch."""
  pairs = visibility.pairs
  return (
    logits.are_shared
    and (pairs is None or set(pairs.shape.dims) <= set(site.shared))
    and dropout.per_key(site)
    and not _is_split(site, site.memory_length)
  )


def _is_split(site, dim):
  """Whether the mesh splits a dimension."""
  model = site.context.model
  return bool(model.layout and model.mesh_shape) and (
    mtf.tensor_dim_to_mesh_dim_size(model.layout, model.mesh_shape, dim) > 1
  )


def _shared_softmax(site, logits, visibility, values, dropout, use_log_z):
  """Y = (E (keep * V)) / (E keys), with E = exp(B - c), 0 where hidden.

  The center c of a row is the middle of its visible logits. Whatever padding
  an example has, E then neither overflows nor vanishes, as long as the logits
  of a row lie within 150 of each other; larger distances count as 150. On a TPU
  each term of B has a center, and c is their sum (150 then is that of the
  terms' spreads): B itself has no use but E, and XLA makes it there rather than
  keep it for each layer.
  """
  shape = mtf.Shape(site.shared)
  b = arrange(logits.shared, shape)
  terms = [b]
  if is_tpu(b.mesh):
    terms = [arrange(term, shape) for term in logits.shared_terms]
  mask = [] if visibility.pairs is None else [visibility.pairs]
  center = mtf.add_n([_row_centers(site, [term, *mask]) for term in terms])
  e = mtf.slicewise(
    _centered_exp,
    [b, center, *mask],
    splittable_dims=center.shape.dims,
    grad_function=lambda op, de: (
      [de * op.outputs[0]] + [None] * (len(op.inputs) - 1)
    ),
  )
  rows = mtf.Shape(site.batch + site.length + site.heads)
  if visibility.keys is None:
    total = mtf.reduce_sum(e, reduced_dim=site.memory_length)
  else:
    keys = mtf.cast(visibility.keys, e.dtype)
    seen = set(e.shape.dims + keys.shape.dims)
    total = mtf.einsum([e, keys], mtf.Shape([d for d in rows if d in seen]))
  total = arrange(total, rows)
  values = dropout.of_values(_at(visibility.keys, values), site)
  if use_log_z:
    use_log_z(mtf.log(total) + center)
  return _divide(_shared_sum(site, e, values), _at(visibility.queries, total))


def _shared_sum(site, weights, values):
  """W G(X), where all examples share W.

  As one product it leaves a TPU with the heads outside the batch, and beside it
  XLA keeps a copy for the output projection, which wants the batch outside.
  For training there is therefore a product for each example, of a broadcast
  that XLA makes part of it.
  """
  if not (is_tpu(weights.mesh) and site.context.train):
    return _weighted_sum(site, weights, values)
  weights = mtf.cast(weights, values.dtype)
  inner = site.heads + [site.kv_dim]
  values = arrange(values, mtf.Shape(site.batch + [site.memory_length] + inner))
  missing = [i for i, d in enumerate(site.batch) if d not in weights.shape.dims]

  def multiply_each(weights, values):
    batch = values.shape[: len(site.batch)]
    for axis in missing:
      weights = tf.expand_dims(weights, axis)
    weights = tf.broadcast_to(weights, batch + weights.shape[len(batch) :])
    heads = 'h' if site.heads else ''
    return tf.einsum(
      f'...{heads}ij,...j{heads}d->...i{heads}d', weights, values
    )

  return mtf.slicewise(
    multiply_each,
    [weights, values],
    output_shape=mtf.Shape(site.batch + site.length + inner),
    splittable_dims=site.batch + site.length + site.heads,
    grad_function=lambda op, dy: [
      mtf.einsum([dy, op.inputs[1]], op.inputs[0].shape),
      mtf.einsum([op.inputs[0], dy], op.inputs[1].shape),
    ],
  )


def _row_centers(site, inputs):
  """The middle of each row of [logits], or [logits, visible]: [..., length]."""
  rows = [d for d in site.shared if d != site.memory_length]
  return mtf.slicewise(
    _middle,
    inputs,
    output_shape=mtf.Shape(rows),
    splittable_dims=rows,
    grad_function=0,  # c cancels in the quotient
  )


def _middle(b, visible=None):
  low = high = b
  if visible is not None:
    low = tf.where_v2(visible, b, b.dtype.max)
    high = tf.where_v2(visible, b, b.dtype.min)
  return (tf.reduce_min(low, axis=-1) + tf.reduce_max(high, axis=-1)) / 2


def _divide(x, total):
  """Y = X / T for [..., d_kv] and [...]; 0 where T is 0.

      dX = dY / T     dT = -sum_d dX Y

  so that what is kept for the gradient is Y, which is needed anyway.
  """
  return mtf.slicewise(
    _divide_rows,
    [x, total],
    splittable_dims=total.shape.dims,
    grad_function=_divide_gradient,
  )


def _divide_gradient(op, dy):
  total = op.inputs[1]
  rows = total.shape.dims
  dx = mtf.slicewise(_divide_rows, [dy, total], splittable_dims=rows)
  dtotal = mtf.slicewise(
    lambda dx, y: (
      -tf.reduce_sum(
        tf.cast(dx, total.dtype) * tf.cast(y, total.dtype), axis=-1
      )
    ),
    [dx, op.outputs[0]],
    output_shape=total.shape,
    output_dtype=total.dtype,
    splittable_dims=rows,
  )
  return [dx, dtotal]


def _centered_exp(b, center, visible=None):
  e = tf.exp(
    tf.clip_by_value(b - center[..., tf.newaxis], -_MAX_EXPONENT, _MAX_EXPONENT)
  )
  return e if visible is None else tf.where_v2(visible, e, 0.0)


def _divide_rows(x, total):
  """Divides [..., d_kv] by [...]; the quotient by 0 is 0."""
  total = tf.where_v2(total > 0, total, float('inf'))[..., tf.newaxis]
  return tf.cast(tf.cast(x, total.dtype) / total, x.dtype)


def _general_softmax(site, logits, visibility, values, dropout, use_log_z):
  """Y = softmax(B + bias) (keep * V), the bias being _HIDDEN at what is hidden.

  All that has no batch dimension is summed first and added once.
  """
  pairs, keys = visibility.pairs, visibility.keys
  if keys is not None:
    logits, keys = _with_keys(site, logits, _hide(keys))
  b = _add(logits.shared, None if pairs is None else _hide(pairs))
  b = _add(_multiplied_out(site, logits), b)
  b = _add(b, keys)
  b = arrange(b, site.local)
  if use_log_z:
    use_log_z(mtf.reduce_logsumexp(b, site.memory_length))
  if dropout.per_key(site):
    values = dropout.of_values(values, site)
    y = _softmax_average(site, b, values)
  else:
    weights = mtf.cast(_softmax(site, b), values.dtype)
    y = _weighted_sum(site, dropout.of_weights(weights), values)
  return _at(visibility.queries, y)


def _with_keys(site, logits, bias):
  """Adds a bias of [batch..., memory_length] to logits, or leaves it over.

  Off a TPU it joins a product, as one more k with queries of 1: that saves a
  pass over B.
  """
  product = logits.product
  if product is None or is_tpu(bias.mesh):
    return logits, bias
  k = mtf.Dimension('keys', 1)
  ones = mtf.ones(bias.mesh, mtf.Shape([k]), product.query.dtype)
  bias = mtf.cast(bias, product.key.dtype)
  keys = InnerProduct(
    ones, mtf.reshape(bias, mtf.Shape(bias.shape.dims + [k])), k
  )
  return dataclasses.replace(logits, product=join(site, [product, keys])), None


def _multiplied_out(site, logits):
  """All that has a batch dimension."""
  product = logits.product and multiply(site, logits.product)
  return _add(logits.local, product)


def _softmax_average(site, b, values):
  """softmax(B) V, with the gradient in few passes over B off a TPU.

  With W = softmax(B), Y = W V and the row sums T = W 1,

      Y = (W V) / T     dW = [dY, dT] [V, 1]^T     dB = W dW

  where the normalizer of W counts as a constant: T = 1 carries its gradient,
  as a column of the product that is made anyway.
  """
  if (
    is_tpu(b.mesh)  # XLA fuses the passes by itself
    or values.dtype != tf.float32  # dT would be rounded
    or any(_is_split(site, d) for d in (site.memory_length, site.kv_dim))
  ):
    return _weighted_sum(site, _softmax(site, b), values)
  weights = _softmax(site, b, lambda op, dw: [dw * op.outputs[0]])
  with_one = mtf.Dimension('d_kv_and_one', site.kv_dim.size + 1)
  values = mtf.slicewise(
    _append_one,
    [values],
    output_shape=mtf.Shape(values.shape.dims[:-1] + [with_one]),
    splittable_dims=values.shape.dims[:-1],
    grad_function=lambda op, dv: [
      mtf.rename_dimension(
        mtf.slice(dv, 0, site.kv_dim.size, with_one.name),
        with_one.name,
        site.kv_dim.name,
      )
    ],
  )
  y = _weighted_sum(site, weights, values)
  return mtf.slicewise(
    lambda y: _divide_rows(y[..., :-1], y[..., -1]),
    [y],
    output_shape=mtf.Shape(y.shape.dims[:-1] + [site.kv_dim]),
    splittable_dims=y.shape.dims[:-1],
  )


def _append_one(values):
  paddings = [[0, 0]] * (values.shape.rank - 1) + [[0, 1]]
  return tf.pad(values, paddings, constant_values=1)


def _softmax(site, b, gradient=None):
  """Softmax over memory_length; one operation where the mesh allows it."""
  if _is_split(site, site.memory_length):
    return mtf.softmax(b, site.memory_length)
  return mtf.slicewise(
    tf.nn.softmax,
    [b],
    splittable_dims=[d for d in b.shape.dims if d != site.memory_length],
    grad_function=gradient,
  )


def _hide(visible):
  """The bias that hides what is False (or 0)."""
  return (1.0 - mtf.cast(visible, tf.float32)) * _HIDDEN


def _add(x, y):
  """The sum, where None stands for 0."""
  if x is None or y is None:
    return y if x is None else x
  return x + mtf.cast(y, x.dtype)


def _weighted_sum(site, weights, values):
  """W G(X), [batch..., length, heads, d_kv]."""
  return mtf.einsum(
    [mtf.cast(weights, values.dtype), values],
    mtf.Shape(site.batch + site.length + site.heads + values.shape.dims[-1:]),
  )


def _at(tokens, x):
  """Zero where `tokens` is; None hides nothing."""
  return x if tokens is None else x * mtf.cast(tokens, x.dtype)
