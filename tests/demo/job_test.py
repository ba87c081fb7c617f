"""A demo: its stages and their order, what is not repeated, and its folder.

The command that stages run is a script that trains nothing.
"""

import contextlib
import dataclasses
import fcntl
import io
import itertools
import json
import pathlib
import re
import sys
import time

import pytest

from synth_mtf.demo import corpus, job
from synth_mtf.demo.job import Pace
from synth_mtf.demo.stages import Configuration, Stage, stages
from synth_mtf.errors import RunFailed, UserError
from synth_mtf.results import runs
from synth_mtf.run.model_dir import LOCK
from synth_mtf.run.output import Console

SHORT = Configuration(
  pretrain_steps=20, finetune_steps=10, data_dir='/', vocabulary='bytes'
)
OUT = pathlib.Path('/out')
STAGES = ['pretrain', 'finetune', 'perplexity', 'evaluate']
COMMAND = """
import os, sys
os.makedirs(sys.argv[2].partition('--model_dir=')[2], exist_ok=True)
print('Done in 1 s.')
sys.exit('--gin_file=runs/FAILING.gin' in sys.argv)
"""


def made(**changes):
  """The stages of R with seed 3, by name."""
  batches = stages('random', 3, dataclasses.replace(SHORT, **changes), OUT)
  return {stage.name: stage for batch in batches for stage in batch}


def test_stages_are_gin_files_and_folders():
  configuration = dataclasses.replace(
    SHORT,
    mixture='mine',
    eval_examples=None,
    gin_file=('mine.gin',),
    gin_param=('d_model = 8',),
  )
  batches = stages('random', 3, configuration, OUT)
  # Perplexity is measured beside finetuning.
  assert [[(s.name, str(s.model_dir)) for s in batch] for batch in batches] == [
    [('pretrain', '/out/random/pretrain')],
    [
      ('finetune', '/out/random/finetune'),
      ('perplexity', '/out/random/pretrain'),
    ],
    [('evaluate', '/out/random/finetune')],
  ]
  for stage in itertools.chain(*batches):
    first = ['sizes/tiny.gin', 'variants/random.gin']
    rest = [f'runs/demo_{stage.name}.gin', 'mine.gin']
    assert list(stage.gin_files) == [*first, *rest]
    assert stage.gin_params[-1] == 'd_model = 8'
    tuned = stage.name in ('finetune', 'evaluate')
    assert ("MIXTURE_NAME = 'mine'" in stage.gin_params) == tuned
  examples = 'mesh_eval_dataset_fn.num_eval_examples = None'
  assert examples in batches[-1][0].gin_params


@pytest.mark.parametrize(
  'stage, start, train_steps, seen',
  [
    ('pretrain', [], 20, 0),
    ('finetune', ['/out/random/pretrain/model.ckpt-20'], 30, 20),
  ],
)
def test_training_starts_where_the_last_one_ended(
  stage, start, train_steps, seen
):
  assert {
    *(f'utils.run.init_checkpoint = {path!r}' for path in start),
    f'utils.run.train_steps = {train_steps}',
    f'utils.run.seen_data_init_step = {seen}',
    'synth_mtf.train_with_progress.seed = 3',
    'mesh_train_dataset_fn.seed = 3',
  } <= set(made()[stage].gin_params)


@pytest.mark.parametrize(
  'steps, between', [(1, 1), (4, 1), (20, 4), (100_000, 1000)]
)
def test_a_kill_loses_a_fifth_of_a_run_at_most(steps, between):
  bindings = made(pretrain_steps=steps)['pretrain'].gin_params
  assert f'utils.run.save_checkpoints_steps = {between}' in bindings


@pytest.fixture
def script(tmp_path, monkeypatch):
  """Sets what the command does that stages run."""
  path = tmp_path / 'synth-mtf'
  monkeypatch.setattr(sys, 'argv', [str(path)])
  path.write_text(COMMAND)
  return path.write_text


@pytest.fixture
def shown():
  """What demos showed."""
  return []


