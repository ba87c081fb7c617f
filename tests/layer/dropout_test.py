"""Dropout of the attention weights, which the output spells out."""

import numpy as np
import pytest

from synth_mtf.layer.weighted_sum import Dropout
from tests import family, harness
from tests.core import calls

pytestmark = pytest.mark.sampled

RATE = 0.25
SIZE = 7  # tokens, and the channels that identify them

members = family.some('random', 'random_vanilla', 'mlp_mixer')


def attention_weights(member, **settings):
  """Weights without dropout, and those of 300 equal examples with it.

  Values are one-hot vectors of the tokens and the output projection is the
  identity, so that the output spells out the weights: [batch, heads, length,
  memory_length].
  """
  width = family.HEADS * SIZE

  def weights(variable, shape):
    if variable == 'v':
      return np.concatenate([np.eye(width, SIZE)] * family.HEADS, axis=1)
    if variable == 'o':
      return np.eye(width)
    return np.abs(harness.draw(variable, shape)) + 0.5

  x = np.zeros([300, SIZE, width], np.float32)
  x[:, np.arange(SIZE), np.arange(SIZE)] = 1
  found = []
  for rate in (0.0, RATE):
    output = harness.parallel(
      member.but(key_value_size=SIZE, dropout_rate=rate, **settings),
      x,
      np.ones(x.shape[:2], int),
      weights=weights,
    ).output
    split = output.reshape(*output.shape[:-1], family.HEADS, SIZE)
    found.append(np.moveaxis(split, -2, -3))
  return found


@members
@pytest.mark.parametrize('packed', family.one_in(2, [False, True]))
def test_all_queries_share_one_decision(member, packed):
  weights, dropped = attention_weights(member, packed=packed)
  factors = dropped / weights  # [batch, heads, length, memory_length]
  kept = factors > 0.5
  np.testing.assert_allclose(factors[kept], 1 / (1 - RATE), rtol=1e-3)
  np.testing.assert_allclose(factors[~kept], 0, atol=1e-3)
  assert (kept == kept[..., :1, :]).all(), 'queries do not share decisions'
  decisions = kept[..., 0, :]
  deviation = np.sqrt(RATE * (1 - RATE) / decisions.size)
  assert abs(decisions.mean() - (1 - RATE)) < 5 * deviation
  for axis, what in enumerate(['examples', 'heads', 'keys']):
    first = np.take(decisions, [0], axis)
    assert (decisions != first).any(), f'all {what} share decisions'
  # The mean over many examples is the weight without dropout.
  error = np.abs(factors.mean(0) - 1).max()
  assert error < 6 * np.sqrt(RATE / (1 - RATE) / len(factors))


@members
def test_gin_may_ask_for_a_decision_per_weight(member):
  weights, dropped = attention_weights(
    member, attention_kwargs={'dropout_broadcast_dims': []}
  )
  kept = dropped / weights > 0.5
  assert (kept != kept[..., :1, :]).any()
  deviation = np.sqrt(RATE * (1 - RATE) / kept.size)
  assert abs(kept.mean() - (1 - RATE)) < 5 * deviation


@pytest.mark.parametrize('mode', ['eval', 'infer'])
def test_there_is_no_dropout_outside_training(mode):
  ids = family.PADDED.ids
  with_dropout, without = (
    harness.parallel(
      family.R.but(dropout_rate=rate), family.tokens(ids), ids, mode=mode
    )
    for rate in (0.9, 0.0)
  )
  np.testing.assert_array_equal(with_dropout.output, without.output)


def test_all_channels_of_a_value_share_a_decision():
  """Also if several heads read what one head has written."""
  shape = calls.BATCH, calls.LENGTH, calls.D_KV

  def build(mesh):
    call = calls.make(mesh)
    values = harness.constant(mesh, np.ones(shape), 'batch memory_length d_kv')
    assert Dropout(0.0, []).drop_values(values, call) is values
    dropped = Dropout(0.5, []).drop_values(values, call)
    assert [d.name for d in dropped.shape] == [
      'batch', 'memory_length', 'heads', 'd_kv',
    ]  # fmt: skip
    return dropped

  found = harness.evaluate(build)
  assert set(np.unique(found)) == {0, 2}
  assert (found == found[..., :1]).all()
  for axis in range(3):
    assert (found != np.take(found, [0], axis)).any()
