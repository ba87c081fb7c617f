"""Packs attention weights for the page, one byte per weight.

A weight w in a row (one query of one head) is quantized to a code c with

    w ~ scale c,    scale = max |w| / 255    (127 where some are negative)

so the error is at most half a scale, and 0 stays 0. A block holds the weights
of one layer and one example: the scales of all rows as float32, then all codes,
compressed with zlib and encoded in base64. `unpack` in page.js is the inverse.
"""

import base64
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import numpy as np

from synth_mtf.attention.file import Array, Attention
from synth_mtf.errors import UserError

# Numbers of tokens to keep per example; the largest one that fits is used.
_LENGTHS = (1024, 512, 384, 256, 192, 128, 96, 64, 48, 32, 24, 16)


class Packed(NamedTuple):
  """The packed attention of several models."""

  models: Sequence[dict[str, Any]]  # for JSON
  length: int  # the most tokens of an example
  truncated: bool  # whether longer examples were cut to `length`


def pack(attentions: Sequence[Attention], max_bytes: int) -> Packed:
  """Packs the attention of models, truncating long examples if necessary.

  Raises:
    UserError: even the shortest examples do not fit into `max_bytes`.
  """
  longest = max(x.shape[1] for a in attentions for x in a.tokens.values())
  for length in [longest, *(n for n in _LENGTHS if n < longest)]:
    models = _pack(attentions, length, max_bytes)
    if models is not None:
      return Packed(models, length, length < longest)
  raise UserError(
    f'the attention weights of {len(attentions)} models do not fit into '
    f'{max_bytes / 1e6:.0f} MB, even with {_LENGTHS[-1]} tokens of each '
    'example: give fewer models or fewer examples.'
  )


def _pack(
  attentions: Sequence[Attention], length: int, max_bytes: int
) -> Optional[list[dict[str, Any]]]:
  """Packs models, or returns None once blocks exceed `max_bytes`."""
  models = []
  for attention in attentions:
    stacks: dict[str, Any] = {}
    examples = range(attention.examples)
    about = {key: getattr(attention, key) for key in ('label', 'step', 'run')}
    texts = [
      {s: attention.tokens_of(s, n)[:length] for s in attention.tokens}
      for n in examples
    ]
    models.append({**about, 'examples': texts, 'stacks': stacks})
    for name, stack in attention.stacks.items():
      signed = bool((stack.weights < 0).any())
      shown = [attention.weights(name, n) for n in examples]
      if stack.weights.shape[1] == 1:  # examples share them
        shown = [stack.weights[:, 0]]
      blocks = [
        [_block(one[layer, :, :length, :length], signed) for one in shown]
        for layer in range(stack.layers)
      ]
      max_bytes -= sum(len(x['data']) for layer in blocks for x in layer)
      if max_bytes < 0:
        return None
      stacks[name] = {
        'heads': stack.heads,
        'signed': signed,
        'functions': list(stack.functions),
        'alpha': None if stack.alpha is None else stack.alpha.tolist(),
        'blocks': blocks,
      }
  return models


def _block(weights: Array, signed: bool) -> dict[str, Any]:
  """Packs [heads, queries, memory]."""
  scales = np.abs(weights).max(axis=-1) / (127 if signed else 255)
  codes = np.rint(weights / np.where(scales, scales, 1)[..., np.newaxis])
  content = (
    scales.astype('<f4').tobytes()
    + codes.astype(np.int8 if signed else np.uint8).tobytes()
  )
  data = base64.b64encode(zlib.compress(content, 9)).decode('ascii')
  return {'queries': codes.shape[1], 'memory': codes.shape[2], 'data': data}