@pytest.fixture
def run(tmp_path, monkeypatch, script, shown):
  """Runs a demo; returns the last line of each stage, and its variants."""
  monkeypatch.setattr(job, '_check', lambda *_: [])
  monkeypatch.setattr(runs, 'read', lambda *folders: folders)
  monkeypatch.setattr(job, '_measured', lambda folder: {'at': folder})

  def demo(*variants, out=tmp_path / 'out', **changes):
    stream = io.StringIO()
    configuration = dataclasses.replace(SHORT, **changes)
    done = job.run(configuration, variants or ['random'], out, Console(stream))
    shown.append(stream.getvalue())
    return re.findall(r'^\[.* (?:Done|done) .*$', shown[-1], re.M), done

  return demo


def test_what_is_odd_about_the_data_is_shown(run, monkeypatch, shown):
  monkeypatch.setattr(job, '_check', lambda *_: ['a.tsv:3: left out'])
  run()
  assert '\nwarning: a.tsv:3: left out\n' in shown[0]


@pytest.mark.parametrize(
  'variants, seeds, folders',
  [
    (['random', 'dense'], (3,), ['random', 'dense']),
    (['random'], (4, 3), ['random/seed_4', 'random/seed_3']),
  ],
)
def test_one_variant_and_seed_after_the_other(
  run, tmp_path, variants, seeds, folders
):
  lines, done = run(*variants, seeds=seeds)
  assert lines == [
    f'[{4 * i + j}/8] {folder}: {name}  Done in 1 s.'
    for i, folder in enumerate(folders)
    for j, name in enumerate(STAGES, 1)
  ]
  content = json.loads((tmp_path / 'out' / 'metrics.json').read_text())
  assert content['configuration']['finetune_steps'] == 10
  assert list(content['models']) == done == variants
  assert content['models']['random'] == [
    {'seed': seed, 'at': str(tmp_path / 'out' / folder)}
    for seed, folder in zip(seeds, folders, strict=False)
    if folder.startswith('random')
  ]


def test_what_is_done_is_not_repeated_and_shown_after_what_was_asked_for(
  run, tmp_path
):
  run('random', 'dense', seeds=(0, 5))
  lines, done = run('vanilla', 'random', seeds=(0, 5))
  assert lines[8:] == [
    f'[{4 * i + j}/16] random/seed_{seed}: {name}  done before'
    for i, seed in enumerate((0, 5), 2)
    for j, name in enumerate(STAGES, 1)
  ]
  assert done == ['vanilla', 'random', 'dense']
  (tmp_path / 'out' / 'dense' / 'seed_5' / 'evaluate.done').unlink()
  assert run('vanilla', 'random', seeds=(0, 5))[1] == ['vanilla', 'random']


def test_after_a_failure_it_resumes_there(run, tmp_path, script):
  script(COMMAND.replace('FAILING', 'demo_finetune'))
  with pytest.raises(RunFailed, match=r'^\[2/4\] random: finetune: the proc'):
    run()
  assert not (tmp_path / 'out' / 'metrics.json').exists()
  assert not (tmp_path / 'out' / 'random' / 'finetune.done').exists()
  script(COMMAND)
  lines, _ = run()
  assert lines[0].endswith('pretrain  done before')
  assert lines[1].endswith('finetune  Done in 1 s.')


SHOW_DATA = COMMAND.replace(
  "'Done in 1 s.'",
  "'Done', *(os.environ.get(f'SYNTH_MTF_{n}') for n in "
  "('DATA_DIR', 'VOCABULARY'))",
)


