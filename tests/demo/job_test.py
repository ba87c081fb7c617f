"""The main job: what is done in which order, and what is not done again.

What the workers do is tested with `work` and `workers`; here each answers at
once, in this process, and takes as long as the test says.
"""

import dataclasses
import io
import json
import pathlib
import tempfile
import time
from typing import Any

import pytest

from synth_mtf.demo import workers
from synth_mtf.demo.configuration import Configuration
from synth_mtf.demo.job import Job
from synth_mtf.errors import UserError
from synth_mtf.results.printing import Grid, Piece, Row
from synth_mtf.run.console import Console, TrainingProgress

SHORT = Configuration(pretrain_steps=20, finetune_steps=10)
GRID = Grid(
  'Results', ['Steps/s'], [Row('Syn (R)', [[Piece('2.5', best=True)]])], []
)
STAGES = ['pretrain', 'perplexity', 'finetune', 'evaluate']
FOUND: dict[str, dict[str, Any]] = {
  'pretrain': {'steps_per_second': 2.54, 'parameters': 7},
  'perplexity': {'log_perplexity': 2.125, 'tokens': 9},
  'finetune': {'steps_per_second': 2.0, 'parameters': 7},
  'evaluate': {'metrics': {'a/b': 0.5}, 'standard_errors': {}, 'n': {'a': 2}},
}


@dataclasses.dataclass
class Workers:
  """Answers as the workers do.

  Attributes:
    found: what each stage finds.
    faults: what is raised, by the name of the work or of the stage.
    reports: what each stage reports.
    seconds: how long each takes, with a tick in the middle.
    now: the time.
    calls: what was asked for: its name, its arguments, its log.
  """

  found: dict[str, Any] = dataclasses.field(default_factory=lambda: dict(FOUND))
  faults: dict[str, BaseException] = dataclasses.field(default_factory=dict)
  reports: dict[str, Any] = dataclasses.field(default_factory=dict)
  seconds: float = 0
  now: float = 1000
  calls: list[tuple[str, Any, pathlib.Path]] = dataclasses.field(
    default_factory=list
  )

  def run(self, function, *arguments, log, on_report, on_tick):
    name = function.removeprefix('synth_mtf.demo.work:')
    if name == 'run_stage':
      name = arguments[0].name
    self.calls.append((name, arguments, log))
    self.now += self.seconds / 2
    for report in self.reports.get(name, ()):
      on_report(report)
    on_tick()
    self.now += self.seconds / 2
    if name in self.faults:
      raise self.faults[name]
    if name == 'make_data':
      arguments[0].mkdir()
    elif name == 'train_vocabulary':
      arguments[1].touch()
    elif name in STAGES:
      arguments[0].model_dir.mkdir(parents=True, exist_ok=True)
    return {**self.found, 'tabulate': GRID}.get(name)

  @property
  def names(self):
    return [name for name, *_ in self.calls]


@pytest.fixture
def done(monkeypatch, tmp_path):
  """Workers, and temporary files in a folder of this test."""
  made = Workers()
  monkeypatch.setattr(workers, 'run', made.run)
  monkeypatch.setattr(workers, 'prepare', lambda modules: None)
  monkeypatch.setattr(time, 'monotonic', lambda: made.now)
  (tmp_path / 'temporary').mkdir()
  monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path / 'temporary'))
  return made


def run(tmp_path, *variants, **changes):
  """Runs a job; returns its table and the lines that were shown."""
  stream = io.StringIO()
  configuration = dataclasses.replace(SHORT, **changes)
  out = str(tmp_path / 'out')
  job = Job(configuration, variants or ['random'], out, Console(stream))
  grid = job.run()
  return grid, stream.getvalue().splitlines()


def test_all_is_checked_before_anything_is_made(done, tmp_path):
  class Checked(Exception):
    pass

  done.faults['make_data'] = Checked()
  with pytest.raises(Checked):
    run(tmp_path, 'random', 'dense')
  assert done.names == ['check_models', 'make_data']
  (_, (stages, mixture), _), _ = done.calls
  assert [(s.variant, s.name) for s in stages] == [
    (variant, name) for variant in ('random', 'dense') for name in STAGES
  ]
  assert mixture == 'synth_en_mix'


