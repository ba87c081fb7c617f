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

from synth_mtf import paths, tasks
from synth_mtf.demo import corpus
from synth_mtf.demo.stages import Configuration, Stage, stages
from synth_mtf.errors import RunFailed, UserError
from synth_mtf.host import explanations, gin_files
from synth_mtf.results import layouts, runs
from synth_mtf.run import checks, config, model_dir, output, ways
from synth_mtf.storage import json_files

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
  # As run.json stores it: tuples become lists.
  record = json.loads(json.dumps(dataclasses.asdict(configuration)))
  _check_folder(out, record)
  # The stages' processes inherit these.
  os.environ['SYNTH_MTF_DATA_DIR'] = configuration.data_dir or f'{out}/data'
  os.environ['SYNTH_MTF_VOCABULARY'] = (
    configuration.vocabulary or f'{out}/vocabulary.model'
  )
  batches = []
  for variant in variants:
    for seed in configuration.seeds:
      batches += stages(variant, seed, configuration, out)
  with console.task('check data, gin files and models'), output.kept():
    notes = _check(configuration, _remaining(batches))
  for note in notes:
    console.line(f'warning: {note}')
  out.mkdir(parents=True, exist_ok=True)
  with model_dir.locked(str(out)):
    json_files.write(out / 'run.json', record)
    _make_data(configuration, out, console)
    _run_stages(batches, out, console)
    models = _metrics(configuration, variants, out)
    json_files.write(
      out / 'metrics.json', {'configuration': record, 'models': models}
    )
  return list(models)


def _remaining(batches: Sequence[Sequence[Stage]]) -> list[Stage]:
  """Returns the stages that are not done yet."""
  everything = itertools.chain.from_iterable(batches)
  return [stage for stage in everything if not stage.done.exists()]


def _check_folder(out: pathlib.Path, record: Mapping[str, Any]) -> None:
  """Rejects a folder with other content or another configuration."""
  recorded = json_files.read(str(out), 'run.json', dict)
  if recorded is None:
    _check_empty(out)
    return
  differences = []
  for name, value in record.items():
    before = recorded.get(name)
    if before != value:
      differences.append(f'  {name}: {before!r} there, {value!r} now')
  if differences:
    raise UserError(
      f'--out {out} holds a demo of another configuration; nothing was '
      'changed. Choose another --out, or give what it was made with:\n'
      + '\n'.join(differences)
    )


def _check_empty(out: pathlib.Path) -> None:
  """Rejects a folder with more than what a killed process leaves."""
  names = os.listdir(out) if out.exists() else []
  if not all(name.startswith(('.', model_dir.LOCK)) for name in names):
    raise UserError(
      f'--out {out} holds something other than a demo; nothing was changed. '
      'Give an empty folder or one that does not exist.'
    )


def _check(
  configuration: Configuration, remaining: Sequence[Stage]
) -> list[str]:
  """Checks data, gin files and models; returns what is odd about the data.

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
  vocabulary = configuration.vocabulary or 'bytes'
  setting = f'synth_mtf.tasks.settings.vocabulary = {vocabulary!r}'
  # The seed cannot make a model invalid, so one stage of each kind is checked.
  distinct = {(stage.name, stage.gin_files): stage for stage in remaining}
  for stage in distinct.values():
    with explanations.explained():
      gin_files.parse(stage.gin_files, [*stage.gin_params, setting])
      checks.build(config.read(str(stage.model_dir)), ways.InSession())
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
  count = sum(len(batch) for batch in batches)
  number = 0
  pace = Pace(list(itertools.chain.from_iterable(batches)))
  for batch in batches:
    with contextlib.ExitStack() as stack:
      processes = {}
      for stage in batch:
        if not stage.done.exists():
          processes[stage.name] = stack.enter_context(started(stage))
      for stage in batch:
        number += 1
        run = stage.model_dir.parent.relative_to(out)
        title = f'[{number}/{count}] {run}: {stage.name}'
        if stage.name in processes:
          follow(stage, processes[stage.name], title, console, pace)
        else:
          console.line(f'{title}  done before')


@contextlib.contextmanager
def started(stage: Stage) -> Iterator[subprocess.Popen[str]]:
  """Runs a stage in its own process.

  An exception in the block, such as Ctrl-C, terminates the process after a
  training run has saved a checkpoint; a second exception kills it at once.
  """
  words = [sys.executable, sys.argv[0], 'transformer']
  words.append(f'--model_dir={stage.model_dir}')
  words += [f'--gin_file={file}' for file in stage.gin_files]
  words += [f'--gin_param={binding}' for binding in stage.gin_params]
  environment = {
    'TF_FORCE_GPU_ALLOW_GROWTH': 'true',  # two stages can share a GPU
    **os.environ,
    'PYTHONHASHSEED': '0',  # makes results reproducible
    output.INTERVAL: '1',
  }
  with subprocess.Popen(
    words,
    stdin=subprocess.DEVNULL,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    encoding='utf-8',
    errors='replace',
    env=environment,
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
  """Estimates how long all stages will still take, from the time of a step.

  Reports of training stages give that time, so a slow start of a process does
  not count. `Stage.done` keeps it for a demo that resumes.

  Attributes:
    step_seconds: the last step's time; 0 before one is known.
  """

  def __init__(self, stages: Sequence[Stage]) -> None:
    self._left = 0.0  # the work of the current stage and of those after it
    self.step_seconds = 0.0
    for stage in stages:
      if stage.done.exists():
        self.step_seconds = _seconds_in(stage.done) or self.step_seconds
      else:
        self._left += stage.work
    self._current = 0.0  # what this stage still has to do
    self._first: tuple[int, float] | None = None  # step and time of a report

  def begin(self, stage: Stage) -> None:
    """Notes that a stage begins, and that the one before has ended."""
    self._left -= self._current
    self._current = stage.work
    self._first = None

  def shown(self, line: str) -> str:
    """Replaces the time left in a stage's line by that of all stages."""
    title, *progress = line.split('  ')[:3]  # without the stage's time
    if title != 'train':
      progress.insert(0, title)
    self._count(line)
    if self.step_seconds:
      minutes = math.ceil(self._left * self.step_seconds / 60)
      progress.append(f'{max(minutes, 1)} min left of all')
    return '  '.join(part for part in progress if part)

  def _count(self, line: str) -> None:
    """Takes the progress of training from a stage's line."""
    match = re.match(r'train  (\d+)/(\d+)', line)
    if not match:
      return
    now = time.monotonic()
    step, last_step = int(match[1]), int(match[2])
    left = float(last_step - step)
    self._left += left - self._current
    self._current = left
    if self._first is None:
      self._first = step, now
      return
    first_step, first_time = self._first
    if step > first_step:
      self.step_seconds = (now - first_time) / (step - first_step)


