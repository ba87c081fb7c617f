"""A demo: its stages and their order, what is not repeated, and its folder.

The command that stages run is a script that trains nothing.
"""

import contextlib
import dataclasses
import fcntl
import io
import json
import pathlib
import re
import sys
import time
from typing import Any

import pytest

from synth_mtf.demo import corpus, job, processes
from synth_mtf.demo.pace import Pace
from synth_mtf.demo.running import Runner
from synth_mtf.demo.stages import Configuration, Stage, stages
from synth_mtf.errors import RunFailed, UserError
from synth_mtf.results import runs
from synth_mtf.run.model_dir import LOCK
from synth_mtf.run.output import Console
from tests.results.made_runs import fake, result

SHORT = Configuration(
  pretrain_steps=20, finetune_steps=10, data_dir='/', vocabulary='bytes'
)
OUT = pathlib.Path('/out')
COMMAND = """
import os, sys
os.makedirs(sys.argv[2].partition('--model_dir=')[2], exist_ok=True)
print('Done in 1 s.')
sys.exit('--gin_file=runs/FAILING.gin' in sys.argv)
"""


def made(**changes):
  """The stages of R with seed 3, by name."""
  configuration = dataclasses.replace(SHORT, **{'seeds': (3,), **changes})
  return {s.name: s for s in stages(['random'], configuration, OUT)}


def test_stages_are_gin_files_and_folders():
  all_stages = made(
    mixture='mine',
    eval_examples=None,
    gin_file=('mine.gin',),
    gin_param=('d_model = 8',),
  )
  assert {name: str(s.model_dir) for name, s in all_stages.items()} == {
    'pretrain': '/out/random/pretrain',
    'perplexity': '/out/random/pretrain',
    'finetune': '/out/random/finetune',
    'evaluate': '/out/random/finetune',
  }
  for stage in all_stages.values():
    first = ['sizes/tiny.gin', 'variants/random.gin']
    rest = [f'runs/demo_{stage.name}.gin', 'mine.gin']
    assert list(stage.gin_files) == [*first, *rest]
    assert stage.gin_params[-1] == 'd_model = 8'
    tuned = stage.name in ('finetune', 'evaluate')
    assert ("MIXTURE_NAME = 'mine'" in stage.gin_params) == tuned
  examples = 'mesh_eval_dataset_fn.num_eval_examples = None'
  assert examples in all_stages['evaluate'].gin_params


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


def command(_words):
  """What the stages run."""
  exec(_scripts[-1], {})  # noqa: S102
  return 0


_scripts = [COMMAND]


@pytest.fixture
def script(monkeypatch):
  """Sets what the command does that stages run."""
  monkeypatch.setattr(sys, 'argv', ['synth-mtf'])
  yield _scripts.append
  del _scripts[1:]


@pytest.fixture
def shown():
  """What demos showed."""
  return []


