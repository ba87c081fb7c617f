"""Tiles of an alignment, their windows, and pieces of tensors."""

import math
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.cpu import tiles

LENGTH = 12
QUERY, KEY = np.arange(LENGTH)[:, None], np.arange(LENGTH)
FIRST_TWO = [np.array([[1], [1], [0], [0]])]
# The masks of a block of queries, 4 to 7, [batch, 1, rows, columns] each; and
# the number of queries, first key and number of keys, by steps of 1 and of 4.
WINDOWS: dict[str, Any] = {
  'padding': ([[KEY < 5, KEY < 9]], (4, 0, 9), (4, 0, 12)),
  'the future': ([[(KEY <= QUERY)[4:8]]], (4, 0, 8), (4, 0, 8)),
  'another sequence': (
    [[((QUERY < 6) == (KEY < 6))[6:8].repeat(2, 0)]],
    (4, 6, 6),
    (4, 4, 8),
  ),
  'the future and padding': (
    [[(KEY <= QUERY)[4:8]], [KEY < 6]],
    (4, 0, 6),
    (4, 0, 8),
  ),
  'tokens end': ([[KEY < 9], FIRST_TWO], (2, 0, 9), (4, 0, 12)),
  'what padding sees': (
    [[np.where(np.arange(4)[:, None] < 2, KEY == 7, KEY < 12)], FIRST_TWO],
    (2, 7, 1),
    (4, 4, 4),
  ),
  'a token sees nothing': (
    [[np.array([KEY == 6] * 3 + [KEY < 0])]],
    (4, 6, 1),
    (4, 4, 4),
  ),
  'no token': ([[KEY < 0], [np.zeros([4, 1])]], (1, 0, 1), (4, 0, 4)),
}


def test_a_single_key_leaves_all_queries():
  """Its mask has one column, but is not one of tokens."""
  tiling = tiles.Tiling([2, 1, 5, 1], by_queries=False)
  with tf.Graph().as_default(), tf.Session() as session:
    [[tile]] = tiling.slabs
    ones = tf.ones([2, 1, 1, 1], tf.int32)
    mask = tiles.Pieces(tiling, ones.shape.as_list(), 'bh.k', ones)
    x = np.arange(10.0).reshape([2, 1, 5, 1])
    seen = tiles.Windows(tiling, [mask])
    view = session.run(seen.view(tile, tf.constant(x), 'bhqk'))
  np.testing.assert_array_equal(view, x)


@pytest.mark.parametrize('by_queries', [False, True])
@pytest.mark.parametrize(
  'shape',
  [
    [4, 12, 512, 512],
    [1, 12, 4096, 4096],
    [128, 8, 64, 64],
    [1021, 8, 64, 64],
    [2048, 7, 114, 512],
    [3, 1, 1009, 1009],
    [1, 12, 4093, 4093],
  ],
)
def test_tiles_are_few(shape, by_queries):
  tiling = tiles.Tiling(shape, by_queries)
  assert tiling.groups.blocks * tiling.queries == shape[2]
  assert (
    shape[0] % tiling.groups.examples == shape[1] % tiling.groups.heads == 0
  )
  assert (
    tiling.groups.examples * tiling.groups.heads * tiling.groups.blocks <= 96
  )


@pytest.mark.parametrize('length', [512, 1021, 2039, 2042, 4093])
def test_tiles_stay_small_whatever_the_length(length):
  tiling = tiles.Tiling([1, 12, length, length], by_queries=True)
  number = math.prod(tiling.groups)
  assert 12 * length**2 / number <= 2**24


def test_a_single_tile_has_everything():
  tiling = tiles.Tiling([64, 12, 512, 512], by_queries=True, single=True)
  assert [*tiling.slabs] == [[(0, 0, 0)]]
  assert tiling.queries == 512


