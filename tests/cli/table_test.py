"""`synth-mtf table`: on made folders, and on runs of both commands."""

import csv
import io
import json
import pathlib
import subprocess
import sys

import pytest

import synth_mtf.progress  # noqa: F401  registers a name with gin
from synth_mtf import cli
from synth_mtf.analysis import records
from synth_mtf.analysis.tables import layouts
from synth_mtf.cli import table
from tests.analysis import made_runs
from tests.cli import t5_main

COMMAND = str(pathlib.Path(sys.executable).parent / 'synth-mtf')
COLA = 'glue_cola_v002'


@pytest.fixture
def folders(tmp_path):
  """Two seeds of R and a run of V, as the stock command leaves them."""
  found = []
  for name, variant, score in (
    ('r_0', 'random', 10.0),
    ('r_1', 'random', 20.0),
    ('v', 'vanilla', 30.0),
  ):
    made_runs.trained(tmp_path / name, variant)
    scores = {'matthews_corrcoef': score}
    made_runs.evaluated(tmp_path / name, COLA, 100, scores)
    found.append(str(tmp_path / name))
  return found


def run(*words):
  return cli.main(['table', *words])


def test_the_layouts_are_those_that_there_are():
  assert tuple(layouts.LAYOUTS) == table.LAYOUTS


def test_without_a_terminal_it_prints_markdown(folders, capsys):
  assert run(*folders) == 0
  shown = capsys.readouterr().out
  (row,) = [line for line in shown.splitlines() if 'Syn (R) ' in line]
  assert '15.0±7.1' in row
  assert '**30.0**' in shown


@pytest.mark.parametrize('form', table.FORMATS)
def test_every_format(folders, capsys, form):
  words = ['--layout=glue', '--paper', '--errors', '--checkpoint=best']
  assert run(*folders, *words, f'--format={form}') == 0
  shown = capsys.readouterr().out
  if form == 'json':
    assert len(json.loads(shown)['models']) == 2
  elif form == 'csv':
    rows = list(csv.DictReader(io.StringIO(shown)))
    assert [row['CoLA'] for row in rows] == ['15.0', '30.0']
    assert [row['SST'] for row in rows] == ['', '']
  else:
    assert '41.2' in shown and '53.1' in shown


@pytest.mark.parametrize(
  ('words', 'message'),
  [
    (['nowhere'], 'nowhere does not exist'),
    (['--checkpoint=7'], 'has not been evaluated at that step'),
    (['--checkpoint=worst'], 'expected best, last, or a step'),
    (['--layout=translation'], f'Evaluated were: {COLA}'),
  ],
)
def test_a_mistake_is_one_message(folders, capsys, words, message):
  assert run(*folders, *words) == 2
  error = capsys.readouterr().err.strip()
  assert message in error
  assert '\n' not in error


@pytest.mark.slow
def test_runs_of_a_demo_and_of_the_transformer_command(tmp_path, made_data):
  """Trains both; each number is compared with what the runs recorded."""
  task = 'synth_super_glue_cb_v102'
  data = ['--data_dir', str(made_data), '--vocabulary', 'bytes']
  demo = tmp_path / 'demo'
  words = '--variants vanilla --steps 2 --eval_examples 4 --seeds 0 1'
  done = subprocess.run(
    [COMMAND, 'demo', '--out', str(demo), *data, '--mixture', task]
    + [*words.split(), '--gin_param', 'num_layers = 1']
    + ['--gin_param', 'utils.run.batch_size = 4'],
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 0, done.stderr
  alone = tmp_path / 'alone'
  flags = [
    *(f'{flag}={value}' for flag, value in zip(data[::2], data[1::2])),
    f'--model_dir={alone}',
    '--gin_file=sizes/tiny.gin',
    '--gin_file=variants/random_vanilla.gin',
  ]
  settings = [
    '--gin_file=runs/cpu.gin',
    '--gin_param=num_layers = 1',
    '--gin_param=utils.run.batch_size = 4',
    f"--gin_param=MIXTURE_NAME = '{task}'",
  ]
  for file, more in (
    (
      'finetune_en_mix',
      ['utils.run.init_checkpoint = None', 'utils.run.train_steps = 2'],
    ),
    ('eval_en_mix', ['mesh_eval_dataset_fn.num_eval_examples = 4']),
  ):
    status = t5_main.synth_mtf_transformer(
      *flags,
      f'--gin_file=runs/{file}.gin',
      *settings,
      *(f'--gin_param={one}' for one in more),
    )
    assert status == 0
  made = subprocess.run(
    [COMMAND, 'table', str(demo), str(alone), '--format=json'],
    capture_output=True,
    text=True,
    check=False,
  )
  assert made.returncode == 0, made.stderr
  content = json.loads(made.stdout)
  assert [model['label'] for model in content['models']] == [
    'T5 (V)',
    'Syn (R+V)',
  ]
  v, rv = content['models']
  told = json.loads((demo / 'metrics.json').read_text())['models']['vanilla']
  for number, seed in enumerate(told):
    for name, metric in (
      ('CB F1', 'mean_3class_f1'),
      ('CB accuracy', 'accuracy'),
    ):
      found = v['numbers'][name]['runs'][number]
      assert found['value'] == seed['metrics'][f'{task}/{metric}']
      assert (
        found['standard_error'] == (seed['standard_errors'][f'{task}/{metric}'])
      )
      assert found['n'] == seed['n'][task] == 4
    (perplexity,) = [k for k in v['numbers'] if k.startswith('Log ppl')]
    assert v['numbers'][perplexity]['runs'][number]['value'] == pytest.approx(
      seed['log_perplexity']
    )
    assert v['numbers']['Params']['runs'][number]['value'] == seed['parameters']
    assert v['numbers']['Steps/s']['runs'][number]['value'] == pytest.approx(
      seed['steps_per_second']
    )
  recorded = {
    (result.metric, result.step): result.value
    for result, _ in records.read(str(alone / 'validation_eval'))
  }
  assert rv['numbers']['CB accuracy']['mean'] == recorded['accuracy', 2]
  # Without metrics.json, the same comes out of T5's own files.
  kept = rv['numbers']['CB accuracy']['runs'][0]
  (alone / 'validation_eval' / 'metrics.json').unlink()
  again = subprocess.run(
    [COMMAND, 'table', str(alone), '--format=json'],
    capture_output=True,
    text=True,
    check=True,
  )
  (rv,) = json.loads(again.stdout)['models']
  found = rv['numbers']['CB accuracy']['runs'][0]
  assert found['value'] == pytest.approx(kept['value'], rel=1e-6)
  assert found['standard_error'] == pytest.approx(kept['standard_error'])
  assert {**found, 'value': 0, 'standard_error': 0} == {
    **kept, 'value': 0, 'standard_error': 0,
  }  # fmt: skip