def _seconds_in(path: pathlib.Path) -> float:
  """Returns the time of a step that a stage recorded, or 0."""
  try:
    return float(path.read_text())
  except ValueError:  # of a stage that did not train
    return 0.0


def follow(
  stage: Stage,
  running: subprocess.Popen[str],
  title: str,
  console: output.Console,
  pace: Pace,
) -> None:
  """Shows the output of a stage until it ends, and marks the stage as done."""
  pace.begin(stage)
  console.start(title, 'load TensorFlow ...')
  line = error = ''
  for line in running.stdout or ():
    score = re.match(r'\d+  (\S+  \S+ .*)', line)
    if error or line.startswith((_ERROR, 'Traceback')):
      error += line.removeprefix(_ERROR)
    elif line.startswith('warning: '):
      console.finish(line.rstrip())
    elif score:
      console.line(f'  {score[1]}')
    elif line.startswith('Starts after step '):
      console.line(f'  {line.rstrip()}')
    elif line.rstrip().endswith('...'):  # something that may take minutes
      console.start(title, pace.shown(line.rstrip()))
    elif not line.startswith(('Log: ', 'Wrote ')):
      console.update(pace.shown(line.rstrip()))
  status = running.wait()
  if not status:
    stage.done.write_text(f'{pace.step_seconds:.6f}\n')
    console.line(f'{title}  {line.rstrip()}')  # Done in 42 s: ...
    return
  console.line(f'{title}  failed')
  if status == 2:
    raise UserError(error.strip())
  reason = error.strip()
  if not reason:
    reason = f'the process ended with status {status}'
    if status == -9:
      reason += ' (it was killed, probably because memory ran out)'
  raise RunFailed(
    f'{title}: {reason}\nThe log is {stage.model_dir / "log"}; the same '
    'command resumes this stage.'
  )


def _metrics(
  configuration: Configuration, variants: Sequence[str], out: pathlib.Path
) -> dict[str, Any]:
  """Returns the metrics of variants with all seeds done, `variants` first."""
  models = {}
  for variant in dict.fromkeys([*variants, *sorted(os.listdir(out))]):
    seeds = {
      seed: configuration.folder(out, variant, seed)
      for seed in configuration.seeds
    }
    if all((folder / 'evaluate.done').exists() for folder in seeds.values()):
      models[variant] = _measured_seeds(seeds)
  return models


def _measured_seeds(
  seeds: Mapping[int, pathlib.Path],
) -> list[dict[str, Any]]:
  """Returns the metrics of a variant's runs, given their folders by seed."""
  measured = runs.read(*map(str, seeds.values()))
  return [
    {'seed': seed, **_measured(run)}
    for seed, run in zip(seeds, measured, strict=True)
  ]


def _measured(run: runs.Run) -> dict[str, Any]:
  metrics: dict[str, float | None] = {}
  standard_errors: dict[str, float | None] = {}
  counts: dict[str, int | None] = {}
  measured: dict[str, Any] = {
    'metrics': metrics,
    'standard_errors': standard_errors,
    'n': counts,
    'steps_per_second': run.steps_per_second,
    'parameters': run.parameters,
  }
  for result in run.results:
    if result.metric == layouts.LOG_PERPLEXITY:
      # T5's metric is the negative of the paper's.
      value = result.value
      measured['log_perplexity'] = None if value is None else -value
      measured['tokens'] = result.n
    elif result.task != _PRETRAINING_TASK:
      name = f'{result.task}/{result.metric}'
      metrics[name] = result.value
      standard_errors[name] = result.standard_error
      counts[result.task] = result.n
  return measured