@pytest.mark.sampled
@pytest.mark.parametrize('entries', [1, 15, 30, 60, 120, 2**20])
@pytest.mark.parametrize('by_queries', [False, True])
@pytest.mark.parametrize(
  'layout, shape',
  [
    ('bhqk', [2, 3, 6, 5]),
    ('bhqk', [1, 3, 6, 5]),
    ('bhqk', [2, 1, 6, 5]),
    ('bhq.', [2, 3, 6, 4]),
    ('bhk.', [2, 3, 5, 4]),
    ('bh.k', [2, 3, 1, 5]),
    ('bh..', [1, 3, 1, 1]),
  ],
  ids=str,
)
def test_pieces_come_together_again(
  monkeypatch, entries, by_queries, layout, shape
):
  """Taken tile by tile, and summed over the tiles that share a piece."""
  monkeypatch.setattr(tiles, '_TILE', entries)
  tiling = tiles.Tiling([2, 3, 6, 5], by_queries)
  x = np.random.RandomState(0).standard_normal(shape).astype(np.float32)
  uses = 0
  with tf.Graph().as_default(), tf.Session() as session:
    pieces = tiles.Pieces(tiling, shape, layout, tf.constant(x))
    count = tiles.Pieces(tiling, shape, layout)
    for slab in tiling.slabs:
      for tile in slab:
        uses += 1
        piece = pieces.take(tile, None)
        pieces.add(piece, tile, None)
        count.add(tf.ones_like(piece), tile, None)
    summed, count = session.run([pieces.total(), count.total()])
  assert (
    uses == tiling.groups.examples * tiling.groups.heads * tiling.groups.blocks
  )
  assert count.min() == count.max() == uses // pieces.number
  np.testing.assert_allclose(summed, x * count, rtol=1e-6)


@pytest.mark.parametrize('step', [1, 4])
@pytest.mark.parametrize('name', WINDOWS)
def test_a_window_is_what_tokens_see(monkeypatch, name, step):
  monkeypatch.setattr(tiles, '_LEAST_STEP', step)
  masks, *windows = WINDOWS[name]
  batch = max(map(len, masks))
  tiling = tiles.Tiling([batch, 1, 4, LENGTH], by_queries=False, single=True)
  [[tile]] = tiling.slabs
  with tf.Graph().as_default(), tf.Session() as session:
    pieces = []
    for given in masks:
      mask = np.array(given, np.int32)
      mask = mask.reshape([len(given), 1, -1, mask.shape[-1]])
      axes = [
        a if n > 1 else '.' for a, n in zip('qk', mask.shape[2:], strict=True)
      ]
      layout = 'bh' + ''.join(axes)
      pieces.append(tiles.Pieces(tiling, mask.shape, layout, tf.constant(mask)))
    found = tiles.Windows(tiling, pieces)
    x = tf.reshape(tf.range(4 * LENGTH), [1, 1, 4, LENGTH])
    view = found.view(tile, x, 'bhqk')
    back = found.put(tile, view, 'bhqk', x.shape.as_list())
    view, back, whole = session.run([view, back, x])
  queries, start, keys = windows[step == 4]
  seen = np.s_[:, :, :queries, start : start + keys]
  np.testing.assert_array_equal(view, whole[seen])
  assert back.sum() == view.sum()
  np.testing.assert_array_equal(back[seen], view)


@pytest.mark.parametrize('heads', [1, 3])
def test_pieces_of_one_head_are_read_without_a_copy(monkeypatch, heads):
  """All of them by one operation; a block of several heads is a slice."""
  monkeypatch.setattr(tiles, '_TILE', 10 * heads)
  tiling = tiles.Tiling([2, heads, 6, 5], by_queries=True)
  assert tiling.groups.blocks > 1
  shape = [2, heads, 6, 4]
  with tf.Graph().as_default() as graph:
    pieces = tiles.Pieces(tiling, shape, 'bhq.', tf.ones(shape))
    for slab in tiling.slabs:
      for tile in slab:
        pieces.take(tile, None)
    kinds = [operation.type for operation in graph.get_operations()]
  assert kinds.count('Unpack') == 1
  assert ('Slice' in kinds) == (heads > 1)
