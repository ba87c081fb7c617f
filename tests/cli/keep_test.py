"""`synth-mtf checkpoint keep`: nothing is removed if something may be lost."""

import re

import pytest

from synth_mtf.checkpoints.folder import Folder, is_complete
from synth_mtf.results import records
from synth_mtf.run import model_dir
from synth_mtf.storage import filesystem
from tests.checkpoints.saved import damage, save
from tests.cli import command
from tests.results import made_runs

TASK = 'synth_glue_rte_v002'


@pytest.fixture
def folder(tmp_path):
  """Checkpoints at steps 2, 4 and 6, the last of which is the latest."""
  save(tmp_path / 'run', 2, 4, 6)
  return tmp_path / 'run'


def content(folder):
  return {
    path.relative_to(folder): path.read_bytes()
    for path in folder.rglob('*')
    if path.is_file() and path.name != model_dir.LOCK
  }


def keep(folder, *words):
  return command.run('checkpoint', 'keep', folder, *words)


def refused(folder, *words):
  """The message of a command, and of its dry run, that changes nothing."""
  before = content(folder)
  status, out, err = keep(folder, *words)
  assert (status, out) == (2, ''), err
  assert keep(folder, *words, '--dry_run') == (2, '', err)
  assert content(folder) == before
  assert 'Nothing was removed.' in err
  return ' '.join(err.split())


def evaluated(folder, scores):
  """Writes the accuracy at each step."""
  results = [
    made_runs.result(task=TASK, metric='accuracy', step=step, value=value)
    for step, value in scores.items()
  ]
  records.add_results(str(folder / 'validation_eval'), results, {})


def test_the_last_one_stays(folder):
  status, out, _ = keep(folder)
  assert status == 0
  assert out.startswith('keep    model.ckpt-6 (last)\nremoved model.ckpt-2\n')
  assert Folder(str(folder)).checkpoints == ['model.ckpt-6']
  assert is_complete(f'{folder}/model.ckpt-6')


def test_a_damaged_last_one(folder):
  damage(folder, 6)
  message = refused(folder)
  assert 'damaged (truncated or altered): model.ckpt-6 (last).' in message
  assert 'move the files of model.ckpt-6 elsewhere' in message
  assert 'write the line `model_checkpoint_path: "model.ckpt-4"`' in message
  # As the message says:
  for path in folder.glob('model.ckpt-6.*'):
    path.unlink()
  Folder(str(folder)).point_at('model.ckpt-4')
  assert keep(folder)[0] == 0
  assert Folder(str(folder)).checkpoints == ['model.ckpt-4']


def test_a_changed_value(folder):
  (data,) = folder.glob('model.ckpt-6.data*')
  values = bytearray(data.read_bytes())
  values[5] ^= 1
  data.write_bytes(values)
  assert 'model.ckpt-6 (last)' in refused(folder)


def test_all_are_damaged(folder):
  damage(folder, 2, 4, 6)
  assert 'No other checkpoint here is complete.' in refused(folder)


def test_a_damaged_best_one(folder):
  evaluated(folder, {2: 50.0, 4: 75.0})
  damage(folder, 2)  # which is not kept
  best = '--best=GLUE RTE'
  damage(folder, 4)
  message = refused(folder, best)
  assert 'altered): model.ckpt-4 (best GLUE RTE). Nothing' in message
  assert 'leave out its --best' in message
  assert keep(folder)[0] == 0
  assert Folder(str(folder)).checkpoints == ['model.ckpt-6']


def test_one_of_two_data_files_is_gone(folder, tmp_path):
  for path in folder.glob('model.ckpt-6.*'):
    path.rename(path.with_name(path.name.replace('of-00001', 'of-00002')))
  assert 'model.ckpt-6 (last)' in refused(folder)


@pytest.mark.parametrize('damaged', [(), (6,)])
def test_later_ones_than_the_last(folder, damaged):
  Folder(str(folder)).point_at('model.ckpt-2')
  damage(folder, *damaged)
  message = refused(folder)
  assert 'names model.ckpt-2 as the last one' in message
  assert 'holds later checkpoints: model.ckpt-4, model.ckpt-6' in message
  newest = 'model.ckpt-4' if damaged else 'model.ckpt-6'
  assert f'To resume from {newest}, write the line `model_' in message
  assert ('(damaged: model.ckpt-6)' in message) == bool(damaged)


def test_what_is_unfinished(folder):
  """Older leftovers are removed; newer ones may still be arriving."""
  (folder / 'model.ckpt-8_temp').mkdir()
  newer = [
    'model.ckpt-8_temp/part-00000-of-00001.data-00000-of-00001',
    'model.ckpt-9.data-00000-of-00001',
  ]
  (folder / 'model.ckpt-2_temp').mkdir()
  older = ['model.ckpt-2_temp/part', 'model.ckpt-3.data-00000-of-00001']
  for name in (*newer, *older):
    (folder / name).write_text('bytes')
  before = content(folder)
  status, out, _ = keep(folder, '--dry_run')
  assert status == 0
  assert content(folder) == before
  assert out.splitlines() == [
    'keep    model.ckpt-6 (last)',
    'leave   model.ckpt-8 (unfinished)',
    'leave   model.ckpt-9 (unfinished)',
    'remove  model.ckpt-2',
    'remove  model.ckpt-3',
    'remove  model.ckpt-4',
  ]
  assert keep(folder)[0] == 0
  left = {str(path) for path in content(folder)}
  assert left == {
    'checkpoint',
    *newer,
    *(f'model.ckpt-6.{x}' for x in ('data-00000-of-00001', 'index', 'meta')),
  }


def test_a_command_that_was_killed_goes_on(folder, monkeypatch):
  """It is killed after it has removed an index."""
  remove = filesystem.remove

  def killed(path):
    remove(path)
    raise KeyboardInterrupt

  with monkeypatch.context() as patch:
    patch.setattr(filesystem, 'remove', killed)
    assert keep(folder)[0] != 0
  assert not (folder / 'model.ckpt-2.index').exists()
  assert list(folder.glob('model.ckpt-2.data*'))
  assert Folder(str(folder)).latest() == f'{folder}/model.ckpt-6'
  assert keep(folder)[0] == 0
  assert {path.name.split('.data')[0] for path in folder.glob('*data*')} == {
    'model.ckpt-6'
  }


def test_a_bucket_in_which_a_run_saves_meanwhile(folder, monkeypatch):
  """Buckets have no locks; `file://` stands for any scheme."""
  damaged = Folder.damaged
  Folder(str(folder)).point_at('model.ckpt-6')

  def slow(self, names):
    save(folder, 8)
    Folder(str(folder)).point_at('model.ckpt-8')  # a bucket has other paths
    return damaged(self, names)

  with monkeypatch.context() as patch:
    patch.setattr(Folder, 'damaged', slow)
    status, _, err = keep(f'file://{folder}')
  assert status == 2
  assert re.search('have changed meanwhile: a run may be\\s+training', err), err
  names = [f'model.ckpt-{step}' for step in (2, 4, 6, 8)]
  assert Folder(str(folder)).checkpoints == names
  assert keep(f'file://{folder}')[0] == 0
  assert Folder(str(folder)).checkpoints == names[-1:]
