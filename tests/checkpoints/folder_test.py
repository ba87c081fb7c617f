"""A folder of checkpoints: which are there, complete, and the latest."""

import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.checkpoints import folder as checkpoints


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
  checkpoints.repair_pointer(str(tmp_path))
  last = tf.train.latest_checkpoint(str(tmp_path))
  assert last == str(tmp_path / 'model.ckpt-10')


@pytest.mark.parametrize('step', [None, 4])
def test_otherwise_nothing_is_touched(tmp_path, step):
  if step:
    save(tmp_path, step)
  before = {path: path.read_bytes() for path in tmp_path.iterdir()}
  checkpoints.repair_pointer(str(tmp_path))
  checkpoints.repair_pointer(str(tmp_path / 'not there yet'))
  assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def damage_of(folder, step):
  (data,) = folder.glob(f'model.ckpt-{step}.data*')
  data.write_bytes(data.read_bytes()[:3])


def test_checkpoints_come_in_the_order_of_their_steps(tmp_path):
  assert checkpoints.written(str(tmp_path)) == []
  for step in (10, 9, 100):
    save(tmp_path, step)
  names = [f'model.ckpt-{step}' for step in (9, 10, 100)]
  assert checkpoints.written(str(tmp_path)) == names
  assert [checkpoints.step_of(name) for name in names] == [9, 10, 100]


def test_damage_names_what_is_damaged_and_what_is_not(tmp_path):
  folder = str(tmp_path)
  for step in (1, 2, 3):
    save(tmp_path, step)
  assert checkpoints.damage(folder) is None
  damage_of(tmp_path, 3)
  assert checkpoints.is_complete(f'{folder}/model.ckpt-2')
  assert not checkpoints.is_complete(f'{folder}/model.ckpt-3')
  message = str(checkpoints.damage(folder))
  assert f'damaged in {folder}: model.ckpt-3 (truncated' in message
  assert 'Complete: model.ckpt-1, model.ckpt-2.' in message
  assert f'`{checkpoints.pointer_line("model.ckpt-2")}` into' in message
  for step in (1, 2):
    damage_of(tmp_path, step)
  assert 'No checkpoint there is complete' in str(checkpoints.damage(folder))


def test_the_latest_is_what_the_pointer_says(tmp_path):
  for step in (1, 2):
    save(tmp_path, step)
  checkpoints.point_at(str(tmp_path), 'model.ckpt-1')
  latest = tf.train.latest_checkpoint(str(tmp_path))
  assert latest == str(tmp_path / 'model.ckpt-1')
