"""A folder of checkpoints: which exist, are complete, and the latest."""

import gin
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.checkpoints import folder as checkpoints
from synth_mtf.errors import UserError

READING = tf.errors.DataLossError(None, None, 'Checksum does not match')


def save(folder, *steps):
  folder.mkdir(exist_ok=True)
  for step in steps:
    with tf.Graph().as_default(), tf.Session() as session:
      tf.get_variable('q', [3, 7])
      session.run(tf.global_variables_initializer())
      tf.train.Saver().save(session, str(folder / 'model.ckpt'), step)


def damage(folder, *steps):
  for step in steps:
    (data,) = folder.glob(f'model.ckpt-{step}.data*')
    data.write_bytes(data.read_bytes()[:3])


@pytest.mark.parametrize('pointer', [None, b'', b'\xff\xfe', b'nonsense'])
def test_a_lost_pointer(tmp_path, pointer):
  save(tmp_path, 9, 10)
  (tmp_path / 'checkpoint').unlink()
  if pointer is not None:
    (tmp_path / 'checkpoint').write_bytes(pointer)
  with pytest.raises(UserError, match='ckpt-10.*write the line `model_ch'):
    checkpoints.latest(str(tmp_path))


def test_the_latest_is_what_the_pointer_says(tmp_path):
  folder = tmp_path / 'run'
  assert checkpoints.latest(str(folder)) is None
  save(folder, 1, 2)
  checkpoints.point_at(str(folder), 'model.ckpt-1')
  assert checkpoints.latest(f'{folder}/') == str(folder / 'model.ckpt-1')
  for name, message in (
    ('model.ckpt-3', 'which is not there'),
    (f'{tmp_path}/model.ckpt-1', 'outside the folder'),
  ):
    checkpoints.point_at(str(folder), name)
    with pytest.raises(UserError, match=f'{message}.* holds model.ckpt-1, mod'):
      checkpoints.latest(str(folder))


def test_checkpoints_come_in_the_order_of_their_steps(tmp_path):
  assert checkpoints.written(str(tmp_path)) == []
  assert checkpoints.holding(str(tmp_path)) == ''
  save(tmp_path, 10, 9, 100)
  names = [f'model.ckpt-{step}' for step in (9, 10, 100)]
  assert checkpoints.written(str(tmp_path)) == names
  assert [checkpoints.step_of(name) for name in names] == [9, 10, 100]
  assert checkpoints.holding(str(tmp_path)).endswith(', '.join(names) + '.')
  (tmp_path / 'model.ckpt-9.index').unlink()
  assert checkpoints.written(str(tmp_path)) == names[1:]
  assert checkpoints.without_index(str(tmp_path)) == names[:1]


def test_damage_names_what_is_damaged_and_what_is_not(tmp_path):
  folder = str(tmp_path)
  save(tmp_path, 1, 2, 3)
  assert checkpoints.damage(folder) is None
  damage(tmp_path, 3)
  assert checkpoints.is_complete(f'{folder}/model.ckpt-2')
  assert not checkpoints.is_complete(f'{folder}/model.ckpt-3')
  message = str(checkpoints.damage(folder))
  assert f'damaged in {folder}: model.ckpt-3 (truncated' in message
  assert 'Complete: model.ckpt-1, model.ckpt-2.' in message
  assert '`model_checkpoint_path: "model.ckpt-2"` into' in message
  damage(tmp_path, 1, 2)
  assert 'Complete: none' in str(checkpoints.damage(folder))


@pytest.mark.parametrize(
  'error, explained',
  [(READING, True), (IndexError('x'), True), (ValueError('a size'), False)],
)
def test_errors_that_damage_explains(tmp_path, error, explained):
  folder, start = str(tmp_path), str(tmp_path / 'start' / 'model.ckpt-3')
  save(tmp_path, 3)
  save(tmp_path / 'start', 3)
  gin.bind_parameter('utils.run.init_checkpoint', start)
  assert checkpoints.explain(error, folder) is None
  damage(tmp_path, 3)
  message = 'model.ckpt-3 (truncated or altered)'
  assert (message in str(checkpoints.explain(error, folder))) == explained
  damage(tmp_path / 'start', 3)
  message = f'init_checkpoint = {start} is damaged'
  assert (message in str(checkpoints.explain(error, folder))) == explained