def test_samples_are_written_whole_and_used(run, tmp_path, monkeypatch, script):
  monkeypatch.setattr(corpus, 'PACKAGES', ('seqio',))
  script(SHOW_DATA)
  out = tmp_path / 'out'
  (out / 'data' / 'glue').mkdir(parents=True)  # left by a killed process
  described = dataclasses.asdict(dataclasses.replace(SHORT, data_dir=None))
  (out / 'run.json').write_text(json.dumps(described))
  lines, _ = run(data_dir=None)
  assert lines[0].endswith(f'Done {out}/data bytes')
  assert {path.name for path in out.iterdir()} == {
    'data',
    'random',
    'run.json',
    'metrics.json',
    LOCK,
  }
  assert {path.name for path in (out / 'data').iterdir()} == {
    'glue',
    'superglue',
    'squad',
    'corpus',
    'GENERATED_SAMPLE.txt',
  }


def test_given_data_are_used(run, script):
  script(SHOW_DATA)
  lines, _ = run(vocabulary='/a.model')
  assert lines[0].endswith('Done / /a.model')


def test_another_configuration_is_refused(run):
  run()
  with pytest.raises(UserError) as error:
    run(finetune_steps=8, seeds=(3,))
  assert 'holds a demo of another configuration' in str(error.value)
  assert 'finetune_steps: 10 there, 8 now' in str(error.value)
  assert 'seeds: [0] there, [3] now' in str(error.value)


@pytest.mark.parametrize(
  'name, content, message',
  [
    ('out/x/y', 'mine', 'something other than a demo'),
    ('out/run.json', '{"steps": 7,', 'run.json is damaged'),
    ('out/run.json', '{"steps": 7}', 'another configuration'),
    ('out/.run.json.partial', '{"st', None),  # left by a killed process
    (f'out/{LOCK}', '', None),
  ],
)
def test_what_is_in_the_folder(run, tmp_path, name, content, message):
  path = tmp_path / name
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(content)
  if message is None:
    run()
    return
  with pytest.raises(UserError, match=message):
    run()
  assert path.read_text() == content


def test_two_runs_at_once_are_refused(run, tmp_path):
  (tmp_path / 'out').mkdir()
  with open(tmp_path / 'out' / LOCK, 'w') as other:
    fcntl.flock(other, fcntl.LOCK_EX)
    with pytest.raises(UserError, match='another run'):
      run()


def follow(folder):
  """Follows a stage; returns the printed lines."""
  stage = Stage('pretrain', folder / 'model', ['a.gin'], ['b = 1'])
  stream = io.StringIO()
  try:
    with job.started(stage) as running:
      pace = Pace([stage])
      job.follow(stage, running, '[1/4] r: pretrain', Console(stream), pace)
  finally:
    lines = stream.getvalue().splitlines()
    assert stage.done.exists() == ('failed' not in lines[-1])
  return lines


def test_a_stage_is_the_command_in_a_process(tmp_path, script):
  script("""
import os, sys
print('Log: /x')
print('train  build the model ...')
print('Starts after step 200, that of its checkpoint, and ends at step 800.')
print('Wrote /x')
print('7  glue_cola_v002  matthews_corrcoef 12.34 +- 1.2')
print('warning:', sys.argv[1:], os.environ['PYTHONHASHSEED'], file=sys.stderr)
print('Done in 3 s: step 7, loss 2.')""")
  lines = follow(tmp_path)
  words = ['transformer', f'--model_dir={tmp_path}/model']
  words += ['--gin_file=a.gin', '--gin_param=b = 1']
  assert lines[:3] == [
    '[1/4] r: pretrain  load TensorFlow ...',
    '[1/4] r: pretrain  build the model ...',
    '  Starts after step 200, that of its checkpoint, and ends at step 800.',
  ]
  assert not any('Wrote' in line or 'Log' in line for line in lines)
  assert '  glue_cola_v002  matthews_corrcoef 12.34 +- 1.2' in lines
  assert f'[1/4] r: pretrain  warning: {words} 0' in lines
  assert lines[-1] == '[1/4] r: pretrain  Done in 3 s: step 7, loss 2.'


