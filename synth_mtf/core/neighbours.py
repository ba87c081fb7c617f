"""The neighbours of each token, as a convolution sees them."""

import mesh_tensorflow as mtf

from synth_mtf.core import kernels
from synth_mtf.core.layer_call import LayerCall
from synth_mtf.core.visibility import row_sequence_id


def neighbours(
  call: LayerCall, x: mtf.Tensor, filter_dim: mtf.Dimension
) -> mtf.Tensor:
  """Stacks x_(i+o) over the offsets o of a filter.

  An encoder's filter is centered, o = -(w // 2), ...; a decoder's ends at the
  token itself, o = -(w - 1), ..., 0. What lies outside of the token's own
  sequence is 0. Incremental decoding keeps the last w - 1 tokens as its state.

  Args:
    call: the layer call.
    x: [batch..., length, channels...], without `length` in incremental
      decoding.
    filter_dim: w, the new dimension.

  Returns:
    x with the new dimension before its last one.
  """
  axis = x.shape.ndims - 1
  if call.context.mode == 'incremental':
    return _keep(call, x, filter_dim, axis)
  width = filter_dim.size
  is_decoder = call.context.read_priority is not None
  first = 1 - width if is_decoder else -(width // 2)
  if call.context.mode == 'first_part':
    _start(call, x, width, axis - len(call.length))
  return mtf.stack(
    [_shifted(call, x, first + o) for o in range(width)], filter_dim.name, axis
  )


def _shifted(call: LayerCall, x: mtf.Tensor, offset: int) -> mtf.Tensor:
  """x_(i+offset), 0 outside of token i's own sequence."""
  if offset == 0:
    return x
  (length,) = call.length

  def shift(y: mtf.Tensor) -> mtf.Tensor:
    return mtf.shift(y, -offset, length, wrap=False)

  sequence_id = row_sequence_id(call.context)
  if sequence_id is None:
    return shift(x)
  same = mtf.equal(sequence_id, shift(sequence_id))
  return shift(x) * mtf.cast(same, x.dtype)


def _start(call: LayerCall, x: mtf.Tensor, width: int, axis: int) -> None:
  """Records the width - 1 tokens before the first one to be decoded."""
  if width == 1:
    return
  (length,) = call.length

  def token(offset: int) -> mtf.Tensor:
    at = call.context.initial_position + offset
    there = kernels.gather(x, mtf.maximum(at, 0), length.name)
    there *= mtf.cast(mtf.greater_equal(at, 0), x.dtype)
    return mtf.transpose(there, x.shape - length)

  earlier = [token(offset) for offset in range(1 - width, 0)]
  call.context.record_new_states([mtf.stack(earlier, 'earlier', axis)])


def _keep(
  call: LayerCall, x: mtf.Tensor, filter_dim: mtf.Dimension, axis: int
) -> mtf.Tensor:
  """The recorded tokens and x; records all but the oldest."""
  if filter_dim.size == 1:
    return mtf.stack([x], filter_dim.name, axis)
  (earlier,) = call.context.get_states(1)
  window = [*mtf.unstack(earlier, earlier.shape.dims[axis]), x]
  call.context.record_new_states([mtf.stack(window[1:], 'earlier', axis)])
  return mtf.stack(window, filter_dim.name, axis)
