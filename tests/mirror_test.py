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
from tests.checkpoints.conversion_test import ORIGINALS, convert

pytestmark = pytest.mark.slow  # trains whole models

STEPS = 5
BATCH = mtf.Dimension('batch', 3)


def batches(length: int) -> harness.Array:
  """Rows of one sequence each, [step, batch, length]; some end in padding."""
  rows = np.random.RandomState(4).randint(
    2, model.VOCAB, [STEPS, BATCH.size, length], np.int32
  )
  rows[:, 1, 6:] = 0
  return rows


def losses(
  path: str,
  files: Sequence[str],
  optimizer: type[optimize.Optimizer],
  dtype: tf.DType,
) -> list[float]:
  """The loss of each step of training from a checkpoint, without dropout."""
  gin_files.parse(files, [*model.TINY, 'dropout_rate = 0.0'])
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
    _, loss = model.call(made, **ids, dtype=dtype)
    variables = graph.trainable_variables
    names = {v.name for v in variables}
    gradients = mtf.gradients([loss], [v.outputs[0] for v in variables])
    updates = optimizer(learning_rate=0.01).apply_grads(gradients, variables)
    lowering = mtf.Lowering(graph, {mesh: harness.ONE_DEVICE.implementation()})
    fetches = [lowering.export_to_tf_tensor(loss)]
    fetches += [lowering.lowered_operation(op) for op in updates]
    advance = step.assign_add(1)
    checkpoint, found = Checkpoint(path), []
    # In one thread sums have one order; Adafactor amplifies rounding.
    one = tf.ConfigProto(
      intra_op_parallelism_threads=1, inter_op_parallelism_threads=1
    )
    with tf.Session(config=one) as session:
      session.run(tf.global_variables_initializer())
      for variable in tf.global_variables():
        if variable.op.name in names:
          variable.load(checkpoint[variable.op.name], session)
      session.run(lowering.copy_masters_to_slices())
      for _ in range(STEPS):
        found.append(session.run(fetches)[0])
        session.run(advance)
  return found


def smaller(name, value):
  """About as large as initial values; beyond, Adafactor amplifies rounding."""
  return value if name.endswith(('alpha', 'scale')) else 0.2 * value


class Original:
  """A checkpoint of mesh_tensorflow's own layer, and how it trains on."""

  def __init__(self, folder: pathlib.Path, mode: str) -> None:
    self.variant = f'original_{mode}'
    self.path = model.write(folder, self.variant, change=smaller)

  @functools.cached_property
  def losses(self):
    """The losses with an optimizer and a type, which are computed once."""
    files = model.files(self.variant)
    return functools.cache(functools.partial(losses, self.path, files))


@pytest.fixture(scope='module')
def original(tmp_path_factory):
  """Makes the original of a mode, once."""
  return functools.cache(
    lambda mode: Original(tmp_path_factory.mktemp(mode), mode)
  )


@pytest.mark.parametrize('mode', ORIGINALS)
@pytest.mark.parametrize(
  'ours, optimizer, dtype, rtol',
  [
    ('as_original_{}', optimize.SgdOptimizer, tf.float32, 1e-5),
    # In float32, it amplifies the rounding of some processors to 6e-5.
    ('as_original_{}', optimize.AdafactorOptimizer, tf.float64, 1e-7),
    (
      'original_{}+../common/replace_synthesizer',
      optimize.SgdOptimizer,
      tf.float32,
      1e-5,
    ),
  ],
)
def test_equal_losses(original, tmp_path, mode, ours, optimizer, dtype, rtol):
  theirs, ours = original(mode), ours.format(mode)
  mirrored, _ = convert(theirs.path, tmp_path, ours)
  # The same parameters under other names.
  here, there = (
    sorted(c[n].size for n in c.weights)
    for c in (Checkpoint(theirs.path), Checkpoint(mirrored))
  )
  assert here == there
  expected = theirs.losses(optimizer, dtype)
  found = losses(mirrored, model.files(ours), optimizer, dtype)
  assert len({*expected}) == STEPS
  np.testing.assert_allclose(found, expected, rtol=rtol)