@pytest.fixture
def run(tmp_path, monkeypatch, script, shown):
  """Runs a demo; returns each stage's last line, in order, and its variants."""
  monkeypatch.setattr(job, '_check', lambda *_: [])
  monkeypatch.setattr(runs, 'read', lambda *folders: folders)
  monkeypatch.setattr(job, '_measured', lambda folder: {'at': folder})

  def demo(*variants, out=tmp_path / 'out', **changes):
    stream = io.StringIO()
    configuration = dataclasses.replace(SHORT, **changes)
    names = variants or ('random',)
    done = job.run(configuration, names, out, Console(stream), command)
    shown.append(stream.getvalue())
    lines = re.findall(r'^\[.* (?:Done|done) .*$', shown[-1], re.M)
    return sorted(
      lines, key=lambda line: int(re.findall(r'\d+', line)[0])
    ), done

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
def test_all_variants_and_seeds(run, tmp_path, variants, seeds, folders):
  lines, done = run(*variants, seeds=seeds)
  first, second = folders
  assert lines == [
    f'[{number}/8] {stage}  Done in 1 s.'
    for number, stage in enumerate(
      [
        f'{first}: pretrain',
        f'{first}: perplexity',  # the first score comes early
        f'{second}: pretrain',
        f'{first}: finetune',
        f'{second}: finetune',
        f'{second}: perplexity',
        f'{first}: evaluate',
        f'{second}: evaluate',
      ],
      1,
    )
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
  assert len(lines) == 16
  for line in lines:
    assert ('random/' in line) == line.endswith('  done before')
  assert done == ['vanilla', 'random', 'dense']
  (tmp_path / 'out' / 'dense' / 'seed_5' / 'evaluate.done').unlink()
  assert run('vanilla', 'random', seeds=(0, 5))[1] == ['vanilla', 'random']


def test_after_a_failure_it_resumes_there(
  run, tmp_path, script, monkeypatch, shown
):
  script(COMMAND.replace('FAILING', 'demo_finetune'))
  with pytest.raises(RunFailed, match=r'^\[3/4\] random: finetune: the proc'):
    run()
  assert not (tmp_path / 'out' / 'metrics.json').exists()
  assert not (tmp_path / 'out' / 'random' / 'finetune.done').exists()
  script(COMMAND)
  # What remains is checked. Perplexity ran at the same time, maybe to its end.
  monkeypatch.setattr(job, '_check', lambda _, left: [s.name for s in left])
  lines, _ = run()
  checked = re.findall('warning: (.*)', shown[-1])
  assert [x for x in checked if x != 'perplexity'] == ['finetune', 'evaluate']
  assert lines[0].endswith('pretrain  done before')
  assert lines[2].endswith('finetune  Done in 1 s.')


def test_two_run_at_a_time_but_what_is_timed_runs_alone(run, tmp_path, script):
  log = tmp_path / 'log'
  script(f"""
import sys, time
def note(event):
  with open('{log}', 'a') as file:
    print(event, *sys.argv[2:6], file=file)
note('begins')
time.sleep(0.3)
note('ends')
{COMMAND}""")
  run('random', 'dense', 'vanilla')
  running: list[str] = []
  most = 0
  for line in log.read_text().splitlines():
    event, _, stage = line.partition(' ')
    if event == 'ends':
      running.remove(stage)
      continue
    running.append(stage)
    most = max(most, len(running))
    if any('/pretrain' in one and '_perplexity' not in one for one in running):
      assert len(running) == 1
  assert most == 2


GROWTH = 'TF_FORCE_GPU_ALLOW_GROWTH'
SHOWN = 'SYNTH_MTF_DATA_DIR', 'SYNTH_MTF_VOCABULARY', 'PYTHONHASHSEED', GROWTH
SHOW_DATA = COMMAND.replace(
  "'Done in 1 s.'",
  f"'Done', *(os.environ.get(name) for name in {SHOWN})",
)


def test_samples_are_written_whole_and_used(run, tmp_path, monkeypatch, script):
  monkeypatch.setattr(corpus, 'PACKAGES', ('seqio',))
  monkeypatch.delenv(GROWTH, raising=False)
  script(SHOW_DATA)
  out = tmp_path / 'out'
  (out / 'data' / 'glue').mkdir(parents=True)  # left by a killed process
  described = dataclasses.asdict(dataclasses.replace(SHORT, data_dir=None))
  (out / 'run.json').write_text(json.dumps(described))
  lines, _ = run(data_dir=None)
  assert lines[0].endswith(f'Done {out}/data bytes 0 true')
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


def test_given_data_are_used(run, script, monkeypatch):
  monkeypatch.setenv('PYTHONHASHSEED', '7')  # other results
  monkeypatch.setenv(GROWTH, 'false')
  script(SHOW_DATA)
  lines, _ = run(vocabulary='/a.model')
  assert lines[0].endswith('Done / /a.model 0 false')


def test_data_and_a_vocabulary_are_made_once(run, tmp_path, script, shown):
  script(SHOW_DATA)
  out = tmp_path / 'out'
  made = out / 'data' / 'corpus' / 'packages.txt', out / 'vocabulary.model'
  made[0].parent.mkdir(parents=True)
  for path in made:
    path.write_text('made before')
  given: dict[str, Any] = {'data_dir': None, 'vocabulary': None}
  described = dataclasses.asdict(dataclasses.replace(SHORT, **given))
  (out / 'run.json').write_text(json.dumps(described))
  lines, _ = run(**given)
  assert f'Done {out}/data {out}/vocabulary.model ' in lines[0]
  assert [path.read_text() for path in made] == ['made before'] * 2
  assert 'copy samples' not in shown[0]


def test_models_are_built_of_each_variant_before_any_is_trained():
  """The second one has no table that may be too short."""
  wrong = dataclasses.replace(
    SHORT, data_dir=None, gin_param=('Random.max_length = 16',)
  )
  with pytest.raises(UserError, match='exceeds Random.max_length = 16'):
    job._check(wrong, stages(['random', 'vanilla'], wrong, OUT))  # noqa: SLF001
  unknown = dataclasses.replace(SHORT, data_dir=None, mixture='synth_en_mx')
  with pytest.raises(UserError, match="did you mean 'synth_en_mix'"):
    job._check(unknown, [])  # noqa: SLF001


def test_what_is_measured():
  """A log perplexity as in the paper, and the scores of other tasks."""
  text = 'synth_text_span_corruption'
  run = fake(
    'a',
    result(task=text, metric='neg_log_perplexity', value=-2.5, n=70),
    result(task=text, metric='neg_log_perplexity_per_word', value=-4.0),
    result(task='cb', metric='f1', value=30.0, n=9, standard_error=4.0),
    result(task='cb', metric='accuracy', value=None, n=9),
    parameters=8,
    steps_per_second=1.5,
  )
  assert job._measured(run) == {  # noqa: SLF001
    'metrics': {'cb/f1': 30.0, 'cb/accuracy': None},
    'standard_errors': {'cb/f1': 4.0, 'cb/accuracy': None},
    'n': {'cb': 9},
    'steps_per_second': 1.5,
    'parameters': 8,
    'log_perplexity': 2.5,
    'tokens': 70,
  }


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


def stage_in(folder, **more):
  options = {'gin_files': ('a.gin',), 'gin_params': ('b = 1',), **more}
  return Stage('pretrain', folder / 'r' / 'model', **options)


def follow(folder):
  """Runs a stage; returns the printed lines."""
  stage = stage_in(folder)
  stage.model_dir.mkdir(parents=True)
  stream = io.StringIO()
  try:
    Runner([stage], folder, Console(stream), command).run()
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
seconds = os.environ['SYNTH_MTF_PROGRESS_SECONDS']
print('warning:', sys.argv[1:], seconds, flush=True)
print('Done in 3 s: step 7, loss 2.')""")
  lines = follow(tmp_path)
  words = ['transformer', f'--model_dir={tmp_path}/r/model']
  words += ['--gin_file=a.gin', '--gin_param=b = 1']
  assert lines[:3] == [
    '[1/1] r: pretrain  start ...',
    'r: pretrain  build the model ...',
    '  r: Starts after step 200, that of its checkpoint, and ends at step 800.',
  ]
  assert not any('Wrote' in line or 'Log' in line for line in lines)
  assert sum('Done' in line for line in lines) == 1
  assert '  r: glue_cola_v002  matthews_corrcoef 12.34 +- 1.2' in lines
  assert f'[1/1] r: pretrain  warning: {words} 1' in lines
  assert lines[-1] == '[1/1] r: pretrain  Done in 3 s: step 7, loss 2.'


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
      r'^\[1/1\] r: pretrain: ValueError\nThe log is .*/model/log; the same ',
    ),
    ('1 / 0', RunFailed, r'(?s)^\[1/1\] .*: Traceback.*ZeroDivision.*\nThe'),
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


TRAIN = 'train  {}/90  loss 10.218  109.6/s  1 min 01 s left'


def test_the_time_left_is_that_of_all_stages(now, tmp_path):
  first = stage_in(tmp_path, steps=90, starts=2)
  second = stage_in(tmp_path / '2', steps=60, step_work=2)
  last = stage_in(tmp_path / '3', starts=3)
  for stage in (first, second, last):
    stage.model_dir.mkdir(parents=True)
  pace = Pace([first, second, last])
  pace.begin(first)
  pace.hear(first, 'prepare  check data ...')
  now[0] = 100
  pace.hear(first, TRAIN.format(10))
  assert pace.left() == ''
  now[0] = 140  # a start took 100 s; two seconds a step
  pace.hear(first, TRAIN.format(30))
  # 60 steps, then a start and 60 of two, then three starts: 760 s
  assert pace.left() == '13 min left'
  now[0] = 260
  pace.end(first)
  assert first.done.read_text() == '2.000000 100.000\n'
  pace.begin(second)
  pace.begin(last)
  assert pace.left() == '11 min left'
  now[0] = 460  # each of them got 100 s
  pace.hear(second, TRAIN.format(30))
  assert pace.left() == '8 min left'  # 60 steps of two, then two starts
  pace.hear(second, TRAIN.format(30))
  now[0] = 500  # ten steps, of two each, got 20 s
  pace.hear(second, TRAIN.format(40))
  assert pace.step_seconds == 1
  assert pace.left() == '5 min left'  # 50 steps of two, 180 s of the starts
  now[0] = 1500  # the last one should have ended
  assert pace.left() == '2 min left'
  pace.hear(second, TRAIN.format(90))
  assert pace.left() == '1 min left', 'it has not ended yet'


def test_a_second_is_shared_until_a_stage_ends(now, tmp_path):
  done, one, other = (stage_in(tmp_path / name) for name in 'abc')
  for stage in (done, one, other):
    stage.model_dir.mkdir(parents=True)
  done.done.write_text('1 600')
  pace = Pace([done, one, other])
  pace.begin(one)
  pace.begin(other)
  now[0] = 600
  pace.end(one)
  assert pace.left() == '5 min left'


def test_a_demo_that_resumes_knows_what_its_stages_took(tmp_path):
  """The last one that knows it tells; an earlier version noted nothing."""
  done = []
  for number, text in enumerate(('4 50', '2 100', '0.000000 0.000', '')):
    stage = stage_in(tmp_path / str(number))
    stage.model_dir.mkdir(parents=True)
    stage.done.write_text(text)
    done.append(stage)
  pace = Pace([*done, stage_in(tmp_path / 'new', steps=60)])
  assert (pace.step_seconds, pace.start_seconds) == (2, 100)
  assert pace.left() == '4 min left'


def test_an_interrupted_stage_may_save_before_it_ends(tmp_path, script):
  script(f"""
import pathlib, signal, sys, time
def save(*_):
  pathlib.Path('{tmp_path}/saved').touch()
  sys.exit(1)
signal.signal(signal.SIGTERM, save)
print('ready', flush=True)
time.sleep(60)""")
  with contextlib.suppress(KeyboardInterrupt), processes.ended() as running:
    process = processes.Running(command, [], {}, [])
    running.append(process)
    assert process.lines() == ['ready']
    raise KeyboardInterrupt
  assert process.status() == 1
  assert (tmp_path / 'saved').exists()
