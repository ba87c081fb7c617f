"""mesh_tensorflow's own Synthesizer and ours in its place, trained alike."""

import functools
import pathlib
from collections.abc import Sequence

import mesh_tensorflow as mtf
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from mesh_tensorflow import optimize

from synth_mtf.checkpoints.files import Checkpoint
from synth_mtf.host import gin_files, model as host_model
from tests import harness, model
from tests.checkpoints.conversion_test import ONE, ORIGINALS, convert

pytestmark = pytest.mark.slow  # trains whole models

STEPS = 5
# Adafactor hardly depends on how large a gradient is.
LEARNING_RATES = {
  optimize.SgdOptimizer: 1.0,
  optimize.AdafactorOptimizer: 0.01,
}
BATCH = mtf.Dimension('batch', 3)


def batches(length: int) -> harness.Array:
  """Rows of one sequence each, [step, batch, length]; some end in padding."""
  rows = np.random.RandomState(4).randint(
    2, model.VOCAB, [STEPS, BATCH.size, length], np.int32
  )
  rows[:, 1, 6:] = 0
  return rows


def losses(path: str, files: Sequence[str]) -> dict[str, list[float]]:
  """The losses of steps from a checkpoint, without dropout, by optimizer.

  All is in float64: Adafactor amplifies rounding.
  """
  gin_files.parse(files, [*model.TINY, *ONE, 'dropout_rate = 0.0'])
  with harness.new_graph() as (graph, mesh):
    # Each variable is read once a step, before it is updated.
    tf.get_variable_scope().set_caching_device('/cpu:0')
    step = tf.train.get_or_create_global_step()
    ids = {
      name: mtf.import_tf_tensor(
        mesh,
        tf.gather(batches(length), step),
        mtf.Shape([BATCH, mtf.Dimension('length', length)]),
      )
      for name, length in model.LENGTHS.items()
    }
    made = host_model.make_transformer(model.VOCAB)
    _, loss = model.call(made, **ids, dtype=tf.float64)
    variables = graph.trainable_variables
    names = {v.name for v in variables}
    gradients = mtf.gradients([loss], [v.outputs[0] for v in variables])
    updates = {
      optimizer.__name__: optimizer(rate).apply_grads(gradients, variables)
      for optimizer, rate in LEARNING_RATES.items()
    }
    lowering = mtf.Lowering(graph, {mesh: harness.ONE_DEVICE.implementation()})
    lowered_loss = lowering.export_to_tf_tensor(loss)
    advance = step.assign_add(1)
    checkpoint = Checkpoint(path)
    found: dict[str, list[float]] = {}
    # In one thread sums have one order.
    one = tf.ConfigProto(
      intra_op_parallelism_threads=1, inter_op_parallelism_threads=1
    )
    with tf.Session(config=one) as session:
      for name, operations in updates.items():
        session.run(tf.global_variables_initializer())
        for variable in tf.global_variables():
          if variable.op.name in names:
            variable.load(checkpoint[variable.op.name], session)
        session.run(lowering.copy_masters_to_slices())
        fetches = [lowered_loss]
        fetches += [lowering.lowered_operation(op) for op in operations]
        found[name] = []
        for _ in range(STEPS):
          found[name].append(session.run(fetches)[0])
          session.run(advance)
  return found


def smaller(name, value):
  """About as large as initial values; beyond, Adafactor amplifies rounding."""
  return value if name.endswith(('alpha', 'scale')) else 0.2 * value


class Original:
  """A checkpoint of mesh_tensorflow's own layer, and how it trains on."""

  def __init__(self, folder: pathlib.Path, mode: str) -> None:
    variant = f'original_{mode}'
    self.path = model.write(folder, variant, ONE, change=smaller)
    self.losses = losses(self.path, model.files(variant))


@pytest.fixture(scope='module')
def original(tmp_path_factory):
  """Makes the original of a mode, once."""
  return functools.cache(
    lambda mode: Original(tmp_path_factory.mktemp(mode), mode)
  )


@pytest.mark.parametrize('mode', ORIGINALS)
@pytest.mark.parametrize(
  'ours', ['as_original_{}', 'original_{}+../common/replace_synthesizer']
)
def test_equal_losses(original, tmp_path, mode, ours):
  theirs, ours = original(mode), ours.format(mode)
  mirrored, _ = convert(theirs.path, tmp_path, ours, bindings=ONE)
  # The same parameters under other names.
  here, there = (
    sorted(c[n].size for n in c.weights)
    for c in (Checkpoint(theirs.path), Checkpoint(mirrored))
  )
  assert here == there
  found = losses(mirrored, model.files(ours))
  for optimizer, expected in theirs.losses.items():
    assert len({*expected}) == STEPS
    np.testing.assert_allclose(
      found[optimizer], expected, rtol=2e-8, err_msg=optimizer
    )
