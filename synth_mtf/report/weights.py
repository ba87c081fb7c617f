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
  return [
    {
      'label': attention.label,
      'step': attention.step,
      'run': attention.run,
      'examples': _examples(attention),
      'stacks': {name: _stack(attention, name) for name in attention.stacks},
    }
    for attention in attentions
  ]


def _examples(attention: Attention) -> list[dict[str, list[str]]]:
  """Returns the first tokens of each example, by side."""
  examples = []
  for example in range(attention.examples):
    tokens = {
      side: attention.tokens_of(side, example)[:MOST_TOKENS]
      for side in attention.tokens
    }
    examples.append(tokens)
  return examples


def _stack(attention: Attention, name: str) -> dict[str, Any]:
  """Packs a stack; its `blocks` are indexed by layer, then by example."""
  stack = attention.stacks[name]
  is_signed = bool((stack.weights < 0).any())
  blocks: list[list[dict[str, Any]]] = [[] for _ in range(stack.layers)]
  for example in range(attention.examples):
    layers = attention.weights(name, example)
    for of_layer, weights in zip(blocks, layers, strict=True):
      of_layer.append(_block(weights, is_signed))
  return {
    'heads': stack.heads,
    'signed': is_signed,
    'functions': list(stack.functions),
    'alpha': None if stack.alpha is None else stack.alpha.tolist(),
    'blocks': blocks,
  }


def _block(weights: Array, is_signed: bool) -> dict[str, Any]:
  """Packs [heads, queries, memory]."""
  weights = weights[:, :MOST_TOKENS, :MOST_TOKENS]
  most, dtype = (127, np.int8) if is_signed else (255, np.uint8)
  scales = np.abs(weights).max(axis=-1) / most
  divisors = np.where(scales, scales, 1)[..., np.newaxis]  # rows may be all 0
  codes = np.rint(weights / divisors).astype(dtype)
  content = scales.astype('<f4').tobytes() + codes.tobytes()
  data = base64.b64encode(zlib.compress(content, 9)).decode('ascii')
  return {'queries': codes.shape[1], 'memory': codes.shape[2], 'data': data}