def test_the_order_of_the_work(done, tmp_path):
  grid, lines = run(tmp_path, 'random', 'dense')
  assert grid == GRID
  assert done.names == [
    'check_models',
    *('make_data', 'train_vocabulary'),
    *(STAGES * 2),
    *('tabulate', 'make_page'),
  ]
  stages = [given[0] for name, given, _ in done.calls if name in STAGES]
  assert [stage.variant for stage in stages] == ['random'] * 4 + ['dense'] * 4
  titles = [line.split('  ')[0] for line in lines if line.startswith('[')]
  assert list(dict.fromkeys(titles)) == [
    f'[{4 * i + j}/8] {variant}: {name}'
    for i, variant in enumerate(('random', 'dense'))
    for j, name in enumerate(STAGES, 1)
  ]


def test_a_seed_after_the_other(done, tmp_path):
  _, lines = run(tmp_path, 'random', 'dense', seeds=(4, 3))
  logs = [log.name for name, _, log in done.calls if name in STAGES]
  assert logs == [
    f'{variant}-seed_{seed}-{name}.log'
    for variant in ('random', 'dense')
    for seed in (4, 3)
    for name in STAGES
  ]
  stages = [given[0] for name, given, _ in done.calls if name in STAGES]
  assert [stage.seed for stage in stages] == ([4] * 4 + [3] * 4) * 2
  assert '[5/16] random seed_3: pretrain  ...' in lines
  folder = tmp_path / 'out' / 'dense' / 'seed_4'
  assert json.loads((folder / 'finetune.json').read_text()) == FOUND['finetune']


def test_data_and_vocabulary_that_are_given_are_not_made(done, tmp_path):
  data = tmp_path / 'data'
  data.mkdir()
  run(tmp_path, data_dir=str(data), vocabulary='bytes')
  assert done.names[:3] == ['check_data', 'check_models', 'pretrain']
  _, (settings, mixture), _ = done.calls[0]
  assert (settings['data_dir'], settings['vocabulary']) == (str(data), 'bytes')
  assert mixture == 'synth_en_mix'
  # What it counts is not in the folder of a run that may be refused.
  assert not pathlib.Path(settings['index_dir']).is_relative_to(
    tmp_path / 'out'
  )


def test_what_is_done_is_not_done_again(done, tmp_path):
  first, _ = run(tmp_path)
  done.calls.clear()
  again, lines = run(tmp_path)
  assert done.names == ['check_models', 'tabulate', 'make_page']
  assert [line for line in lines if line.startswith('[')] == [
    f'[{number}/4] random: {name}  done before'
    for number, name in enumerate(STAGES, 1)
  ]
  assert again == first


def test_another_variant_joins_those_that_are_done(done, tmp_path):
  run(tmp_path, 'dense')
  done.calls.clear()
  run(tmp_path, 'random')
  assert done.names == ['check_models', *STAGES, 'tabulate', 'make_page']
  asked = {name: arguments for name, arguments, _ in done.calls}
  out, variants = str(tmp_path / 'out'), ['random', 'dense']
  assert asked['tabulate'] == (out, variants)
  assert asked['make_page'] == (out, variants, f'{out}/report.html')


def test_after_a_failure_it_goes_on_there(done, tmp_path):
  done.faults['finetune'] = workers.WorkerFailed('killed by signal 9')
  with pytest.raises(workers.WorkerFailed) as error:
    run(tmp_path)
  log = tmp_path / 'out' / 'logs' / 'random-finetune.log'
  assert str(error.value) == (
    f'[3/4] random: finetune: killed by signal 9. The log is {log}; the same '
    'command goes on where this one ended.'
  )
  assert done.names[-1] == 'finetune'
  done.faults.clear()
  done.calls.clear()
  _, lines = run(tmp_path)
  assert done.names == [
    'check_models', 'finetune', 'evaluate', 'tabulate', 'make_page',
  ]  # fmt: skip
  assert '\n'.join(lines).count('done before') == 2


