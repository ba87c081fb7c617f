"""The weighted sum where logits differ from example to example."""

import mesh_tensorflow as mtf
import numpy as np
import pytest

from synth_mtf.core.logits import Logits
from synth_mtf.core.visibility import Visibility
from synth_mtf.layer import general
from synth_mtf.layer.dropout import Dropout
from tests import harness
from tests.core import calls

B = harness.draw('B', [calls.BATCH, calls.HEADS, calls.LENGTH, calls.LENGTH])
V = harness.draw('V', [calls.BATCH, calls.LENGTH, calls.HEADS, calls.D_KV])
PAIRS = np.tril(np.ones([calls.LENGTH, calls.LENGTH], int))
KEYS = np.array([[1, 1, 1, 0], [1, 1, 0, 0]])
SHARED = harness.draw('shared', [calls.HEADS, calls.LENGTH, calls.LENGTH])


def run(pairs=None, keys=None, mesh=harness.ONE_DEVICE, shared=None):
  """Y and log Z."""
  log_z: list[mtf.Tensor] = []

  def build(mesh_object):
    call = calls.make(mesh_object, mesh=mesh)
    (length, memory) = call.length[0], call.memory_length

    def constant(values, dims):
      return (
        None if values is None else harness.constant(mesh_object, values, dims)
      )

    tokens = constant(keys, call.batch + [memory])
    seen = Visibility(
      None
      if pairs is None
      else mtf.equal(constant(pairs, [length, memory]), 1),
      tokens,
      constant(keys, call.batch + [length]),
    )
    terms = constant(shared, call.shared)
    logits = Logits(
      [] if terms is None else [terms], [constant(B, call.local.dims)]
    )
    values = constant(V, call.batch + [memory] + call.heads + [call.kv_dim])
    y = general.average(
      call, logits, seen, values, Dropout(0.0, []), log_z.append
    )
    return y, mtf.transpose(log_z[-1], mtf.Shape(call.local.dims[:-1]))

  return harness.evaluate(build, mesh)


def expected(visible, logits):
  e = np.where(visible, np.exp(logits.astype(np.float64)), 0)
  total = e.sum(-1)
  return np.einsum('bhij,bjhd->bihd', e / total[..., None], V), np.log(total)


@pytest.mark.parametrize('shared', [None, SHARED], ids=['local', 'both'])
@pytest.mark.parametrize(
  'pairs, keys',
  [(None, None), (PAIRS, None), (None, KEYS), (PAIRS, KEYS)],
  ids=['all', 'causal', 'padded', 'causal-padded'],
)
def test_softmax_of_what_is_visible(pairs, keys, shared):
  visible = np.ones_like(B, bool)
  if pairs is not None:
    visible &= pairs == 1
  if keys is not None:
    visible &= keys[:, None, None, :] == 1
  y, log_z = run(pairs, keys, shared=shared)
  wanted, wanted_log_z = expected(visible, B if shared is None else B + shared)
  if keys is not None:
    wanted = wanted * keys[:, :, None, None]
  harness.assert_close(y, wanted, 'Y')
  harness.assert_close(log_z, wanted_log_z, 'log Z')


@pytest.mark.parametrize('dim', ['memory_length', 'd_kv', 'heads', 'batch'])
def test_any_dimension_may_be_split(dim):
  sizes = {'d_kv': 5, 'heads': 3}
  mesh = harness.Mesh(f'all:{sizes.get(dim, 2)}', f'{dim}:all')
  for split, one in zip(run(PAIRS, KEYS, mesh), run(PAIRS, KEYS)):
    harness.assert_close(split, one, dim)
