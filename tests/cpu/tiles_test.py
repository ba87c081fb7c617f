"""Tiles of an alignment, and the pieces of tensors that belong to them."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.cpu import tiles


def test_a_single_key_leaves_all_queries():
  """Its mask has one column, but is not one of tokens."""
  tiling = tiles.Tiling([2, 1, 5, 1], by_queries=False)
  with tf.Graph().as_default(), tf.Session() as session:
    (tile,) = next(tiling.slabs)
    mask = tiles.Pieces(tiling, tf.ones([2, 1, 1, 1], tf.int32), 'bh.k')
    x = np.arange(10.0).reshape([2, 1, 5, 1])
    seen = tiling.windows([mask])
    view = session.run(seen.view(tile.window, tf.constant(x), 'bhqk'))
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
  ],
)
def test_tiles_are_few(shape, by_queries):
  tiling = tiles.Tiling(shape, by_queries)
  assert 0 <= tiling.blocks * tiling.queries - shape[2] < tiling.blocks
  assert shape[0] % tiling.examples == shape[1] % tiling.heads == 0
  assert tiling.examples * tiling.heads * tiling.blocks <= 96


def test_a_single_tile_has_everything():
  tiling = tiles.Tiling([64, 12, 512, 512], by_queries=True, single=True)
  assert [*tiling.slabs] == [[(0, 0, 0, 0)]]
  assert tiling.queries == 512


@pytest.mark.parametrize('entries', [1, 15, 30, 60, 120, 2**20])
@pytest.mark.parametrize('by_queries', [False, True])
@pytest.mark.parametrize(
  'layout, shape',
  [
    ('bhqk', [2, 3, 7, 5]),
    ('bhqk', [1, 3, 7, 5]),
    ('bhqk', [2, 1, 7, 5]),
    ('bhq.', [2, 3, 7, 4]),
    ('bhk.', [2, 3, 5, 4]),
    ('bh.k', [2, 3, 1, 5]),
    ('bh..', [1, 3, 1, 1]),
    ('bqkh', [2, 7, 5, 3]),
  ],
  ids=str,
)
def test_pieces_come_together_again(
  monkeypatch, entries, by_queries, layout, shape
):
  """Taken tile by tile, and summed over the tiles that share a piece."""
  monkeypatch.setattr(tiles, '_TILE', entries)
  monkeypatch.setattr(tiles, '_LARGE', 1)
  by_queries |= layout == 'bqkh'  # its tiles have all heads
  tiling = tiles.Tiling([2, 3, 7, 5], by_queries)
  x = np.random.RandomState(0).standard_normal(shape).astype(np.float32)
  uses = 0
  with tf.Graph().as_default(), tf.Session() as session:
    pieces = tiles.Pieces(tiling, tf.constant(x), layout)
    total, count = tiles.Sum(pieces), tiles.Sum(pieces)
    for slab in tiling.slabs:
      for tile in slab:
        uses += 1
        piece = pieces.take(tile, tiling.whole)
        total.add(piece, tile, tiling.whole)
        count.add(tf.ones_like(piece), tile, tiling.whole)
    summed, count = session.run([total.total(), count.total()])
  assert uses == tiling.examples * tiling.heads * tiling.blocks
  assert count.min() == count.max() == uses // pieces.number
  np.testing.assert_allclose(summed, x * count, rtol=1e-6)
