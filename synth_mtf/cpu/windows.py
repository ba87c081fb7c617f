"""The part of each tile of an alignment that is computed: its window.

A window has the tile's queries up to the last token, and the keys from the
first to the last that any of these queries sees. It leaves out padding, the
future and the other sequences of a packed row.

A layout names the axes of a tensor in memory, one letter each:

    b  examples    h  heads    q  queries    k  keys    .  anything else
"""

import functools
from collections.abc import Sequence
from typing import Any, Union

import numpy as np
import tensorflow.compat.v1 as tf

# Windows begin and end at multiples of a step, and a row has at most this many
# steps: the processor's library prepares a product once for each size.
_LEAST_STEP = 32
_MOST_STEPS = 16

# One number for all windows, a number for each, or an int32 [number, 1].
Numbers = Union[int, Sequence[int], tf.Tensor]


class Windows:
  """The windows of all tiles, found together to keep the graph small."""

  def __init__(
    self,
    blocks: int,
    number: int,
    queries: Numbers,
    start: Numbers = 0,
    keys: Numbers = -1,
  ) -> None:
    """Creates windows.

    Args:
      blocks: number of blocks of queries.
      number: number of windows: the blocks of the first group of examples, then
        those of the next, and so on.
      queries: how many queries each window has.
      start: its first key.
      keys: how many keys it has; -1 for whole tiles.
    """
    self._blocks = [i % blocks for i in range(number)]
    self._ranges = {'q': (0, queries), 'k': (start, keys)}
    self._is_whole = isinstance(keys, int) and keys < 0
    self._known: dict[Any, Any] = {}

  def view(
    self, at: int, x: tf.Tensor, layout: str, stride: int = 0
  ) -> tf.Tensor:
    """Window number `at` of a tensor.

    Args:
      at: which window.
      x: as it lies in memory.
      layout: of x.
      stride: queries from one block to the next; 0 if x is a single block.
    """
    if not set(layout) & {'q', 'k'} or (self._is_whole and not stride):
      return x
    if (layout, stride) not in self._known:
      begin, size = map(list, zip(*(self._range(a, -1) for a in layout)))
      if stride:
        begin[layout.index('q')] = [i * stride for i in self._blocks]
      self._known[layout, stride] = self._rows(begin), self._rows(size)
    begins, sizes = self._known[layout, stride]
    y = tf.slice(x, begins[at], sizes[at])
    if not self._is_whole:
      y.set_shape([None if a in 'qk' else n for a, n in zip(layout, x.shape)])
    return y

  def put(
    self, at: int, x: tf.Tensor, layout: str, shape: Sequence[int]
  ) -> tf.Tensor:
    """The tensor of this shape whose window is x, and which is 0 elsewhere."""
    if not set(layout) & {'q', 'k'} or self._is_whole:
      return x
    key = layout, tuple(shape)
    if key not in self._known:
      ranges = [self._range(a, n) for a, n in zip(layout, shape)]
      around = [(at, n - at - size) for (at, size), n in zip(ranges, shape)]
      self._known[key] = self._rows(sum(around, ()), [4, 2])
    y = tf.pad(x, self._known[key][at])
    y.set_shape(shape)
    return y

  def _range(self, axis: str, size: int) -> tuple[Any, Any]:
    return self._ranges.get(axis, (0, size))

  def _rows(
    self, columns: Sequence[Any], shape: Sequence[int] = (4,)
  ) -> Sequence[Any]:
    """A vector for each window, of this shape, from an entry of each column."""
    number = len(self._blocks)
    known = [0 if tf.is_tensor(x) else x for x in columns]
    rows = np.stack([np.broadcast_to(x, number) for x in known], axis=1)
    if self._is_whole:
      return rows.tolist()
    total = tf.constant(rows, tf.int32)
    for x, one_hot in zip(columns, np.eye(len(columns), dtype=np.int32)):
      if tf.is_tensor(x):
        total += x * one_hot
    return tf.unstack(tf.reshape(total, [number, *shape]))


def find(
  seen: Sequence[tf.Tensor],
  tokens: Sequence[tf.Tensor],
  examples: int,
  blocks: int,
  queries: int,
  keys: int,
) -> Windows:
  """Finds the windows of all tiles.

  Masks are bool, [groups of examples, examples, blocks, queries, keys], with
  size 1 where they do not depend on something.

  Args:
    seen: which keys a query sees: those on which all masks agree. A token that
      sees nothing averages over all keys, as in the host, so its window has all
      of them.
    tokens: which queries are tokens, [..., queries, 1].
    examples: number of groups of examples.
    blocks: number of blocks.
    queries: number of queries in a block.
    keys: number of keys.
  """
  start, stop, last = 0, keys, queries

  def ends(where: tf.Tensor) -> list[tf.Tensor]:
    return [
      tf.reshape(tf.broadcast_to(x, [examples, blocks]), [-1, 1])
      for x in _ends(where, keys)
    ]

  if seen:
    pairs = functools.reduce(tf.logical_and, seen)
    some = tf.reduce_any(pairs, axis=4, keepdims=True)
    pairs = tf.logical_or(pairs, tf.logical_not(some))
    if pairs.shape[3] > 1:
      pairs = functools.reduce(tf.logical_and, tokens, pairs)
    start, stop = ends(tf.reduce_any(pairs, axis=[1, 3]))
  if tokens:
    is_token = functools.reduce(tf.logical_and, tokens)
    _, last = ends(tf.reduce_any(is_token, axis=[1, 4]))
  return Windows(blocks, examples * blocks, last, start, stop - start)


def _ends(where: tf.Tensor, keys: int) -> tuple[tf.Tensor, tf.Tensor]:
  """The steps between which rows are true; the first step if nowhere."""
  step = max(_LEAST_STEP, keys // _MOST_STEPS)
  n = where.shape[-1]
  numbers = tf.range(n)
  last = tf.reduce_max(tf.where_v2(where, numbers, 0), axis=-1)
  first = tf.reduce_min(tf.where_v2(where, numbers, n), axis=-1)
  first = tf.minimum(first, last) // step * step
  return first, tf.minimum((last // step + 1) * step, n)
