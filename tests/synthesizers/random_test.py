"""R and Fixed R: tables."""

import functools

import numpy as np
import pytest

import synth_mtf
from synth_mtf.errors import ConfigurationError
from tests import checks, family, harness, reference
from tests.harness import DECODER, ENCODER

PACKED = np.array([[1, 1, 1, 2, 2, 2, 2], [1, 1, 1, 1, 1, 0, 0]])


def layer(**settings):
  function = functools.partial(synth_mtf.Random, **settings)
  return family.Member((function,), ()).maker


def test_variables():
  x = family.tokens(np.ones([2, 7]))
  shapes = {
    heads: {
      n: w.shape
      for n, w in harness.parallel(
        layer(max_length=13)(num_heads=heads), x
      ).weights.items()
    }
    for heads in (1, 3)
  }
  assert shapes == {
    1: {'random/R': (13, 13), 'v': (11, 5), 'o': (5, 11)},
    3: {'random/R': (3, 13, 13), 'v': (11, 15), 'o': (15, 11)},
  }


@pytest.mark.parametrize('packed', [False, True])
def test_fixed_random_is_kept_and_gets_no_gradient(packed):
  x = family.tokens(PACKED)
  result = harness.parallel(
    layer(max_length=13, trainable=False)(packed=packed), x, PACKED
  )
  assert 'random/R' in result.weights
  assert sorted(result.trainable) == ['o', 'v']
  assert set(result.gradients) == {'x', 'o', 'v'}


def test_a_constant_table_averages_what_is_visible():
  x = family.tokens(np.ones([2, 7]))
  result = harness.parallel(
    layer(max_length=7)(),
    x,
    stack=DECODER,
    mode='eval',
    weights=lambda n, s: np.full(s, 3.0) if n[0] == 'r' else harness.draw(n, s),
  )
  averages = np.cumsum(x, axis=1) / np.arange(1, 8)[:, None]
  expected = averages @ result.weights['v'] @ result.weights['o']
  harness.assert_close(result.output, expected, 'averages')


@pytest.mark.parametrize('size', [7, 13], ids=['whole', 'slice'])
@pytest.mark.parametrize('columns', [2, 3, 5])
@pytest.mark.parametrize('packed', [False, True], ids=['padded', 'packed'])
def test_tiled(size, columns, packed):
  checks.parallel(
    layer(max_length=size, tile_length=columns)(packed=packed),
    reference.Layer(
      [reference.random(size, columns)], family.HEADS, family.D_KV
    ),
    PACKED if packed else np.minimum(PACKED, 1),
    ENCODER,
  )


def test_tiled_in_decoding():
  make = layer(max_length=13, tile_length=3)()
  x = family.tokens(np.ones([2, 5]))
  parallel = harness.parallel(make, x, stack=DECODER, mode='eval').output
  harness.assert_close(harness.decode(make, x), parallel, 'token by token')


def test_two_tables_have_two_names():
  x = family.tokens(np.ones([2, 7]))
  function = functools.partial(synth_mtf.Random, max_length=7)
  result = harness.parallel(family.Member((function, function), ()).maker(), x)
  assert {'random/R', 'random_1/R'} < set(result.weights)


def test_the_initial_table_has_unit_variance():
  """Which is how T5's dot products start (fold_scaling_into_initializer)."""
  drawn = harness.initial(
    layer(max_length=61)(), family.tokens(np.ones([2, 7]))
  )
  table = drawn['random/R']
  assert abs(table.std() - 1) < 0.05
  assert abs(table.mean()) < 0.05


@pytest.mark.parametrize('decoding', [False, True])
def test_a_longer_sequence_is_refused(decoding):
  x = family.tokens(np.ones([2, 7]))
  run = harness.decode if decoding else harness.parallel
  with pytest.raises(
    ConfigurationError,
    match=r'length 7 exceeds max_length 5 of the Random table; set '
    r'Random\.max_length >= 7',
  ):
    run(layer(max_length=5)(), x)


@pytest.mark.parametrize(
  'settings, message',
  [
    ({'max_length': 0}, r'Random\.max_length = 0: expected at least 1'),
    (
      {'max_length': 5, 'tile_length': 6},
      r'Random\.tile_length = 6: expected 1 to max_length \(5\)',
    ),
    (
      {'max_length': 5, 'tile_length': 0},
      r'Random\.tile_length = 0: expected 1 to max_length \(5\)',
    ),
  ],
)
def test_sizes_that_do_not_fit(settings, message):
  with pytest.raises(ConfigurationError, match=message):
    synth_mtf.Random(**settings)
