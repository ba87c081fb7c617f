"""The neighbours of each token, as a convolution sees them."""

import mesh_tensorflow as mtf

from synth_mtf.positions import gather
from synth_mtf.synthesizers.base import Site
from synth_mtf.visibility import row_sequence_id


def neighbours(
  site: Site, x: mtf.Tensor, filter_dim: mtf.Dimension
) -> mtf.Tensor:
  """Stacks x_(i+o) over the offsets o of a filter.

  An encoder's filter is centered, o = -(w // 2), ...; a decoder's ends at the
  token itself, o = -(w - 1), ..., 0. What lies outside of the token's own
  sequence is 0. Incremental decoding keeps the last w - 1 tokens as its state.

  Args:
    site: the layer call.
    x: [batch..., length, channels...], without `length` in incremental
      decoding.
    filter_dim: w, the new dimension.

  Returns:
    x with the new dimension in front of its last one.
  """
  axis = x.shape.ndims - 1
  if site.context.mode == 'incremental':
    return _keep(site, x, filter_dim, axis)
  width = filter_dim.size
  is_decoder = site.context.read_priority is not None
  first = 1 - width if is_decoder else -(width // 2)
  if site.context.mode == 'first_part':
    _start(site, x, width, axis - len(site.length))
  return mtf.stack(
    [_shifted(site, x, first + o) for o in range(width)], filter_dim.name, axis
  )


def _shifted(site, x, offset):
  """x_(i+offset), 0 outside of token i's own sequence."""
  if offset == 0:
    return x
  (length,) = site.length

  def shift(y):
    return mtf.shift(y, -offset, length, wrap=False)

  sequence_id = row_sequence_id(site.context)
  if sequence_id is None:
    return shift(x)
  same = mtf.equal(sequence_id, shift(sequence_id))
  return shift(x) * mtf.cast(same, x.dtype)


def _start(site, x, width, axis):
  """Records the width - 1 tokens ahead of the first one to be decoded."""
  if width == 1:
    return
  (length,) = site.length

  def token(offset):
    at = site.context.initial_position + offset
    there = gather(x, mtf.maximum(at, 0), length.name)
    there *= mtf.cast(mtf.greater_equal(at, 0), x.dtype)
    return mtf.transpose(there, x.shape - length)

  earlier = [token(offset) for offset in range(1 - width, 0)]
  site.context.record_new_states([mtf.stack(earlier, 'earlier', axis)])


def _keep(site, x, filter_dim, axis):
  """The recorded tokens and x; records all but the oldest."""
  if filter_dim.size == 1:
    return mtf.stack([x], filter_dim.name, axis)
  (earlier,) = site.context.get_states(1)
  window = [*mtf.unstack(earlier, earlier.shape.dims[axis]), x]
  site.context.record_new_states([mtf.stack(window[1:], 'earlier', axis)])
  return mtf.stack(window, filter_dim.name, axis)
