"""The run folder: whose it is, and that nothing in it is lost."""

import dataclasses
import os

import pytest

from synth_mtf.demo.configuration import Configuration
from synth_mtf.demo.run_folder import RunFolder
from synth_mtf.errors import UserError

CONFIGURATION = Configuration(finetune_steps=7, gin_params=('a = 1',))


def content(folder):
  return {
    path: path.read_bytes() for path in folder.rglob('*') if path.is_file()
  }


def test_the_same_configuration_comes_back(tmp_path):
  folder = RunFolder(str(tmp_path / 'a' / 'b'), CONFIGURATION)
  folder.check()
  assert not (tmp_path / 'a').exists()
  with folder.opened():
    (folder.path / 'random').mkdir()
    folder.finish('random', 0, 'pretrain', {'loss': 1.5})
  again = RunFolder(str(tmp_path / 'a' / 'b'), CONFIGURATION)
  again.check()
  assert again.result('random', 0, 'pretrain') == {'loss': 1.5}
  assert again.result('random', 0, 'finetune') is None


def test_each_seed_has_a_folder_and_a_row_where_there_are_several(tmp_path):
  several = dataclasses.replace(CONFIGURATION, seeds=(0, 5))
  folder = RunFolder(str(tmp_path), several)
  with folder.opened():
    for seed in (0, 5):
      (tmp_path / 'random' / f'seed_{seed}').mkdir(parents=True)
      folder.finish('random', seed, 'evaluate', {'metrics': {'a/b': seed}})
    (tmp_path / 'dense' / 'seed_0').mkdir(parents=True)
    folder.finish('dense', 0, 'evaluate', {'metrics': {'a/b': 9}})
  rows = folder.rows(first=[])
  assert list(rows) == ['random'], 'dense has run with one of the seeds'
  assert [one['seed'] for one in rows['random']] == [0, 5]
  assert [one['metrics']['a/b'] for one in rows['random']] == [0, 5]


def test_another_configuration_is_refused_and_nothing_changes(tmp_path):
  with RunFolder(str(tmp_path), CONFIGURATION).opened():
    pass
  before = content(tmp_path)
  other = dataclasses.replace(CONFIGURATION, finetune_steps=8, seeds=(3,))
  with pytest.raises(UserError) as error:
    RunFolder(str(tmp_path), other).check()
  assert "another configuration's run" in str(error.value)
  assert 'finetune_steps: 7 there, 8 now' in str(error.value)
  assert 'seeds: [0] there, [3] now' in str(error.value)
  assert content(tmp_path) == before


@pytest.mark.parametrize(
  'make, message',
  [
    (lambda path: path.write_text('mine'), 'is a file'),
    (lambda path: path.joinpath('x').mkdir(parents=True), 'not a demo run'),
  ],
)
def test_what_is_not_ours_is_refused(tmp_path, make, message):
  path = tmp_path / 'out'
  make(path)
  with pytest.raises(UserError, match=message):
    RunFolder(str(path), CONFIGURATION).check()


def test_a_parent_that_is_a_file_is_refused(tmp_path):
  (tmp_path / 'file').write_text('mine')
  folder = RunFolder(str(tmp_path / 'file' / 'out'), CONFIGURATION)
  with pytest.raises(UserError, match='cannot be made'):
    folder.check()


def test_a_damaged_manifest_is_refused(tmp_path):
  (tmp_path / 'run.json').write_text('{"steps": 7,')
  with pytest.raises(UserError, match='does not parse'):
    RunFolder(str(tmp_path), CONFIGURATION).check()


def test_what_a_kill_leaves_before_the_manifest_is_no_obstacle(tmp_path):
  (tmp_path / '.lock').touch()
  (tmp_path / '.run.json.partial').write_text('{"st')
  folder = RunFolder(str(tmp_path), CONFIGURATION)
  folder.check()
  with folder.opened():
    folder.check()


def test_two_runs_at_once_are_refused(tmp_path):
  with (
    RunFolder(str(tmp_path), CONFIGURATION).opened(),
    pytest.raises(UserError, match='another demo is running'),
    RunFolder(str(tmp_path), CONFIGURATION).opened(),
  ):
    pass


def test_a_folder_without_write_permission_is_refused(tmp_path):
  tmp_path.chmod(0o500)
  if os.access(tmp_path, os.W_OK):
    pytest.skip('this user may write everywhere')
  with pytest.raises(UserError, match='permissions'):
    RunFolder(str(tmp_path), CONFIGURATION).check()
