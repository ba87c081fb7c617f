"""`synth-mtf table` on made folders; `demo_test` has it on runs."""

import contextlib
import csv
import io
import json

import pytest

import synth_mtf.progress  # noqa: F401  registers a name with gin
from synth_mtf import cli
from synth_mtf.paths import GENERATED
from synth_mtf.results import records
from tests.cli.command import run
from tests.results import made_runs

COLA = 'glue_cola_v002'
BASE = (
  *('d_model = 768', 'd_ff = 3072', 'num_layers = 12', 'num_heads = 12'),
  'd_kv = 64',
)


@pytest.fixture
def folders(tmp_path):
  """Two seeds of R and a run of V, as the stock command leaves them."""
  found = []
  for name, variant, score in (
    ('r_0', 'random', 10.0),
    ('r_1', 'random', 20.0),
    ('v', 'vanilla', 30.0),
  ):
    made_runs.trained(tmp_path / name, variant, BASE)
    scores = {'matthews_corrcoef': score}
    made_runs.evaluated(tmp_path / name, COLA, 100, scores)
    found.append(tmp_path / name)
  return found


class Terminal(io.StringIO):
  def isatty(self):
    return True


def test_the_first_table_of_a_run_says_that_it_builds_the_model(folders):
  def shown():
    with contextlib.redirect_stderr(Terminal()) as stderr:
      assert cli.main(['table', *map(str, folders)]) == 0
    return stderr.getvalue()

  first = shown()
  assert first.count('build the model of ') == len(folders)
  assert 'load TensorFlow ...' in first
  assert shown() == ''  # it is remembered


def test_without_a_terminal_it_prints_markdown(folders):
  status, out, _ = run('table', *folders)
  assert status == 0
  (row,) = [line for line in out.splitlines() if 'Syn (R) ' in line]
  assert '15.0±7.1' in row
  assert '**30.0**' in out
  _, plain, _ = run('table', *folders, '--no-bold')
  assert '30.0' in plain and '**' not in plain


@pytest.mark.sampled
@pytest.mark.parametrize(
  'form', ['terminal', 'markdown', 'csv', 'latex', 'json']
)
def test_every_format(folders, form):
  words = ['--layout=glue', '--paper', '--errors', '--checkpoint=best']
  status, out, _ = run('table', *folders, *words, f'--format={form}')
  assert status == 0
  if form == 'json':
    assert len(json.loads(out)['models']) == 2
  elif form == 'csv':
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row['CoLA'] for row in rows] == ['15.0', '30.0']
    assert [row['SST'] for row in rows] == ['', '']
  else:
    assert '41.2' in out and '53.1' in out


def test_generated_samples_never_stand_beside_the_paper(folders):
  records.add_results(
    f'{folders[0]}/validation_eval',
    [made_runs.result(task=COLA, data=GENERATED)],
    {},
  )
  status, out, _ = run('table', *folders)
  assert status == 0 and f'Data: {GENERATED}.' in out
  assert GENERATED not in run('table', *folders[1:])[1]
  status, out, err = run('table', *folders, '--paper')
  assert (status, out, err.count('\n')) == (2, '', 1)
  assert f'--paper: scores of {GENERATED} are not' in err


@pytest.mark.parametrize(
  ('words', 'message'),
  [
    (['nowhere'], 'nowhere does not exist'),
    (['--checkpoint=7'], 'all runs were evaluated (100)'),
    (['--checkpoint=worst'], 'expected best, last, or a step'),
    (['--layout=translation'], f'Evaluated tasks: {COLA}'),
  ],
)
def test_a_mistake_is_one_message(folders, words, message):
  status, _, err = run('table', *folders, *words)
  assert status == 2
  assert message in err
  assert err.count('\n') == 1
