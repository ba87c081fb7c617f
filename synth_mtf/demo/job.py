"""Runs a demo: the checks, the data, then the stages of each variant.

The folder of a demo holds:

    run.json                    the configuration, which must not change
    data/, vocabulary.model     unless given by flags
    <run>/pretrain, finetune    checkpoints, TensorBoard summaries, evaluations
    <run>/<stage>.done          marks a finished stage
    table.md, metrics.json, report.html, log

<run> is the variant or, with several seeds, <variant>/seed_<seed>.
"""

import contextlib
import dataclasses
import itertools
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from synth_mtf import atomic, paths, tasks
from synth_mtf.checkpoints import folder as checkpoints
from synth_mtf.demo import corpus
from synth_mtf.demo.stages import Configuration, Stage, stages
from synth_mtf.errors import RunFailed, UserError
from synth_mtf.host import explanations, gin_files
from synth_mtf.results import layouts, runs
from synth_mtf.run import checks, config, model_dir, output

_PRETRAINING_TASK = 'synth_text_span_corruption'
_ERROR = 'synth-mtf: error: '


def run(
  configuration: Configuration,
  variants: Sequence[str],
  out: pathlib.Path,
  console: output.Console,
) -> list[str]:
  """Runs the remaining stages, and writes metrics.json.

  Returns the variants in the folder whose seeds are all done, requested ones
  first. Mistakes are found before anything is written or trained; if a stage
  fails, the same command resumes.
  """
  described = json.loads(json.dumps(dataclasses.asdict(configuration)))
  _check_folder(out, described)
  # The stages' processes inherit these.
  os.environ['SYNTH_MTF_DATA_DIR'] = configuration.data_dir or f'{out}/data'
  os.environ['SYNTH_MTF_VOCABULARY'] = (
    configuration.vocabulary or f'{out}/vocabulary.model'
  )
  batches = [
    batch
    for variant in variants
    for seed in configuration.seeds
    for batch in stages(variant, seed, configuration, out)
  ]
  with console.task('check data, gin files and models'), output.kept():
    todo = [s for batch in batches for s in batch if not s.done.exists()]
    notes = _check(configuration, todo)
  for note in notes:
    console.line(f'warning: {note}')
  out.mkdir(parents=True, exist_ok=True)
  model_dir.lock(str(out))
  try:
    _write_json(out / 'run.json', described)
    _make_data(configuration, out, console)
    _run_stages(batches, out, console)
    models = _metrics(configuration, variants, out)
    _write_json(
      out / 'metrics.json', {'configuration': described, 'models': models}
    )
  finally:
    model_dir.unlock_all()
  return list(models)


def _check_folder(out: pathlib.Path, described: Mapping[str, Any]) -> None:
  """Rejects a folder with other content or another configuration."""
  made_with = checkpoints.read_record(str(out), 'run.json', dict)
  if made_with is None:
    ours = ('.', 'training.lock')  # left by a killed process
    if out.exists() and not all(n.startswith(ours) for n in os.listdir(out)):
      raise UserError(
        f'--out {out} holds something other than a demo; nothing was changed. '
        'Give an empty folder or one that does not exist.'
      )
    return
  differences = [
    f'  {name}: {made_with.get(name)!r} there, {value!r} now'
    for name, value in described.items()
    if made_with.get(name) != value
  ]
  if differences:
    raise UserError(
      f'--out {out} holds a demo of another configuration; nothing was '
      'changed. Choose another --out, or give what it was made with:\n'
      + '\n'.join(differences)
    )


def _check(configuration: Configuration, todo: Sequence[Stage]) -> list[str]:
  """Checks data, gin files, models; returns what is odd about the data.

  Parsing gin files finds unknown names; only building a model finds a sequence
  longer than a table, or an argument that a layer does not have.
  """
  notes = []
  tasks.get(configuration.mixture)
  if configuration.data_dir is not None:
    names = [_PRETRAINING_TASK, configuration.mixture]
    with explanations.explained():
      notes = tasks.check(names, ['train', 'validation'])
  # A vocabulary that is trained later fits any model, as bytes do.
  setting = (
    'synth_mtf.tasks.settings.vocabulary = '
    f'{configuration.vocabulary or "bytes"!r}'
  )
  # The seed cannot make a model invalid, so one seed is checked.
  for stage in {(one.name, one.gin_files): one for one in todo}.values():
    with explanations.explained():
      gin_files.parse(stage.gin_files, [*stage.gin_params, setting])
      checks.build(config.read(str(stage.model_dir)))
  return notes


def _make_data(
  configuration: Configuration, out: pathlib.Path, console: output.Console
) -> None:
  text, vocabulary = out / 'data/corpus/packages.txt', out / 'vocabulary.model'
  if configuration.data_dir is None and not text.exists():
    with console.task('copy samples, gather documentation text'):
      shutil.copytree(paths.samples_path(), out / 'data', dirs_exist_ok=True)
      corpus.write(text)  # last, since it marks the data as complete
  if configuration.vocabulary is None and not vocabulary.exists():
    with console.task('train vocabulary'), output.to_log(str(out / 'log')):
      rows = tasks.get(_PRETRAINING_TASK).source.chosen.examples('train')
      tasks.vocabulary.train((row['text'] for row in rows), vocabulary)


