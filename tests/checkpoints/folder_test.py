"""A folder of checkpoints: which exist, are complete, and the latest."""

import os

import gin
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.checkpoints import folder as checkpoints, identity
from synth_mtf.checkpoints.files import Checkpoint
from synth_mtf.errors import UserError
from synth_mtf.host import events
from synth_mtf.results import runs

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
  assert checkpoints.unfinished(str(tmp_path)) == names[:1]


def test_what_killed_runs_leave(tmp_path):
  """It is unfinished, and can be cleared; what is whole stays."""
  save(tmp_path, 1, 2)
  whole = sorted(path.name for path in tmp_path.iterdir())
  left = [
    *('model.ckpt-3.data-00000-of-00001', 'model.ckpt-4_temp/part.data'),
    *('model.ckpt-2_temp/part', 'model.ckpt-5.index.tempstate123'),
    *('model.ckpt-3.meta', 'model.ckpt-6.index'),
  ]
  for name in left:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
  names = [f'model.ckpt-{step}' for step in (3, 4, 5, 6)]
  assert checkpoints.unfinished(str(tmp_path)) == names
  cleared = checkpoints.clear(str(tmp_path))
  assert sorted(cleared) == sorted(name.split('/')[0] for name in left)
  assert sorted(path.name for path in tmp_path.iterdir()) == whole
  (tmp_path / 'model.ckpt-2.data-00000-of-00001').unlink()
  assert checkpoints.unfinished(str(tmp_path)) == ['model.ckpt-2']
  assert checkpoints.clear(str(tmp_path)) == []


def test_data_that_lost_its_index_is_not_cleared(tmp_path):
  save(tmp_path, 1, 2)
  (tmp_path / 'model.ckpt-2.index').unlink()
  with pytest.raises(UserError, match='points at .*model.ckpt-2'):
    checkpoints.clear(str(tmp_path))
  assert (tmp_path / 'model.ckpt-2.data-00000-of-00001').exists()


@pytest.mark.parametrize('content', ['[' * 100_000, '5', '[5]', '{"a": [[]]}'])
@pytest.mark.parametrize('file', [identity.MODEL, identity.VOCABULARY])
def test_records_of_another_shape(tmp_path, file, content):
  (tmp_path / file).write_text(content)
  save(tmp_path, 1)
  checks = {
    identity.MODEL: lambda: identity.check_model(
      None, f'{tmp_path}/model.ckpt-1'
    ),
    identity.VOCABULARY: lambda: identity.recorded_vocabulary(str(tmp_path)),
  }
  with pytest.raises(UserError, match=f'{file} is damaged'):
    checks[file]()


@pytest.mark.parametrize(
  'read',
  [
    lambda folder: checkpoints.written(folder),
    lambda folder: events.read(folder),
    lambda folder: runs.read(folder),
    lambda folder: checkpoints.read_record(folder, 'metrics.json', dict),
    lambda folder: Checkpoint(f'{folder}/model.ckpt-1'),
  ],
)
@pytest.mark.parametrize(
  'name',
  [
    'operative_config.gin',
    'metrics.json',
    'model.ckpt-1.index',
    'events.out.x',
  ],
)
def test_a_pipe_hangs_nobody(tmp_path, name, read):
  os.mkfifo(tmp_path / name)
  with pytest.raises(UserError, match=f'{name} is a pipe or a device'):
    read(str(tmp_path))


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
  assert 'removed or renamed' in str(checkpoints.explain(error, f'{folder}/x'))