def test_table_and_numbers_are_written(done, tmp_path):
  run(tmp_path)
  out = tmp_path / 'out'
  assert '| Syn (R) |   **2.5** |' in (out / 'table.md').read_text()
  (found,) = json.loads((out / 'metrics.json').read_text())['models']['random']
  assert found == {
    'seed': 0,
    **FOUND['evaluate'],
    **FOUND['perplexity'],
    'steps_per_second': 2.54,  # of pretraining
    'parameters': 7,
  }


@pytest.mark.parametrize('fault', ['check_data', 'check_models'])
def test_a_mistake_leaves_nothing_behind(done, tmp_path, fault):
  data = tmp_path / 'data'
  data.mkdir()
  done.faults[fault] = UserError('row 7 is wrong')
  with pytest.raises(UserError, match='^row 7 is wrong$'):
    run(tmp_path, data_dir=str(data))
  assert done.names[-1] == fault
  assert not (tmp_path / 'out').exists()
  assert not list((tmp_path / 'temporary').iterdir())


def test_the_log_of_a_check_that_has_crashed_is_kept(done, tmp_path):
  done.faults['check_models'] = workers.WorkerFailed('ValueError: x')
  with pytest.raises(workers.WorkerFailed, match='ValueError: x') as error:
    run(tmp_path)
  ((_, _, log),) = done.calls
  assert f'The log is {log};' in str(error.value)
  assert log.parent.parent == tmp_path / 'temporary' and log.parent.is_dir()
  assert not (tmp_path / 'out').exists()


def test_wrong_names_start_no_worker(done, tmp_path):
  with pytest.raises(UserError, match="unknown variant 'randm'"):
    run(tmp_path, 'randm')
  assert not done.calls


def ended(lines, name):
  """What is said of a stage when it is done."""
  (*_, last) = [line for line in lines if f': {name}  ' in line]
  return last.partition(f': {name}  ')[2]


def test_it_says_what_was_found(done, tmp_path):
  done.seconds = 90
  done.reports['pretrain'] = [
    TrainingProgress(step, 20, loss, 2.0)
    for step, loss in ((5, 4.5), (9, 3.25))
  ]
  _, lines = run(tmp_path)
  assert [ended(lines, name) for name in STAGES] == [
    'loss 3.250, 2.5 steps/s, 1 min 30 s',
    'validation log perplexity 2.125, 1 min 30 s',
    '2.0 steps/s, 1 min 30 s',
    'GLUE, SuperGLUE and SQuAD metrics are in the table, 1 min 30 s',
  ]


def test_a_number_that_could_not_be_had_is_left_out(done, tmp_path):
  done.seconds = 5
  unknown = {'steps_per_second': None, 'parameters': 7}
  done.found.update(
    pretrain=unknown,
    finetune=unknown,
    perplexity={'log_perplexity': None, 'tokens': 0},
  )
  done.reports['finetune'] = [TrainingProgress(1, 10, 2.5, 0.0)]
  _, lines = run(tmp_path)
  assert [ended(lines, name) for name in STAGES[:3]] == [
    '5 s', '5 s', 'loss 2.500, 5 s',
  ]  # fmt: skip


def test_it_shows_how_far_it_has_come(done, tmp_path):
  """How long the rest takes is known once such a stage has been seen."""
  done.seconds = 200
  report = TrainingProgress(4, 10, 2.5, 3.0)
  done.reports['finetune'] = [report]
  _, lines = run(tmp_path, 'random', 'dense')
  assert '[1/8] random: pretrain  1 min 40 s' in lines
  assert '[5/8] dense: pretrain  1 min 40 s  about 1 min 40 s left' in lines
  for title in ('[3/8] random: finetune', '[7/8] dense: finetune'):
    assert f'{title}  step 4/10  loss 2.500  3.0 steps/s  2 s left' in lines


def test_work_that_has_failed_says_so(done, tmp_path):
  stream = io.StringIO()
  done.faults['train_vocabulary'] = workers.WorkerFailed('OSError: full')
  job = Job(SHORT, ['random'], str(tmp_path / 'out'), Console(stream))
  with pytest.raises(workers.WorkerFailed):
    job.run()
  assert stream.getvalue().splitlines()[-1] == 'train vocabulary  failed'
