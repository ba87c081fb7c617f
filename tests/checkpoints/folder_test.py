"""A folder of checkpoints: which exist, are complete, and the latest."""

import os

import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.checkpoints import identity
from synth_mtf.checkpoints.files import Checkpoint
from synth_mtf.checkpoints.folder import Folder, is_complete, step_of
from synth_mtf.errors import UserError
from synth_mtf.host import events
from synth_mtf.results import runs
from synth_mtf.storage import filesystem, json_files
from tests.checkpoints.saved import damage, save


@pytest.mark.parametrize('pointer', [None, b'', b'\xff\xfe', b'nonsense'])
def test_a_lost_pointer(tmp_path, pointer):
  save(tmp_path, 9, 10)
  (tmp_path / 'checkpoint').unlink()
  if pointer is not None:
    (tmp_path / 'checkpoint').write_bytes(pointer)
  with pytest.raises(UserError, match='ckpt-10.*write the line `model_ch'):
    Folder(str(tmp_path)).latest()


def test_the_latest_is_what_the_pointer_says(tmp_path):
  folder = tmp_path / 'run'
  assert Folder(str(folder)).latest() is None
  save(folder, 1, 2)
  Folder(str(folder)).point_at('model.ckpt-1')
  assert Folder(f'{folder}/').latest() == str(folder / 'model.ckpt-1')
  for name, message in (
    ('model.ckpt-3', 'which is not there'),
    (f'{tmp_path}/model.ckpt-1', 'outside the folder'),
  ):
    Folder(str(folder)).point_at(name)
    with pytest.raises(UserError, match=f'{message}.* holds model.ckpt-1, mod'):
      Folder(str(folder)).latest()


@pytest.mark.parametrize(
  'foreign',
  [
    '{other}/model.ckpt-7',
    '{other}/model.ckpt-*',
    '../other/model.ckpt-7',
    '*/../model.ckpt-1*',
    'model.ckpt-*',
    'model.ckpt-1/../../other/model.ckpt-7',
  ],
)
def test_only_its_own_checkpoints_are_listed(tmp_path, foreign):
  folder, other = tmp_path / 'run', tmp_path / 'other'
  save(folder, 1, 2)
  save(other, 7)
  name = foreign.format(other=other)
  own = f'{folder}/model.ckpt-1'  # as TensorFlow lists it
  pointer = folder / 'checkpoint'
  pointer.write_text(
    'model_checkpoint_path: "model.ckpt-2"\n'
    f'all_model_checkpoint_paths: "{own}"\n'
    f'all_model_checkpoint_paths: "{name}"\n'
    'all_model_checkpoint_paths: "model.ckpt-2"\n'
  )
  assert Folder(str(folder)).forget_others() == [str(folder / name)]
  state = tf.train.get_checkpoint_state(str(folder))
  assert state.all_model_checkpoint_paths == [own, f'{folder}/model.ckpt-2']
  assert Folder(str(folder)).latest() == f'{folder}/model.ckpt-2'
  before = pointer.read_bytes()
  assert Folder(str(folder)).forget_others() == []
  assert pointer.read_bytes() == before


def test_a_latest_checkpoint_that_is_a_pattern(tmp_path):
  """TensorFlow's saver would remove all that the pattern matches."""
  save(tmp_path, 1)
  (tmp_path / 'model.ckpt-1*.index').touch()
  Folder(str(tmp_path)).point_at('model.ckpt-1*')
  with pytest.raises(UserError, match='is not named model.ckpt-<step>'):
    Folder(str(tmp_path)).latest()


def test_checkpoints_come_in_the_order_of_their_steps(tmp_path):
  folder = Folder(str(tmp_path))
  assert folder.checkpoints == []
  assert folder.summary() == ''
  save(tmp_path, 10, 9, 100)
  names = [f'model.ckpt-{step}' for step in (9, 10, 100)]
  folder = Folder(str(tmp_path))
  assert folder.checkpoints == names
  assert [step_of(name) for name in names] == [9, 10, 100]
  assert folder.summary().endswith(', '.join(names) + '.')
  (tmp_path / 'model.ckpt-9.index').unlink()
  folder = Folder(str(tmp_path))
  assert folder.checkpoints == names[1:]
  assert folder.unfinished == names[:1]


