"""`synth-mtf replay` on runs of the real command, and on altered ones."""

import importlib.metadata
import json
import os
import re
import shlex
import subprocess

import pytest

from synth_mtf import paths
from synth_mtf.results import records
from synth_mtf.run import origin
from synth_mtf.tasks import inspection
from tests.cli import command
from tests.results import made_runs

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


@pytest.fixture
def runs(tmp_path, monkeypatch, made_data):
  """Runs that were evaluated on one folder of data, in a folder with it."""
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'data').symlink_to(made_data)
  (tmp_path / 'empty').mkdir()
  with monkeypatch.context() as patch:
    patch.setenv('SYNTH_MTF_DATA_DIR', 'data')
    result = made_runs.result(
      digest=inspection.digest(made_runs.COLA, 'validation')
    )
  here = {**origin.here(None), 'machine': 'a\nsupercomputer'}
  origins = {
    'relative': [
      {
        **here,
        'date': date,
        'command': f'synth-mtf transformer --seed={date}',
        'environment': {'SYNTH_MTF_DATA_DIR': 'data'},
      }
      for date in ('1', '2')
    ],
    'unset': [{**here, 'environment': {}, 'folder': str(made_data)}],
    'older': [],
  }
  for name, made in origins.items():
    evaluated = tmp_path / name / 'validation_eval'
    evaluated.mkdir(parents=True)
    (tmp_path / name / records.ORIGINS).write_text(json.dumps(made))
    records.add_results(str(evaluated), [result], {'versions': {}, 'gin': ''})
  return tmp_path


def replay(*names):
  """What `replay` prints of runs, without the machine here."""
  status, script, _ = command.run('replay', *names)
  assert status == 0
  return [line.partition(' there, ')[0] for line in script.splitlines()]


def test_each_command_comes_once_and_so_does_what_differs(runs, monkeypatch):
  """The data are found in the folder of the run, wherever one is now."""
  monkeypatch.chdir(runs / 'empty')
  assert replay('../relative') == [
    '# relative, ../relative',
    *(
      f'cd {runs} && env SYNTH_MTF_DATA_DIR=data synth-mtf transformer '
      f'--seed={number}'
      for number in (1, 2)
    ),
    '# machine: a supercomputer',
  ]


def have_other_data(*names):
  """Which of the runs, by what `replay` prints."""
  found = []
  name = ''
  for line in replay(*names):
    if title := re.fullmatch(r'# (\w+), \1', line):
      name = title[1]
    elif line.startswith('# data of synth_glue_cola_v002, validation: '):
      found.append(name)
  return found


def test_data_are_those_of_the_user_or_else_of_each_run(runs, monkeypatch):
  every = ('relative', 'unset', 'older')
  assert have_other_data(*every) == ['unset', 'older']
  assert have_other_data('relative', 'older') == ['older']
  monkeypatch.setenv('SYNTH_MTF_DATA_DIR', str(runs / 'data'))
  assert have_other_data(*every) == []
  monkeypatch.setenv('SYNTH_MTF_DATA_DIR', str(runs / 'empty'))
  assert have_other_data(*every) == [*every]


def test_origins_that_are_missing_or_damaged(runs, monkeypatch):
  monkeypatch.setenv('SYNTH_MTF_DATA_DIR', str(runs / 'data'))
  assert replay('older') == [
    '# older, older',
    '# made by an older version, whose commands are not recorded',
  ]
  for origins in (
    [5],
    [{'environment': 3}],
    [{'environment': {}, 'command': 3}],
    [{'environment': {}, 'command': "'"}],
  ):
    (runs / 'older' / records.ORIGINS).write_text(json.dumps(origins))
    status, _, complaint = command.run('replay', 'older')
    assert status == 2
    assert 'older has a damaged origin' in complaint
