"""Logits to weighted values: both paths, at the edges, and dropout."""

from typing import Any

import numpy as np
import pytest

from tests import checks, family, harness, reference
from tests.harness import DECODER, ENCODER

ROWS = np.array([[1] * 7, [1, 1, 1, 1, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0]])
PADDING_ONLY = np.array([[0] * 7, [1] * 7])

shared_member = pytest.mark.parametrize(
  'name', sorted(n for n, m in family.ALL.items() if m.shared)
)
every_member = pytest.mark.parametrize('name', sorted(family.ALL))
in_encoder_and_decoder = pytest.mark.parametrize(
  'stack', [ENCODER, DECODER], ids=lambda stack: stack.name
)


def spread(extent, low=None):
  """Tables whose entries lie anywhere up to an extent."""
  low = -extent if low is None else low

  def weights(name, shape):
    drawn = harness.draw(name, shape)
    if name.startswith('random'):
      rng = np.random.RandomState(len(name))
      drawn = rng.uniform(low, extent, shape).astype(np.float32)
    return drawn

  return weights


@shared_member
@in_encoder_and_decoder
@pytest.mark.parametrize('packed', [False, True], ids=['shared', 'general'])
def test_both_paths_are_right_for_logits_spread_over_60(name, stack, packed):
  member = family.ALL[name]
  checks.parallel(
    member.maker(packed=packed),
    member.reference(),
    ROWS,
    stack,
    weights=spread(60.0),
    # exp(x) of a float32 x is right to |x| 2^-24.
    tolerance=60 * 2.0**-22,
  )


@shared_member
@pytest.mark.parametrize('packed', [False, True], ids=['shared', 'general'])
def test_a_common_offset_of_the_logits_changes_nothing(name, packed):
  member = family.ALL[name]
  if member.normalize is None:
    pytest.skip('there is no softmax for it to cancel in')
  checks.parallel(
    member.maker(packed=packed),
    member.reference(),
    ROWS,
    ENCODER,
    weights=spread(1003.0, 1000.0),
    tolerance=1e-3,  # of 1000 float32 keeps 1e-4
  )


@every_member
@pytest.mark.parametrize(
  'packed, stack',
  [(False, ENCODER), (True, DECODER)],
  ids=['padded', 'packed'],
)
def test_rows_of_nothing_but_padding_are_zero(name, stack, packed):
  member = family.ALL[name]
  result = checks.parallel(
    member.maker(packed=packed, relative_attention_type='bias'),
    member.reference(relative='bias'),
    PADDING_ONLY,
    stack,
    tolerance=member.tolerance,
  )
  assert not result.output[0].any()
  for gradient in result.gradients.values():
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize('name', ['random', 'random_vanilla', 'random_random'])
@pytest.mark.parametrize('extent', [1e3, 1e6, 1e20])
def test_no_logits_make_a_nan(name, extent):
  member = family.ALL[name]
  x = family.tokens(ROWS)
  for packed in (False, True):
    result = harness.parallel(
      member.maker(packed=packed), x, ROWS, DECODER, weights=spread(extent)
    )
    assert np.isfinite(result.output).all()
    for where, gradient in result.gradients.items():
      assert np.isfinite(gradient).all(), where


@every_member
def test_what_stands_at_padding_changes_nothing(name):
  member = family.ALL[name]
  x = family.tokens(ROWS)
  result = harness.parallel(
    member.maker(), x, ROWS, ENCODER, mode='eval', host_masks=False
  )
  expected = reference.rows(
    member.reference(),
    x.astype(np.float64),
    family.float64(result.weights),
    ROWS,
  )
  harness.assert_close(
    result.output[ROWS != 0], expected[ROWS != 0], 'output at tokens'
  )


def test_the_largest_tensor_of_r_does_not_grow_with_the_batch():
  length, heads = 29, 3

  def largest(name, batch):
    member = family.ALL[name]
    maker = _with_length(member, length)
    x = harness.draw('x', [batch, length, 4])
    result = harness.parallel(
      maker, x, np.ones(x.shape[:2], int), DECODER, weights=harness.draw
    )
    return max(np.prod(shape, dtype=int) for _, shape in result.shapes)

  for name in ('random', 'factorized_random', 'fixed_random'):
    assert largest(name, 2) == largest(name, 7) == heads * length**2
  # The measure sees what it should: the dot product does grow.
  assert largest('vanilla', 7) == 7 * heads * length**2