@pytest.mark.parametrize(
  'code, error, message',
  [
    (
      "print('synth-mtf: error: no\\nsuch file'); sys.exit(2)",
      UserError,
      '^no\nsuch file$',
    ),
    (
      "print('step 1'); print('synth-mtf: error: ValueError'); sys.exit(1)",
      RunFailed,
      r'^\[1/4\] r: pretrain: ValueError\nThe log is .*/model/log; the same ',
    ),
    ('1 / 0', RunFailed, r'(?s)^\[1/4\] .*: Traceback.*ZeroDivision.*\nThe'),
    ('os.kill(os.getpid(), 9)', RunFailed, 'ended with status -9 .*memory'),
  ],
)
def test_failures(tmp_path, script, code, error, message):
  script(f'import os, sys\n{code}')
  with pytest.raises(error, match=message):
    follow(tmp_path)


@pytest.fixture
def now(monkeypatch):
  now = [0.0]
  monkeypatch.setattr(time, 'monotonic', lambda: now[0])
  return now


def stages_of(folder, *work):
  return [
    Stage(f'stage_{number}', folder / 'model', [], [], each)
    for number, each in enumerate(work)
  ]


TRAIN = 'train  {}/90  loss 10.218  109.6/s  1 min 01 s left'


def test_the_time_left_is_that_of_all_stages(now, tmp_path):
  first, evaluation, last = todo = stages_of(tmp_path, 80, 40, 80)
  pace = Pace(todo)
  pace.begin(first)
  assert pace.shown('Log: x') == 'Log: x'
  assert pace.shown('train  build the model ...') == 'build the model ...'
  now[0] = 1000  # a start that takes long is no pace
  assert pace.shown(TRAIN.format(10)) == '10/90  loss 10.218'
  now[0] = 1020  # a step a second: 60 + 40 + 80 are left
  assert pace.shown(TRAIN.format(30)) == '30/90  loss 10.218  3 min left of all'
  pace.begin(evaluation)
  text = pace.shown('decode, step 9  7 of 8 examples')
  assert text == 'decode, step 9  7 of 8 examples  2 min left of all'
  pace.begin(last)
  assert pace.shown('prepare  check data ...') == (
    'prepare  check data ...  2 min left of all'
  )
  now[0] = 1030
  pace.shown(TRAIN.format(0))
  now[0] = 1210  # 2 seconds a step
  assert pace.shown(TRAIN.format(89)).endswith('  1 min left of all')


def test_a_demo_that_resumes_keeps_its_estimate(now, tmp_path):
  first, second = todo = stages_of(tmp_path, 80, 90)
  first.done.write_text('2.0\n')
  pace = Pace(todo)
  pace.begin(second)
  assert pace.shown('prepare  ...') == 'prepare  ...  3 min left of all'
  # It goes on at step 60 of 90: 30 steps are left.
  assert pace.shown(TRAIN.format(60)).endswith('  1 min left of all')


def test_a_stage_leaves_its_pace(now, tmp_path, script, monkeypatch):
  script(f"""
print('{TRAIN.format(10)}')
print('{TRAIN.format(14)}')
print('Done in 1 s.')""")
  (stage,) = stages_of(tmp_path, 80)
  with job.started(stage) as running:
    pace = Pace([stage])
    console = Console(io.StringIO())
    monkeypatch.setattr(
      console, 'update', lambda text: now.__setitem__(0, now[0] + 2)
    )
    job.follow(stage, running, '[1/1] r: stage_0', console, pace)
  assert float(stage.done.read_text()) == 0.5


def test_an_interrupted_stage_may_save_before_it_ends(tmp_path, script):
  script(f"""
import pathlib, signal, sys, time
def save(*_):
  pathlib.Path('{tmp_path}/saved').touch()
  sys.exit(1)
signal.signal(signal.SIGTERM, save)
print('ready', flush=True)
time.sleep(60)""")
  stage = Stage('pretrain', tmp_path / 'model', [], [])
  with contextlib.suppress(KeyboardInterrupt), job.started(stage) as running:
    next(iter(running.stdout or []))
    raise KeyboardInterrupt
  assert running.returncode == 1
  assert (tmp_path / 'saved').exists()
