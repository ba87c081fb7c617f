"""Flags that name what cannot be read: one message, never a traceback.

TensorFlow has no file system for `s4://`: each of its answers is an error, as
those of a bucket without permission are.
"""

import os
import re

import pytest

from synth_mtf.errors import UserError
from synth_mtf.tasks import data_settings
from tests.cli import command, t5_main
from tests.results import made_runs

BUCKET = 's4://nobody/a'
CAUSE = "cannot be read: File system scheme 's4' not implemented"
SIZE = '--gin_file=sizes/tiny.gin'
GIN_FILE = '--gin_file (or an include in one)'


@pytest.mark.parametrize(
  'words',
  [
    f'tasks --data_dir={BUCKET}',
    f'tasks synth_glue_cola_v002 --data_dir={BUCKET}',
    f'tasks --task_file={BUCKET}.yaml',
    f'vocabulary --data_dir={BUCKET} --out=a.model',
    f'cache --task=synth_glue_cola_v002 --data_dir={BUCKET} --out=a '
    '--vocabulary=bytes',
    f'checkpoint inspect {BUCKET}',
    f'checkpoint inspect {BUCKET}/model.ckpt-1',
    f'checkpoint compare {BUCKET} {BUCKET}',
    f'checkpoint convert {BUCKET} a {SIZE}',
    f'checkpoint keep {BUCKET}',
    f'checkpoint export --to=hf {BUCKET} a',
    f'checkpoint import --from=hf {BUCKET} a',
    f'table {BUCKET}',
    f'attention {BUCKET} --out=a.npz',
    f'plot {BUCKET} --out=a',
    f'report {BUCKET} --out=a.html',
    f'replay {BUCKET}',
  ],
)
def test_a_bucket_that_cannot_be_read(words, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  status, _, error = command.run(*words.split())
  assert (status, BUCKET in error, CAUSE in error) == (2, True, True), error
  for flag in re.findall(f'(--[a-z_]+)={BUCKET}', words):
    assert f'{flag} (' in error
  assert not os.listdir()


def test_a_file_of_a_task_that_cannot_be_read(tmp_path):
  """The line of the task file names it, not the flag of the task file."""
  path = tmp_path / 'mine.yaml'
  path.write_text(
    'name: mine\ninputs: "{a}"\ntargets: "{b}"\nmetrics: [accuracy]\n'
    f'files:\n  train: {BUCKET}.tsv\n'
  )
  _, _, error = command.run('tasks', 'mine', f'--task_file={path}')
  start = f'synth-mtf: error: {path}:5: {BUCKET}.tsv {CAUSE}'
  assert error.startswith(start), error


def test_a_vocabulary_in_a_bucket_that_cannot_be_read():
  status, findings, _ = command.run('doctor', f'--vocabulary={BUCKET}.model')
  assert (status, CAUSE in findings) == (1, True), findings


@pytest.mark.parametrize(
  'word, setting',
  [
    (f'--gin_file={BUCKET}.gin', GIN_FILE),
    (f'--gin_location_prefix={BUCKET}', GIN_FILE),
    (f'--data_dir={BUCKET}', data_settings.name_of('data_dir')),
    (
      f'--task_data_dirs=*={BUCKET}',
      data_settings.name_of('task_data_dirs'),
    ),
    (f'--cache_dir={BUCKET}', data_settings.name_of('cache_dir')),
    (f'--task_file={BUCKET}.yaml', data_settings.name_of('task_file')),
    (
      f"--gin_param=utils.run.init_checkpoint = '{BUCKET}/model.ckpt-1'",
      'utils.run.init_checkpoint',
    ),
  ],
)
def test_a_run_whose_files_cannot_be_read(word, setting, tmp_path):
  words = [f'--model_dir={tmp_path}/run', '--vocabulary=bytes']
  words += [*t5_main.REPEATABLE, word]
  if 'gin_location_prefix' in word:
    words.append('--gin_file=of_nobody.gin')
  start = re.escape(f'{setting}: {BUCKET}')
  with pytest.raises(UserError, match=f'^{start}') as caught:
    t5_main.synth_mtf_transformer(*words)
  assert CAUSE in str(caught.value)


@pytest.mark.parametrize(
  'name, words',
  [
    ('operative_config.gin', 'table {}'),
    ('metrics.json', 'table {}'),
    ('checkpoint', 'checkpoint inspect {}'),
    ('origins.json', 'replay {}'),
    ('mine.gin', 'cost --gin_file={}/mine.gin'),
    ('config.json', 'checkpoint import --from=hf {} {}/new'),
  ],
)
def test_files_of_5_gb_are_not_read(name, words, tmp_path):
  """Sparse ones, as `truncate -s 5G` makes them."""
  made_runs.trained(tmp_path / 'run')
  path = tmp_path / 'run' / name
  path.touch()
  os.truncate(path, 5 << 30)
  status, _, error = command.run(*words.replace('{}', f'{path.parent}').split())
  assert status == 2, error
  assert 'MemoryError' not in error
  assert '1,073,741,824' not in error  # far less is read
  assert '5,368,709,120 bytes' in error or 'missing or damaged' in error
