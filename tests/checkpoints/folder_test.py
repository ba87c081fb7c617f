"""Checkpoints of runs that were killed."""

import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.checkpoints import folder as checkpoints
from synth_mtf.checkpoints.files import Checkpoint


def save(folder, step):
  with tf.Graph().as_default(), tf.Session() as session:
    tf.get_variable('shared/embedding', [5, 3])
    tf.get_variable('q', [3, 7])
    tf.get_variable('q_slot_vr', [7])
    tf.get_variable('q_slot_vc', [3])
    session.run(tf.global_variables_initializer())
    tf.train.Saver().save(session, str(folder / 'model.ckpt'), step)


def test_a_checkpoint_that_nothing_points_at_is_found(tmp_path):
  for step in (9, 10):
    save(tmp_path, step)
  (tmp_path / 'checkpoint').unlink()
  checkpoints.mend_pointer(str(tmp_path))
  last = tf.train.latest_checkpoint(str(tmp_path))
  assert last == str(tmp_path / 'model.ckpt-10')


@pytest.mark.parametrize('step', [None, 4])
def test_otherwise_nothing_is_touched(tmp_path, step):
  if step:
    save(tmp_path, step)
  before = {path: path.read_bytes() for path in tmp_path.iterdir()}
  checkpoints.mend_pointer(str(tmp_path))
  checkpoints.mend_pointer(str(tmp_path / 'not there yet'))
  assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_only_variables_with_slots_are_trained(tmp_path):
  save(tmp_path, 1)
  assert Checkpoint(str(tmp_path)).trained_parameters == 3 * 7
