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
from typing import Any

import numpy as np

from synth_mtf.attention.file import Array, Attention

MOST_TOKENS = 96  # of each example


def pack(attentions: Sequence[Attention]) -> list[dict[str, Any]]:
  """Packs the attention of models for JSON, on the first tokens of examples."""
  models = []
  for attention in attentions:
    examples = range(attention.examples)
    texts = [
      {s: attention.tokens_of(s, n)[:MOST_TOKENS] for s in attention.tokens}
      for n in examples
    ]
    stacks = {}
    for name, stack in attention.stacks.items():
      signed = bool((stack.weights < 0).any())
      shown = [attention.weights(name, n) for n in examples]
      stacks[name] = {
        'heads': stack.heads,
        'signed': signed,
        'functions': list(stack.functions),
        'alpha': None if stack.alpha is None else stack.alpha.tolist(),
        'blocks': [
          [_block(one[layer], signed) for one in shown]
          for layer in range(stack.layers)
        ],
      }
    models.append(
      {
        'label': attention.label,
        'step': attention.step,
        'run': attention.run,
        'examples': texts,
        'stacks': stacks,
      }
    )
  return models


def _block(weights: Array, signed: bool) -> dict[str, Any]:
  """Packs [heads, queries, memory]."""
  weights = weights[:, :MOST_TOKENS, :MOST_TOKENS]
  scales = np.abs(weights).max(axis=-1) / (127 if signed else 255)
  codes = np.rint(weights / np.where(scales, scales, 1)[..., np.newaxis])
  content = (
    scales.astype('<f4').tobytes()
    + codes.astype(np.int8 if signed else np.uint8).tobytes()
  )
  data = base64.b64encode(zlib.compress(content, 9)).decode('ascii')
  return {'queries': codes.shape[1], 'memory': codes.shape[2], 'data': data}
