"""Attention weights for a page: a byte each, packed, unpacked when looked at.

A weight w of a row (one query of one head) is kept as a code c with

    w ~ scale c,    scale = max |w| / 255    (127 where some are negative)

so that it is off by half a scale at most, and 0 stays 0. The weights of a layer
and an example are a block: the scales of all rows, as float32, then all codes,
compressed by zlib, as base64. `weights.js` reads it back.
"""

import base64
import dataclasses
import itertools
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

import numpy as np

from synth_mtf.attention.file import SIDES, Array, Attention
from synth_mtf.errors import UserError

# How many tokens of an example are kept: the first number that is enough, or
# with which the page is small enough.
_LENGTHS = (1024, 512, 384, 256, 192, 128, 96, 64, 48, 32, 24, 16)


@dataclasses.dataclass(frozen=True)
class Block:
  """The weights of a layer and an example.

  Attributes:
    name: <model>-<stack>-<layer>-<example>, numbers from 0.
    queries: how many rows each head has.
    memory: how many weights each row has.
    text: base64.
  """

  name: str
  queries: int
  memory: int
  text: str


@dataclasses.dataclass(frozen=True)
class Packed:
  """The weights of some models.

  Attributes:
    index: what there is, for JSON: of each model its label, tokens and stacks.
    blocks: the weights.
    length: how many tokens of an example there are at most.
    whole: whether these are all tokens.
  """

  index: Sequence[Mapping[str, Any]]
  blocks: Sequence[Block]
  length: int
  whole: bool


def pack(models: Sequence[Attention], most_bytes: int) -> Packed:
  """Returns the weights of models in as few bytes as asked for.

  Where there are too many, only the first tokens of each example are kept.

  Args:
    models: what each attends to.
    most_bytes: how many bytes the blocks may take.

  Raises:
    UserError: they do not fit, however few the tokens are.
  """
  longest = max(map(_longest, models), default=0)
  shorter = [length for length in _LENGTHS if length < longest]
  for length in [longest, *shorter]:
    blocks = _blocks_within(models, length, most_bytes)
    if blocks is not None:
      index = [_described(model, length) for model in models]
      return Packed(index, blocks, length, length == longest)
  raise UserError(
    f'the attention weights of {len(models)} models do not fit into '
    f'{most_bytes / 1e6:.0f} MB, even with {_LENGTHS[-1]} tokens of each '
    'example: give fewer models or fewer examples.'
  )


def _blocks_within(
  models: Sequence[Attention], length: int, most_bytes: int
) -> Optional[list[Block]]:
  """Returns all blocks, or None as soon as they take too many bytes."""
  blocks, left = [], most_bytes
  for number, model in enumerate(models):
    for block in _blocks(number, model, length):
      left -= len(block.text)
      if left < 0:
        return None
      blocks.append(block)
  return blocks


def _blocks(number: int, model: Attention, length: int) -> Iterator[Block]:
  for name, stack in model.stacks.items():
    layers, examples = stack.weights.shape[:2]
    for layer, example in itertools.product(range(layers), range(examples)):
      # What the examples share is as long as the longest of them.
      of = [example] if examples > 1 else range(model.examples)
      queries, memory = (
        min(length, max(len(model.tokens_of(side, one)) for one in of))
        for side in SIDES[name]
      )
      weights = stack.weights[layer, example, :, :queries, :memory]
      yield Block(
        f'{number}-{name}-{layer}-{example}',
        queries,
        memory,
        _encoded(weights, _is_signed(stack.weights)),
      )


def _encoded(weights: Array, signed: bool) -> str:
  """Packs [heads, queries, memory]."""
  scales = np.abs(weights).max(axis=-1) / (127 if signed else 255)
  codes = np.rint(weights / np.where(scales, scales, 1)[..., np.newaxis])
  content = (
    scales.astype('<f4').tobytes()
    + codes.astype(np.int8 if signed else np.uint8).tobytes()
  )
  return base64.b64encode(zlib.compress(content, 9)).decode('ascii')


def _described(model: Attention, length: int) -> dict[str, Any]:
  described: dict[str, Any] = {
    'label': model.label,
    'step': model.step,
    'run': model.run,
    'examples': [
      {side: model.tokens_of(side, one)[:length] for side in model.tokens}
      for one in range(model.examples)
    ],
    'stacks': {},
  }
  for name, stack in model.stacks.items():
    alpha = stack.alpha
    described['stacks'][name] = {
      'layers': stack.layers,
      'heads': stack.heads,
      'blocks': stack.weights.shape[1],
      'signed': _is_signed(stack.weights),
      'functions': list(stack.functions),
      'alpha': None if alpha is None else alpha.astype(float).round(4).tolist(),
    }
  return described


def _is_signed(weights: Array) -> bool:
  return bool((weights < 0).any())


def _longest(model: Attention) -> int:
  return max(
    len(model.tokens_of(side, example))
    for side in model.tokens
    for example in range(model.examples)
  )
