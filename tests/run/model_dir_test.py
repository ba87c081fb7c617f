"""Folders that will not do as --model_dir, and their lock."""

import contextlib
import fcntl
import os
import pathlib

import gin
import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.checkpoints.files import write
from synth_mtf.checkpoints.folder import Folder
from synth_mtf.errors import UserError
from synth_mtf.run import model_dir
from synth_mtf.storage import atomic

DAMAGED = tf.errors.DataLossError(None, None, 'Checksum does not match')


@pytest.mark.parametrize(
  ('name', 'message'),
  [
    ('run[v1]', 'takes the name for a pattern'),
    ('run*1', 'takes the name for a pattern'),
    ('run?', 'takes the name for a pattern'),
    ('run\\1', 'takes the name for a pattern'),
    ('', 'is empty'),
    (' ', 'is empty'),
    ('~/x', f'Write {os.path.expanduser("~")}/x'),
    ('file', 'file is not a folder'),
    ('file/below', 'file is not a folder'),
    ('link', 'link is a broken link'),
    ('link/below', 'link is a broken link'),
  ],
)
def test_what_is_refused(tmp_path, monkeypatch, name, message):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'file').touch()
  (tmp_path / 'link').symlink_to(tmp_path / 'nowhere')
  with pytest.raises(UserError, match=message):
    model_dir.check(name)
  assert {path.name for path in tmp_path.iterdir()} == {'file', 'link'}


@pytest.mark.parametrize(
  ('name', 'kind'),
  [('log', 'file'), (model_dir.LOCK, 'file'), ('commands', 'folder')],
)
def test_what_a_run_cannot_write_to_is_named(tmp_path, name, kind):
  path = tmp_path / name
  path.touch() if kind == 'folder' else path.mkdir()
  with pytest.raises(
    UserError, match=f'{name} is not a {kind}, as which a run'
  ):
    model_dir.check(str(tmp_path))


@pytest.mark.parametrize(
  ('name', 'files', 'is_kept'),
  [
    ('a/new', ['log', 'commands/command'], False),
    ('a/new', ['log', 'model.json'], True),
    ('a/new', ['log', model_dir.LOCK], True),  # another run's
  ],
)
def test_a_refused_run_leaves_no_new_folder(tmp_path, name, files, is_kept):
  folder = tmp_path / name
  with (
    pytest.raises(UserError, match='is empty'),
    model_dir.opened(str(folder)),
  ):
    for file in files:
      (folder / file).parent.mkdir(exist_ok=True)
      (folder / file).touch()
    if model_dir.LOCK in files:
      model_dir.check('')
    with model_dir.locked(str(folder)):
      model_dir.check('')
  found = set(folder.rglob('*'))
  assert found >= {folder / file for file in files} if is_kept else not found


def test_it_is_made(tmp_path):
  (tmp_path / 'folder').mkdir()
  (tmp_path / 'link').symlink_to(tmp_path / 'folder')
  folder = tmp_path / 'link' / 'run.2'
  for _ in range(2):
    model_dir.check(str(folder))
  assert not list(folder.iterdir())


@pytest.mark.parametrize('folder', ['/proc', '/proc/nobody/run'])
def test_one_that_cannot_be_written(folder):
  # Not even by root, to whom permissions say otherwise.
  with pytest.raises(UserError, match='mine: .*/proc does not accept .*. Give'):
    atomic.check_writable(folder, 'mine')
  if folder != '/proc':
    with pytest.raises(UserError, match='^--model_dir: .* cannot'):
      model_dir.check(folder)


def locked(folder):
  """Whether somebody holds the lock; one of this process's files may ask."""
  with open(folder / model_dir.LOCK) as file:
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
      return True
  return False


def test_the_lock_is_held_until_it_is_released(tmp_path):
  (tmp_path / model_dir.LOCK).write_text('process 123456789 on a machine' * 9)
  for _ in range(2):
    with model_dir.locked(str(tmp_path)) as is_locked:
      assert is_locked and locked(tmp_path)
      (line,) = (tmp_path / model_dir.LOCK).read_text().splitlines()
      assert line.startswith(f'process {os.getpid()} on ')
    assert not locked(tmp_path)


def test_a_lock_that_a_refused_run_made_goes_with_it(tmp_path):
  with pytest.raises(UserError), model_dir.locked(str(tmp_path)):
    model_dir.check('')
  assert not [*tmp_path.iterdir()]
  (tmp_path / model_dir.LOCK).touch()
  with pytest.raises(UserError), model_dir.locked(str(tmp_path)):
    model_dir.check('')
  assert [*tmp_path.iterdir()] == [tmp_path / model_dir.LOCK]


@pytest.mark.parametrize(
  'name', ['training.lock', 'log', 'model.ckpt-3_temp', 'validation_eval/x']
)
def test_a_link_is_not_written_through(tmp_path, name):
  (tmp_path / 'victim').write_text('precious')
  folder = tmp_path / 'run'
  folder.mkdir()
  (folder / 'model.ckpt-1.index').symlink_to(tmp_path / 'victim')
  model_dir.check(str(folder))
  (folder / name).parent.mkdir(exist_ok=True)
  (folder / name).symlink_to(tmp_path / 'victim')
  refused = pytest.raises(UserError, match=f'{name} is a link to .*victim')
  with refused:
    model_dir.check(str(folder))
  with refused, model_dir.locked(str(folder)):
    pass
  assert (tmp_path / 'victim').read_text() == 'precious'


