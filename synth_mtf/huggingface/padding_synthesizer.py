"""Moves padding on the left of sequences to the right, and back."""

from typing import Any

import torch
from torch import Tensor

from .attention_synthesizer import token_mask

# T5 reads positions by row, so padding inside of a sequence would count.
GAPS = '{} has padding between tokens; expected it on one side of them'
PADDING_IN_CACHE = (
  'the decoder cannot go on from a cache with padding: give decoder_input_ids '
  'of one length, or pad them on the left and set use_cache=False'
)


def left_padding(mask: Tensor | None) -> Tensor | None:
  """Counts the padding before each sequence, [batch]."""
  if mask is None:
    return None
  if mask.ndim != 2:
    raise ValueError(
      f'attention_mask is {list(mask.shape)}, expected [batch, length]'
    )
  return (mask != 0).int().argmax(-1)


def require_no_gaps(mask: Tensor | None, message: str) -> None:
  """Raises a ValueError if a token comes after padding.

  Args:
    mask: [batch, length] or, with a static cache, [batch, 1, length,
      memory_length].
    message: says what to do.
  """
  if mask is None:
    return
  tokens = mask != 0 if mask.ndim == 2 else token_mask(mask)
  right = (tokens[:, 1:] <= tokens[:, :-1]).all()
  if torch.compiler.is_compiling():  # where Python cannot see values
    torch._assert_async(right, message)
  elif not right:
    raise ValueError(message)


def rotate(x: Any, count: Tensor | None, axis: int = 1) -> Any:
  """Moves the first `count` entries of an axis, [batch], to its end."""
  if x is None or count is None:
    return x
  length = x.shape[axis]
  order = (torch.arange(length, device=x.device) + count[:, None]) % length
  shape = [len(order)] + [1] * (x.ndim - 1)
  shape[axis] = length
  return torch.take_along_dim(x, order.view(shape), axis)


def restore(outputs: Any, own: Tensor | None, memory: Tensor | None) -> None:
  """Moves padding in a stack's outputs back to the left.

  Args:
    outputs: of the stack.
    own: the padding before each of its sequences, [batch].
    memory: the padding before each of the encoder's sequences, [batch].
  """
  rows = None if own is None else -own
  columns = None if memory is None else -memory
  outputs.last_hidden_state = rotate(outputs.last_hidden_state, rows)
  if outputs.hidden_states is not None:
    outputs.hidden_states = tuple(
      rotate(x, rows) for x in outputs.hidden_states
    )
  if outputs.attentions is not None:
    outputs.attentions = tuple(
      rotate(rotate(weights, rows, 2), rows, 3)
      for weights in outputs.attentions
    )
  if outputs.cross_attentions is not None:
    outputs.cross_attentions = tuple(
      rotate(rotate(weights, rows, 2), columns, 3)
      for weights in outputs.cross_attentions
    )