def _with_length(member, length):
  """A maker of a narrow layer with tables of that length."""
  import functools

  import synth_mtf

  functions = [
    functools.partial(f.func, **{**f.keywords, 'max_length': length})
    if isinstance(f, functools.partial)
    else f
    for f in member.synthesizers
  ]
  return lambda: synth_mtf.SyntheticAttention(
    synthesizers=functions, num_heads=3, key_value_size=1, packed=False
  )


RATE = 0.25
SIZE = 7  # tokens, and the channels that tell them apart


@pytest.mark.parametrize('name', ['random', 'random_vanilla', 'mlp_mixer'])
@pytest.mark.parametrize('packed', [False, True], ids=['unpacked', 'packed'])
def test_dropout_is_one_decision_for_all_queries(name, packed):
  weights, runs = _attention_weights(name, packed, dropout_rate=RATE)
  # [runs, batch, heads, length, memory_length]
  factors = runs / weights
  kept = factors > 0.5
  np.testing.assert_allclose(factors[kept], 1 / (1 - RATE), rtol=1e-3)
  np.testing.assert_allclose(factors[~kept], 0, atol=1e-3)
  assert (kept == kept[..., :1, :]).all(), 'queries do not share decisions'
  decisions = kept[..., 0, :]
  count = decisions.size
  deviation = np.sqrt(RATE * (1 - RATE) / count)
  assert abs(decisions.mean() - (1 - RATE)) < 5 * deviation
  for axis, what in enumerate(['runs', 'examples', 'heads', 'keys']):
    first = np.take(decisions, [0], axis)
    assert (decisions != first).any(), f'all {what} share decisions'
  # The mean over many runs is the weight without dropout.
  error = np.abs(runs.mean(0) / weights - 1).max()
  assert error < 6 * np.sqrt(RATE / (1 - RATE) / len(runs))


@pytest.mark.parametrize('name', ['random', 'random_vanilla', 'mlp_mixer'])
def test_dropout_of_each_weight_where_gin_asks_for_it(name):
  weights, runs = _attention_weights(
    name,
    False,
    dropout_rate=RATE,
    attention_kwargs={'dropout_broadcast_dims': []},
  )
  kept = runs / weights > 0.5
  assert (kept != kept[..., :1, :]).any()
  deviation = np.sqrt(RATE * (1 - RATE) / kept.size)
  assert abs(kept.mean() - (1 - RATE)) < 5 * deviation


@pytest.mark.parametrize('mode', ['eval', 'infer'])
def test_there_is_no_dropout_outside_training(mode):
  member = family.ALL['random']
  x = family.tokens(ROWS)
  with_dropout, without = (
    harness.parallel(member.maker(dropout_rate=rate), x, ROWS, mode=mode)
    for rate in (0.9, 0.0)
  )
  np.testing.assert_array_equal(with_dropout.output, without.output)


def _attention_weights(name, packed, **settings):
  """Attention weights without dropout, and those of 150 training steps.

  Values are one-hot vectors of the tokens and the output projection is the
  identity, so that the output spells out the weights: [batch, heads, length,
  memory_length].
  """
  heads = family.HEADS
  width = heads * SIZE

  def weights(variable, shape):
    if variable == 'v':
      one_head = np.eye(width, SIZE)
      return np.concatenate([one_head] * heads, axis=1)
    if variable == 'o':
      return np.eye(width)
    return np.abs(harness.draw(variable, shape)) + 0.5

  x = np.zeros([family.BATCH, SIZE, width], np.float32)
  x[:, np.arange(SIZE), np.arange(SIZE)] = 1
  ids = np.ones(x.shape[:2], int)
  settings = {'key_value_size': SIZE, 'packed': packed, **settings}
  member = family.ALL[name]

  def run(**more):
    output = harness.parallel(
      member.maker(**{**settings, **more}), x, ids, weights=weights, **many
    ).output
    split = output.reshape(*output.shape[:-1], heads, SIZE)
    return np.moveaxis(split, -2, -3)

  many: dict[str, Any] = {}
  exact = run(dropout_rate=0.0)
  many = {'runs': 150}
  return exact, run()


@shared_member
def test_z_loss_is_the_same_on_both_paths(name):
  """The mean square of log Z, over tokens, as the host has it."""
  member = family.ALL[name]
  if member.normalize is None:
    pytest.skip('there is no Z')
  x = family.tokens(ROWS)
  shared, general = (
    harness.parallel(
      member.maker(packed=packed, z_loss_coeff=0.1), x, ROWS, DECODER
    )
    for packed in (False, True)
  )
  assert len(shared.losses) == 1
  assert shared.losses[0] > 0
  harness.assert_close(
    np.array(shared.losses), np.array(general.losses), 'z loss'
  )
