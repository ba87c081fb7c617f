"""Windows of tiles: what is seen is in them, and what is not is never read."""

from typing import Any

import mesh_tensorflow as mtf
import numpy as np
import numpy.typing as npt
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.core.logits import InnerProduct
from synth_mtf.core.visibility import Visibility
from synth_mtf.cpu import attend, tiles, windows
from synth_mtf.cpu.windows import ALIGNMENT, Axis, Layout, Window, Windows
from tests import harness
from tests.core import calls

LENGTH = 12
QUERY, KEY = np.arange(LENGTH)[:, None], np.arange(LENGTH)
# Of a block of queries, 4 to 7: [batch, 1, rows, columns] each.
MASKS: dict[str, list[list[npt.NDArray[Any]]]] = {
  'padding': [[KEY < 5, KEY < 9]],
  'the future': [[(KEY <= QUERY)[4:8]]],
  'another sequence': [[((QUERY < 6) == (KEY < 6))[6:8].repeat(2, 0)]],
  'the future and padding': [[(KEY <= QUERY)[4:8]], [KEY < 6]],
  'tokens end': [[KEY < 9], [np.array([[1], [1], [0], [0]])]],
  'what padding sees': [
    [np.where(np.arange(4)[:, None] < 2, KEY == 7, KEY < 12)],
    [np.array([[1], [1], [0], [0]])],
  ],
  'a token sees nothing': [[np.array([KEY == 6] * 3 + [KEY < 0])]],
  'no token': [[KEY < 0], [np.zeros([4, 1])]],
}
# First and last query, first and last key, by steps of 1 and of 4.
WINDOWS = {
  'padding': [(4, 0, 9), (4, 0, 12)],
  'the future': [(4, 0, 8), (4, 0, 8)],
  'another sequence': [(4, 6, 6), (4, 4, 8)],
  'the future and padding': [(4, 0, 6), (4, 0, 8)],
  'tokens end': [(2, 0, 9), (4, 0, 12)],
  'what padding sees': [(2, 7, 1), (4, 4, 4)],
  'a token sees nothing': [(4, 0, 12), (4, 0, 12)],
  'no token': [(1, 0, 12), (4, 0, 12)],
}


@pytest.mark.parametrize('steps', [0, 1])
@pytest.mark.parametrize('name', MASKS)
def test_a_window_is_what_tokens_see(monkeypatch, name, steps):
  monkeypatch.setattr(windows, '_LEAST_STEP', [1, 4][steps])
  with tf.Graph().as_default(), tf.Session() as session:
    masks = []
    for given in MASKS[name]:
      mask = np.array(given, bool)
      rows = mask.reshape([len(given), 1, -1, mask.shape[-1]])
      masks.append(tf.constant(rows[None]))
    seen = [x for x in masks if x.shape[4] > 1]
    tokens = [x for x in masks if x.shape[4] == 1]
    found = windows.find(seen, tokens, 1, 1, 4, LENGTH)
    window = Window(found, 0)
    x = tf.reshape(tf.range(4 * LENGTH), [1, 1, 4, LENGTH])
    view = window.view(x, ALIGNMENT)
    back = window.put(view, ALIGNMENT, x.shape.as_list())
    view, back, whole = session.run([view, back, x])
  queries, start, keys = WINDOWS[name][steps]
  np.testing.assert_array_equal(
    view, whole[:, :, :queries, start : start + keys]
  )
  outside = np.ones_like(whole, bool)
  outside[:, :, :queries, start : start + keys] = False
  np.testing.assert_array_equal(back, np.where(outside, 0, whole))


