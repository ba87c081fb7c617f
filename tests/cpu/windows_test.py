"""Windows of tiles: what a query sees is in them."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.cpu import windows

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
    x = tf.reshape(tf.range(4 * LENGTH), [1, 1, 4, LENGTH])
    view = found.view(0, x, 'bhqk')
    back = found.put(0, view, 'bhqk', x.shape.as_list())
    view, back, whole = session.run([view, back, x])
  queries, start, keys = WINDOWS[name][steps]
  np.testing.assert_array_equal(
    view, whole[:, :, :queries, start : start + keys]
  )
  outside = np.ones_like(whole, bool)
  outside[:, :, :queries, start : start + keys] = False
  np.testing.assert_array_equal(back, np.where(outside, 0, whole))


X = np.arange(2 * 4 * 5 * 3).reshape([2, 4, 5, 3])


@pytest.mark.parametrize(
  'layout, expected',
  [
    ('bqkh', X[:, 2:4, 1:4]),
    ('bkqh', X[:, 1:4, 2:4]),
    ('b.kh', X[:, :, 1:4]),
    ('bh..', X),
  ],
)
def test_a_window_follows_the_layout(layout, expected):
  with tf.Graph().as_default(), tf.Session() as session:
    # Of the first block of queries and of the second.
    found = windows.Windows(2, 2, tf.constant([[2], [2]]), 1, 3)
    stride = 2 if 'q' in layout else 0
    view = session.run(found.view(1, tf.constant(X), layout, stride))
  np.testing.assert_array_equal(view, expected)


def test_a_whole_window_is_the_tensor_or_its_block():
  whole = windows.Windows(2, 2, 2)
  with tf.Graph().as_default(), tf.Session() as session:
    x = tf.constant(X)
    assert whole.view(1, x, 'bqkh') is x
    assert whole.put(1, x, 'bqkh', X.shape) is x
    block = whole.view(1, x, 'bqkh', stride=2)
    assert block.shape.as_list() == [2, 2, 5, 3]
    np.testing.assert_array_equal(session.run(block), X[:, 2:4])