def test_only_the_holder_of_the_lock_clears(tmp_path):
  left = tmp_path / 'model.ckpt-3.data-00000-of-00001'
  left.touch()
  with open(tmp_path / model_dir.LOCK, 'w') as other:
    fcntl.flock(other, fcntl.LOCK_EX)
    refused = pytest.raises(UserError, match='another run')
    with refused, model_dir.locked(str(tmp_path)):
      pass
  assert left.exists()
  with model_dir.locked(str(tmp_path)):
    folder = Folder(str(tmp_path))
    assert folder.unfinished
    model_dir.clear(folder)
  assert not left.exists() and not folder.unfinished


def test_a_second_run_is_refused(tmp_path):
  with open(tmp_path / model_dir.LOCK, 'w') as other:
    fcntl.flock(other, fcntl.LOCK_EX)
    print('process 7 on some machine', file=other, flush=True)
    with (
      pytest.raises(
        UserError, match=r'another run is training in .* \(process 7 on some'
      ),
      model_dir.locked(str(tmp_path)),
    ):
      pass
  with model_dir.locked(str(tmp_path)):
    pass


def test_what_a_run_changes_is_not_read(tmp_path):
  model_dir.require_unlocked(str(tmp_path))
  with model_dir.locked(str(tmp_path)):
    message = rf'a run is training in .* \(process {os.getpid()} on .*-1000'
    with pytest.raises(UserError, match=message):
      model_dir.require_unlocked(str(tmp_path))
  model_dir.require_unlocked(str(tmp_path))
  model_dir.require_unlocked('ram://bucket/run')


@pytest.mark.parametrize(
  ('folder', 'cause'),
  [
    ('file:///proc/nobody/run', '/proc/nobody.*; No such file'),
    ('s4://nobody/run', "scheme 's4' not implemented"),
  ],
)
def test_a_bucket_that_cannot_be_written(folder, cause):
  with pytest.raises(
    UserError,
    match=f'^--model_dir: {folder} cannot be written: .*{cause}.*Check its',
  ):
    model_dir.check(folder)


def test_a_bucket_is_written_through_tensorflow():
  """`ram://` stands for any scheme of its file systems."""
  model_dir.check('ram://bucket/run')
  assert tf.io.gfile.listdir('ram://bucket/run') == []
  with model_dir.locked('ram://bucket/run') as is_locked:
    assert not is_locked


def truncate(checkpoint):
  path = pathlib.Path(f'{checkpoint}.data-00000-of-00001')
  path.write_bytes(path.read_bytes()[:3])


@pytest.mark.parametrize(
  'error, explained',
  [(DAMAGED, True), (IndexError('x'), True), (ValueError('a size'), False)],
)
def test_errors_that_damage_explains(tmp_path, error, explained):
  folder = str(tmp_path)
  write(folder, 3, {'q': np.ones([3, 7])})
  start = write(f'{folder}/start', 3, {'q': np.ones([3, 7])})
  gin.bind_parameter('utils.run.init_checkpoint', start)
  assert model_dir.explain(error, folder) is None
  truncate(f'{folder}/model.ckpt-3')
  message = 'model.ckpt-3 (truncated or altered)'
  assert (message in str(model_dir.explain(error, folder))) == explained
  truncate(start)
  message = f'init_checkpoint = {start} is damaged'
  assert (message in str(model_dir.explain(error, folder))) == explained
  assert 'removed or renamed' in str(model_dir.explain(error, f'{folder}/x'))


@pytest.mark.parametrize(
  'stored, expected',
  [
    (['w_slot_vr', 'w_slot_vc'], 'those of AdafactorOptimizer: continue'),
    ([], 'those of no optimizer: continue'),
  ],
)
def test_slots_of_another_optimizer_are_named(tmp_path, stored, expected):
  path = str(tmp_path / 'model.ckpt-1')
  with graph_of('w', *stored), tf.Session() as session:
    session.run(tf.global_variables_initializer())
    tf.train.Saver().save(session, path)
  with (
    graph_of('w', 'w/adam_m', 'w/adam_v'),
    tf.Session() as session,
    pytest.raises(tf.errors.NotFoundError) as raised,
  ):
    tf.train.Saver().restore(session, path)
  message = model_dir.explain(raised.value, str(tmp_path))
  assert message is not None
  assert message.startswith(
    f'{path} lacks the slot variables of AdamWeightDecayOptimizer '
    '(utils.run.optimizer): w/adam_m, w/adam_v. It has '
  )
  assert expected in message
  assert f"utils.run.init_checkpoint = '{path}'" in message


@contextlib.contextmanager
def graph_of(*names):
  """Yields a graph with these variables."""
  with tf.Graph().as_default() as graph:
    for name in names:
      tf.get_variable(name, [2], use_resource=True)
    yield graph


def test_a_missing_weight_is_not_a_slot(tmp_path):
  path = str(tmp_path / 'model.ckpt-1')
  with tf.Graph().as_default(), tf.Session() as session:
    tf.get_variable('w', [2], use_resource=True)
    session.run(tf.global_variables_initializer())
    tf.train.Saver().save(session, path)
  error = RuntimeError('Key w_new not found in checkpoint')
  assert model_dir.explain(error, str(tmp_path)) is None