def test_a_folder_is_listed_once(tmp_path, monkeypatch):
  """Later checkpoints are those of a new object."""
  save(tmp_path, 1)
  listed = []
  names = filesystem.names

  def counted(path):
    listed.append(path)
    return names(path)

  monkeypatch.setattr(filesystem, 'names', counted)
  folder = Folder(str(tmp_path))
  save(tmp_path, 2)
  assert folder.checkpoints == ['model.ckpt-1']
  assert folder.unfinished == []
  assert folder.summary() == f' {tmp_path} holds model.ckpt-1.'
  assert folder.damage() is None
  assert listed == [str(tmp_path)]
  assert Folder(str(tmp_path)).checkpoints == ['model.ckpt-1', 'model.ckpt-2']


def test_what_killed_runs_leave(tmp_path):
  """It is unfinished, and can be cleared; what is whole stays."""
  save(tmp_path, 1, 2)
  whole = sorted(path.name for path in tmp_path.iterdir())
  left = [
    'model.ckpt-3.data-00000-of-00001',
    'model.ckpt-4_temp/part.data',
    'model.ckpt-2_temp/part',
    'model.ckpt-5.index.tempstate123',
    'model.ckpt-3.meta',
    'model.ckpt-6.index',
  ]
  for name in left:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
  names = [f'model.ckpt-{step}' for step in (3, 4, 5, 6)]
  folder = Folder(str(tmp_path))
  assert folder.unfinished == names
  cleared = folder.clear()
  assert sorted(cleared) == sorted(name.split('/')[0] for name in left)
  assert sorted(path.name for path in tmp_path.iterdir()) == whole
  (tmp_path / 'model.ckpt-2.data-00000-of-00001').unlink()
  folder = Folder(str(tmp_path))
  assert folder.unfinished == ['model.ckpt-2']
  assert folder.clear() == []


def test_data_that_lost_its_index_is_not_cleared(tmp_path):
  save(tmp_path, 1, 2)
  (tmp_path / 'model.ckpt-2.index').unlink()
  with pytest.raises(UserError, match='points at .*model.ckpt-2'):
    Folder(str(tmp_path)).clear()
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
    lambda folder: Folder(folder),
    lambda folder: events.read(folder),
    lambda folder: runs.read(folder),
    lambda folder: json_files.read(folder, 'metrics.json', dict),
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


def test_a_name_that_is_not_utf_8(tmp_path):
  (tmp_path / os.fsdecode(b'caf\xe9')).mkdir()
  with pytest.raises(UserError, match='caf.* is not a name in UTF-8: rename'):
    Folder(str(tmp_path))


def test_damage_names_what_is_damaged_and_what_is_not(tmp_path):
  folder = str(tmp_path)
  save(tmp_path, 1, 2, 3)
  assert Folder(folder).damage() is None
  damage(tmp_path, 3)
  assert is_complete(f'{folder}/model.ckpt-2')
  assert not is_complete(f'{folder}/model.ckpt-3')
  message = str(Folder(folder).damage())
  assert f'damaged in {folder}: model.ckpt-3 (truncated' in message
  assert 'Complete: model.ckpt-1, model.ckpt-2.' in message
  assert '`model_checkpoint_path: "model.ckpt-2"` into' in message
  damage(tmp_path, 1, 2)
  assert 'Complete: none' in str(Folder(folder).damage())


def test_a_checkpoint_is_opened_without_a_look_at_the_others(
  tmp_path, monkeypatch
):
  """Else, a folder of thousands would take minutes."""
  save(tmp_path, 1, 2, 3, 11)
  looked_at: list[str] = []
  monkeypatch.setattr(
    'synth_mtf.storage.filesystem._check_entry', looked_at.append
  )
  Checkpoint(f'{tmp_path}/model.ckpt-1')
  names = {os.path.basename(path) for path in looked_at}
  assert 'model.ckpt-1.index' in names
  assert all(name.startswith('model.ckpt-1.') for name in names)


def test_many_checkpoints_are_a_short_message(tmp_path):
  for step in range(100, 400):
    (tmp_path / f'model.ckpt-{step}.index').touch()
  message = Folder(str(tmp_path)).damage()
  assert message and 'damaged in ' in message
  assert '290 more and model.ckpt-390, ' in message
  assert message.count('model.ckpt-') < 15


def test_what_a_run_removes_meanwhile_is_not_damaged(tmp_path):
  save(tmp_path, 1, 2, 3)
  opened = Checkpoint(f'{tmp_path}/model.ckpt-1')
  earlier = Folder(str(tmp_path))
  for path in tmp_path.glob('model.ckpt-[12].*'):
    path.unlink()
  message = 'model.ckpt-1 was removed while it was read.*holds model.ckpt-3'
  with pytest.raises(UserError, match=message):
    opened.verify()
  assert earlier.damage() is None
