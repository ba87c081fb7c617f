"""`synth-mtf replay` on runs of the real command, and on altered ones."""

import importlib.metadata
import json
import os
import shlex
import subprocess

import pytest

from synth_mtf import paths
from synth_mtf.results import records
from synth_mtf.run import origin
from tests.cli import command

FILES = (
  'sizes/tiny',
  'variants/random_vanilla',
  'runs/demo_{}',
  'runs/repeatable',
)
PARAMS = (
  "MIXTURE_NAME = 'synth_glue_rte_v002'",
  'num_layers = 1',
  'utils.run.batch_size = 4',
)
SEED = (
  'train_with_progress.seed = 0',
  'mesh_train_dataset_fn.seed = 0',
  'utils.run.train_steps = 3',
  'utils.run.init_checkpoint = None',
)


def test_a_package_of_another_name_is_left_out(monkeypatch):
  monkeypatch.setattr(importlib.metadata, 'distributions', list)
  assert {*origin.here(None)['versions']} <= {'python', 'synth-mtf', 'commit'}


def transformer(program, folder, run, *params):
  environment = {
    **os.environ,
    'SYNTH_MTF_DATA_DIR': paths.samples_path(),
    'SYNTH_MTF_VOCABULARY': 'bytes',
  }
  words = [program, 'transformer', '--model_dir', str(folder)]
  words += [f'--gin_file={name.format(run)}.gin' for name in FILES]
  words += [f'--gin_param={param}' for param in (*PARAMS, *params)]
  subprocess.run(words, env=environment, check=True)


@pytest.fixture(scope='module')
def trained(tmp_path_factory, programs):
  folder = tmp_path_factory.mktemp('it is') / "anna's run"
  transformer(command.PROGRAM, folder, 'finetune', *SEED)
  transformer(programs / 'synth-mtf', folder, 'evaluate')
  return folder


def scores(folder):
  found = records.read(str(folder / 'validation_eval'))
  lines = (folder / 'validation_eval' / records.PREDICTIONS).read_text()
  return [result for result, _ in found], lines


@pytest.mark.slow  # trains
def test_the_commands_make_the_run_again(trained, programs, tmp_path):
  again = tmp_path / 'again'
  status, script, _ = command.run('replay', trained)
  assert status == 0
  # Nothing differs: the only comment is the title.
  assert [line[:2] for line in script.splitlines()] == ['# ', 'cd', 'cd']
  subprocess.run(
    ['sh', '-e'],
    input=script.replace(shlex.quote(str(trained)), str(again)),
    text=True,
    check=True,
    env={**os.environ, 'PATH': f'{programs}:{os.environ["PATH"]}'},
  )
  assert scores(again) == scores(trained)


@pytest.mark.slow  # trains
def test_says_what_differs_and_prints_nothing_that_runs(trained):
  path = trained / records.ORIGINS
  (origin,) = json.loads(path.read_text())
  origin['versions']['tensorflow'] = '1.0\nrm everything'
  origin['versions']['commit'] = '0'
  origin['vocabulary']['inputs']['sha256'] = '0'
  origin['machine'] = None
  origin['environment'] = {
    'LD_PRELOAD': 'evil.so',
    'PYTHONHASHSEED': '0',
    'SYNTH_MTF_DATA_DIR': 'of-the-training-alone',
  }
  origin['command'] = 'rm -rf "$HOME" "`rm all`"'
  path.write_text(json.dumps([origin]))
  results = trained / 'validation_eval' / records.METRICS
  known = records.read(str(trained / 'validation_eval'))[0][0].digest
  results.write_text(results.read_text().replace(known, 'f00'))
  status, script, _ = command.run('replay', trained)
  assert status == 0
  comments = [x[2:] for x in script.splitlines() if x.startswith('#')]
  ours = [x for x in comments if ' there, ' in x]
  assert [x.partition(':')[0] for x in ours] == [
    'machine',
    'tensorflow',
    'commit',
    'vocabulary of inputs',
    'data of synth_glue_rte_v002, validation',
  ]
  assert ours[-1].endswith(f'f00 there, {known} here')
  commands = [x for x in script.splitlines() if not x.startswith('#')]
  assert shlex.split(commands[0]) == [
    'cd',
    os.getcwd(),
    '&&',
    'env',
    'PYTHONHASHSEED=0',
    'SYNTH_MTF_DATA_DIR=of-the-training-alone',
    't5_mesh_transformer',
    '-rf',
    '$HOME',
    '`rm all`',
  ]
  for text in ('[{"environment": 3}]', '[5]'):
    path.write_text(text)
    status, _, complaint = command.run('replay', trained)
    assert (status, 'damaged' in complaint) == (2, True)
