"""The neighbours of each token, for convolutions."""

import mesh_tensorflow as mtf
from mesh_tensorflow.transformer import transformer

from synth_mtf.core.context import row_sequence_id
from synth_mtf.core.indexing import gather


def neighbours(
  context: transformer.Context, x: mtf.Tensor, filter_dim: mtf.Dimension
) -> mtf.Tensor:
  """Stacks x_(i+o) over the offsets o of a filter.

  An encoder's filter is centered, o = -(w // 2), ...; a decoder's ends at the
  token itself, o = -(w - 1), ..., 0. Neighbours in other sequences are 0.
  Incremental decoding keeps the last w - 1 tokens as its state.

  Args:
    context: the host's Context.
    x: [batch..., length, channels...], without `length` in incremental
      decoding.
    filter_dim: the new dimension, of size w.

  Returns:
    x with the new dimension before its last one.
  """
  axis = x.shape.ndims - 1
  width = filter_dim.size
  if context.mode == 'incremental':
    window = [x]
    if width > 1:
      (earlier,) = context.get_states(1)
      window[:0] = mtf.unstack(earlier, earlier.shape.dims[axis])
      context.record_new_states([mtf.stack(window[1:], 'earlier', axis)])
    return mtf.stack(window, filter_dim.name, axis)
  if context.mode == 'first_part' and width > 1:
    earlier_dim = mtf.Dimension('earlier', width - 1)
    context.record_new_states([given_neighbours(context, x, earlier_dim)])
  shifted = [_shifted(context, x, o) for o in _offsets(context, filter_dim)]
  return mtf.stack(shifted, filter_dim.name, axis)


def given_neighbours(
  context: transformer.Context, x: mtf.Tensor, dim: mtf.Dimension
) -> mtf.Tensor:
  """Stacks the last tokens before the first one that will be decoded.

  Args:
    context: the host's Context, in the mode 'first_part'.
    x: [batch..., length, channels...].
    dim: the new dimension, as large as the number of tokens.

  Returns:
    x without `length`, with the new dimension before its last one. Where there
    is no token, it is 0.
  """
  tokens = [_token(context, x, offset) for offset in range(-dim.size, 0)]
  return mtf.stack(tokens, dim.name, x.shape.ndims - 2)


def joined_neighbours(
  context: transformer.Context, x: mtf.Tensor, filter_dim: mtf.Dimension
) -> mtf.Tensor:
  """Returns `neighbours` with its last two dimensions as one. Not for decoding.

  Args:
    context: the host's Context.
    x: [batch..., length, channels...].
    filter_dim: the filter's dimension.

  Returns:
    x with w times as many channels in its last dimension, under its old name.
  """
  shifted = [_shifted(context, x, o) for o in _offsets(context, filter_dim)]
  return mtf.concat(shifted, x.shape.dims[-1].name)


def sum_over_neighbours(
  context: transformer.Context, y: mtf.Tensor, filter_dim: mtf.Dimension
) -> mtf.Tensor:
  """Computes sum_o y_(i+o)[o] over the offsets of a filter. Not for decoding.

  For y[o] = x W[o], it is the product of `neighbours` of x and W.

  Args:
    context: the host's Context.
    y: [batch..., length, channels...] with `filter_dim` among the channels.
    filter_dim: the filter's dimension, to sum over.
  """
  offsets = _offsets(context, filter_dim)
  terms = zip(mtf.unstack(y, filter_dim), offsets, strict=True)
  return mtf.add_n([_shifted(context, term, offset) for term, offset in terms])


def _offsets(context: transformer.Context, filter_dim: mtf.Dimension) -> range:
  """Returns the offsets o of a filter, relative to a token."""
  width = filter_dim.size
  is_decoder = context.read_priority is not None
  first = 1 - width if is_decoder else -(width // 2)
  return range(first, first + width)


def _shifted(
  context: transformer.Context, x: mtf.Tensor, offset: int
) -> mtf.Tensor:
  """Returns x_(i+offset), 0 outside token i's own sequence."""
  if offset == 0:
    return x

  def shift(y: mtf.Tensor) -> mtf.Tensor:
    return mtf.shift(y, -offset, context.length_dim, wrap=False)

  sequence_id = row_sequence_id(context)
  if sequence_id is None:
    return shift(x)
  same = mtf.equal(sequence_id, shift(sequence_id))
  return shift(x) * mtf.cast(same, x.dtype)


def _token(
  context: transformer.Context, x: mtf.Tensor, offset: int
) -> mtf.Tensor:
  """Returns the token at `offset` from the first decoded one, 0 if none."""
  position = context.initial_position + offset
  token = gather(x, mtf.maximum(position, 0), context.length_dim.name)
  token *= mtf.cast(mtf.greater_equal(position, 0), x.dtype)
  return mtf.transpose(token, x.shape - context.length_dim)