def _run_stages(
  batches: Sequence[Sequence[Stage]], out: pathlib.Path, console: output.Console
) -> None:
  numbers, count = itertools.count(1), sum(map(len, batches))
  pace = Pace([s for batch in batches for s in batch if not s.done.exists()])
  for batch in batches:
    with contextlib.ExitStack() as stack:
      running = {}
      for stage in batch:
        if not stage.done.exists():
          running[stage.name] = stack.enter_context(started(stage))
      for stage in batch:
        run = stage.model_dir.parent.relative_to(out)
        title = f'[{next(numbers)}/{count}] {run}: {stage.name}'
        if stage.name in running:
          follow(stage, running[stage.name], title, console, pace)
        else:
          console.line(f'{title}  done before')


@contextlib.contextmanager
def started(stage: Stage) -> Iterator[subprocess.Popen[str]]:
  """Runs a stage in its own process.

  An exception in the block, such as Ctrl-C, terminates the process after a
  training run has saved a checkpoint; a second exception kills it at once.
  """
  with subprocess.Popen(
    [
      *(sys.executable, sys.argv[0], 'transformer'),
      f'--model_dir={stage.model_dir}',
      *(f'--gin_file={file}' for file in stage.gin_files),
      *(f'--gin_param={param}' for param in stage.gin_params),
    ],
    stdin=subprocess.DEVNULL,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    encoding='utf-8',
    errors='replace',
    env={
      'TF_FORCE_GPU_ALLOW_GROWTH': 'true',  # two stages can share a GPU
      **os.environ,
      'PYTHONHASHSEED': '0',  # makes results reproducible
      output.INTERVAL: '1',
    },
  ) as running:
    try:
      yield running
    except BaseException:
      running.terminate()
      running.wait()
      raise
    finally:
      running.kill()


class Pace:
  """Estimates how long all stages will still take, from their `work`."""

  def __init__(self, todo: Sequence[Stage]) -> None:
    self._all = sum(stage.work for stage in todo)
    self._before = self._work = 0.0  # of earlier stages, and of this one
    self._begun = time.monotonic()

  def begin(self, stage: Stage) -> None:
    """Notes that a stage begins, and that the one before has ended."""
    self._before += self._work
    self._work = stage.work
    self._first: int | None = None  # reported step

  def shown(self, line: str) -> str:
    """Replaces the time left in a stage's line by that of all stages."""
    done = self._before
    step = re.match(r'train  (\d+)/(\d+)', line)
    if step:
      now, total = map(int, step.groups())
      first = self._first = now if self._first is None else self._first
      done += self._work * (now - first) / max(total - first, 1)
    left = ''
    if done:
      spent = (time.monotonic() - self._begun) / 60
      minutes = math.ceil(spent * (self._all - done) / done)
      left = f'{max(minutes, 1)} min left of all'
    return '  '.join(filter(None, [*line.split('  ')[1:3], left]))


def follow(
  stage: Stage,
  running: subprocess.Popen[str],
  title: str,
  console: output.Console,
  pace: Pace,
) -> None:
  """Shows the output of a stage until it ends, and marks the stage as done."""
  pace.begin(stage)
  number = title.partition(' ')[0]
  console.start(f'{number} {stage.name}')
  line = error = ''
  for line in running.stdout or ():
    if error or line.startswith((_ERROR, 'Traceback')):
      error += line.removeprefix(_ERROR)
    elif line.startswith('warning: '):
      console.finish(line.rstrip())
    elif score := re.match(r'\d+  (\S+  \S+ .*)', line):
      console.line(f'  {score[1]}')
    else:
      console.update(pace.shown(line.rstrip()))
  status = running.wait()
  if not status:
    stage.done.touch()
    console.line(f'{title}  {line.rstrip()}')  # Done in 42 s.
    return
  console.line(f'{title}  failed')
  if status == 2:
    raise UserError(error.strip())
  ended = f'the process ended with status {status}'
  if status == -9:
    ended += ' (it was killed, probably because memory ran out)'
  raise RunFailed(
    f'{title}: {error.strip() or ended}\nThe log is {stage.model_dir / "log"}; '
    'the same command resumes this stage.'
  )


def _metrics(
  configuration: Configuration, variants: Sequence[str], out: pathlib.Path
) -> dict[str, Any]:
  """Returns the metrics of variants with all seeds done, `variants` first."""
  models = {}
  for variant in dict.fromkeys([*variants, *sorted(os.listdir(out))]):
    folders = [
      configuration.folder(out, variant, seed) for seed in configuration.seeds
    ]
    if all((run / 'evaluate.done').exists() for run in folders):
      measured = runs.read(*map(str, folders))
      models[variant] = [
        {'seed': seed, **_measured(run)}
        for seed, run in zip(configuration.seeds, measured, strict=True)
      ]
  return models


def _measured(run: runs.Run) -> dict[str, Any]:
  found: dict[str, Any] = {
    'metrics': {},
    'standard_errors': {},
    'n': {},
    'steps_per_second': run.steps_per_second,
    'parameters': run.parameters,
  }
  for result in run.results:
    if result.metric == layouts.LOG_PERPLEXITY:
      found['log_perplexity'] = None if result.value is None else -result.value
      found['tokens'] = result.n
    elif result.task != _PRETRAINING_TASK:
      name = f'{result.task}/{result.metric}'
      found['metrics'][name] = result.value
      found['standard_errors'][name] = result.standard_error
      found['n'][result.task] = result.n
  return found


def _write_json(path: pathlib.Path, value: Any) -> None:
  atomic.write(path, json.dumps(value, indent=2) + '\n')