def test_heads_may_come_last():
  x = np.arange(2 * 3 * 4 * 5).reshape([2, 3, 4, 5])  # batch, heads, rows, ...
  layout = Layout(Axis.QUERIES, Axis.KEYS, heads_last=True)
  stored = x.transpose(layout.stored(range(4)))
  assert stored.shape == (2, 4, 5, 3)
  assert layout.named(stored.shape) == [2, 3, 4, 5]
  with tf.Graph().as_default(), tf.Session() as session:
    found = Windows(2, 2, 1, 3, 2)  # of the first block and the second
    view = Window(found, 1).view(tf.constant(stored), layout, rows=2)
    loaded = layout.load(view)
    again = layout.store(loaded)
    view, loaded, again = session.run([view, loaded, again])
  np.testing.assert_array_equal(loaded, x[:, :, 2:4, 1:4])
  np.testing.assert_array_equal(again, view)


SEGMENTS = np.array([[1] * 5 + [2] * 4 + [0] * 3, [1] * 9 + [0] * 3])


@pytest.mark.parametrize(
  'packed', [False, True], ids=['unpacked rows', 'packed rows']
)
def test_what_no_query_sees_is_not_read(monkeypatch, packed):
  """What is hidden is not a number, which would spoil all that is made of it.

  A tile of packed rows is a single query here.
  """
  monkeypatch.setattr(windows, '_LEAST_STEP', 1)
  if packed:
    monkeypatch.setattr(tiles, '_TILE', LENGTH)
    monkeypatch.setattr(tiles, '_MOST_TILES', 1000)
  tokens = (SEGMENTS > 0).astype(np.float32)
  heads, d_kv = calls.HEADS, calls.D_KV
  shape = [calls.BATCH, LENGTH, heads, d_kv]
  drawn = {name: harness.draw(name, shape) for name in 'qkv'}
  spoiled = {
    name: np.where(tokens[..., None, None] > 0, x, np.nan).astype(np.float32)
    for name, x in drawn.items()
  }

  def build(mesh):
    call = calls.make(mesh, SEGMENTS)
    rows = {'q': 'length', 'k': 'memory_length', 'v': 'memory_length'}
    dims = {
      name: [
        mtf.Dimension('batch', calls.BATCH),
        mtf.Dimension(row, LENGTH),
        mtf.Dimension('heads', heads),
        mtf.Dimension('d_kv', d_kv),
      ]
      for name, row in rows.items()
    }
    q, k, v = (harness.constant(mesh, spoiled[n], dims[n]) for n in 'qkv')
    of_pairs = [*call.batch, *call.length, call.memory_length]
    same = (SEGMENTS[:, :, None] == SEGMENTS[:, None]).astype(np.float32)
    if packed:
      pairs = mtf.equal(harness.constant(mesh, same, of_pairs), 1.0)
      visibility = Visibility(pairs, None, None)
    else:
      visibility = Visibility(
        None,
        harness.constant(mesh, tokens, [*call.batch, call.memory_length]),
        harness.constant(mesh, tokens, [*call.batch, *call.length]),
      )
    y = attend.attend(call, [InnerProduct(q, k, call.kv_dim)], visibility, v)
    cotangent = harness.constant(
      mesh, np.broadcast_to(tokens[..., None, None], shape), y.shape
    )
    gradients = mtf.gradients([mtf.reduce_sum(y * cotangent)], [q, k, v])
    return {'y': y, 'gradients': gradients}

  found = harness.evaluate(build)
  for x in (found['y'], *found['gradients']):
    assert np.isfinite(x[tokens > 0]).all()


def test_a_single_key_leaves_all_queries():
  """Its mask has one column, but is not one of tokens."""
  tiling = tiles.Tiling([2, 1, 5, 1], by_queries=False)
  shape = [2, 1, 1, 1]
  cut = tiles.Cut(tiling, shape, Layout(None, Axis.KEYS))
  with tf.Graph().as_default(), tf.Session() as session:
    (tile,) = next(tiling.slabs)
    window = tiling.windows([(cut, tf.ones(shape, tf.int32))])(tile)
    x = np.arange(10.0).reshape([2, 1, 5, 1])
    view = session.run(window.view(tf.constant(x), ALIGNMENT))
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
