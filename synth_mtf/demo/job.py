"""A demo: checks everything, makes the data, runs the stages of each variant.

The folder of a demo holds:

    run.json                    the configuration; no other may run here
    data/, vocabulary.model     unless they are given
    <run>/pretrain, finetune    checkpoints, TensorBoard summaries, evaluations
    <run>/<stage>.done          the stage is done
    table.md, metrics.json, report.html, log

<run> is the variant or, with several seeds, <variant>/seed_<seed>.
"""

import contextlib
import dataclasses
import gc
import json
import os
import pathlib
import shutil
from collections.abc import Sequence
from typing import Any

from synth_mtf import atomic, paths
from synth_mtf.demo import configuration as configurations
from synth_mtf.demo import corpus
from synth_mtf.demo.configuration import BYTES, Configuration
from synth_mtf.demo.stages import (
  PRETRAINING_TASK,
  Stage,
  follow,
  run_folder,
  stages,
  started,
  task_settings,
)
from synth_mtf.errors import UserError
from synth_mtf.run import output, process
from synth_mtf.run.console import Console


class Job:
  """A demo run.

  Args:
    configuration: what to run.
    variants: files of gin/variants; each is pretrained, finetuned, evaluated.
    out: the folder for all files.
    console: where progress is shown.
  """

  def __init__(
    self,
    configuration: Configuration,
    variants: Sequence[str],
    out: str,
    console: Console,
  ) -> None:
    self._configuration = configuration
    self._described = json.loads(json.dumps(dataclasses.asdict(configuration)))
    self._variants = variants
    self._out = pathlib.Path(out).absolute()
    self._console = console

  def run(self) -> None:
    """Does what has not been done yet, and writes metrics.json.

    Raises:
      UserError: a mistake, found before anything was written or trained.
      RunFailed: a stage failed; the same command resumes there.
    """
    configuration, out = self._configuration, self._out
    configurations.check(configuration, self._variants)
    _check_folder(out, self._described)
    batches = [
      batch
      for variant in self._variants
      for seed in configuration.seeds
      for batch in stages(variant, seed, configuration, out)
    ]
    todo = [s for batch in batches for s in batch if not s.done.exists()]
    with self._console.task('check data, gin files and models'):
      process.load_quietly()
      gc.freeze()  # collections need not visit what TensorFlow has imported
      with output.kept():
        self._check(todo)
    from synth_mtf.run import model_dir

    out.mkdir(parents=True, exist_ok=True)
    model_dir.lock(str(out))
    try:
      if not (out / 'run.json').exists():
        _write_json(out / 'run.json', self._described)
      self._make_data()
      self._run_stages(batches)
      metrics = {'configuration': self._described, 'models': self._metrics()}
      _write_json(out / 'metrics.json', metrics)
    finally:
      model_dir.unlock_all()

  def finished(self) -> list[str]:
    """Returns the variants whose seeds are all done, requested ones first."""
    configuration, out = self._configuration, self._out
    names = [*self._variants, *sorted(os.listdir(out))]
    return [
      name
      for name in dict.fromkeys(names)
      if all(
        (run_folder(name, seed, configuration, out) / 'evaluate.done').exists()
        for seed in configuration.seeds
      )
    ]

  def _check(self, todo: Sequence[Stage]) -> None:
    """Checks the data, the gin files and the models of stages.

    Parsing gin files finds an unknown name; only building a model finds a
    sequence longer than a table, or an argument that a layer does not have.
    """
    from synth_mtf import tasks
    from synth_mtf.host import errors, gin_files
    from synth_mtf.run import checks, config

    configuration = self._configuration
    tasks.get(configuration.mixture)
    if configuration.data_dir is not None:
      needs_text = configuration.pretrain_steps or not configuration.vocabulary
      names = [PRETRAINING_TASK] if needs_text else []
      self._use_data()
      with errors.explained():
        tasks.check([*names, configuration.mixture], ['train', 'validation'])
    # Whatever is wrong with a model, it is not its vocabulary or its seed.
    vocabulary = f'synth_mtf.tasks.settings.vocabulary = {BYTES!r}'
    for stage in {(one.name, one.gin_files): one for one in todo}.values():
      with errors.explained():
        gin_files.parse(stage.gin_files, [*stage.gin_params, vocabulary])
        checks.build(config.read(str(stage.model_dir)))

  def _use_data(self) -> None:
    """Makes the tasks of this process read the demo's data."""
    from synth_mtf.host import gin_files

    settings = task_settings(self._configuration, self._out).items()
    gin_files.parse(
      [], [f'synth_mtf.tasks.settings.{name} = {v!r}' for name, v in settings]
    )

  def _make_data(self) -> None:
    configuration, out = self._configuration, self._out
    data, vocabulary = out / 'data', out / 'vocabulary.model'
    if configuration.data_dir is None and not data.exists():
      with self._console.task('copy samples, gather documentation text'):
        partial = out / '.data.partial'
        shutil.rmtree(partial, ignore_errors=True)  # left by a killed process
        shutil.copytree(paths.samples_path(), partial)
        corpus.write(partial / 'corpus')
        os.replace(partial, data)
    if configuration.vocabulary is None and not vocabulary.exists():
      from synth_mtf import tasks
      from synth_mtf.tasks.vocabulary import train

      with (
        self._console.task('train vocabulary'),
        output.to_log(str(out / 'log')),
      ):
        self._use_data()
        rows = tasks.get(PRETRAINING_TASK).source.chosen.examples('train')
        train((row['text'] for row in rows), vocabulary)

  def _run_stages(self, batches: Sequence[Sequence[Stage]]) -> None:
    from synth_mtf.checkpoints import folder

    number, count = 0, sum(map(len, batches))
    for batch in batches:
      with contextlib.ExitStack() as stack:
        for stage in batch:
          folder.repair_pointer(str(stage.model_dir))
        processes = [
          None if stage.done.exists() else stack.enter_context(started(stage))
          for stage in batch
        ]
        for stage, running in zip(batch, processes):
          number += 1
          run = stage.run.relative_to(self._out)
          title = f'[{number}/{count}] {run}: {stage.name}'
          if running is None:
            self._console.line(f'{title}  done before')
          else:
            follow(stage, running, title, self._console)

  def _metrics(self) -> dict[str, list[dict[str, Any]]]:
    """Returns what was measured, by variant and seed."""
    from synth_mtf.results import runs

    configuration, out = self._configuration, self._out
    return {
      variant: [
        {'seed': seed, **_measured(runs.read(str(run))[0])}
        for seed in configuration.seeds
        for run in [run_folder(variant, seed, configuration, out)]
      ]
      for variant in self.finished()
    }


def _measured(run: Any) -> dict[str, Any]:
  found = {
    'metrics': {},
    'standard_errors': {},
    'n': {},
    'steps_per_second': run.steps_per_second,
    'parameters': run.parameters,
  }
  for result in run.results:
    if result.metric == 'neg_log_perplexity':
      found['log_perplexity'] = None if result.value is None else -result.value
      found['tokens'] = result.n
    elif result.task != PRETRAINING_TASK:
      name = f'{result.task}/{result.metric}'
      found['metrics'][name] = result.value
      found['standard_errors'][name] = result.standard_error
      found['n'][result.task] = result.n
  return found


def _check_folder(out: pathlib.Path, configuration: dict[str, Any]) -> None:
  """Refuses a folder that is not new and not of this configuration.

  Raises:
    UserError: nothing has been changed.
  """
  if out.exists() and not out.is_dir():
    raise UserError(f'--out {out} is a file; expected a folder.')
  there = next(one for one in (out, *out.parents) if one.exists())
  if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
    raise UserError(
      f'--out {out} cannot be created: {there} is not a folder that you may '
      'write to.'
    )
  manifest = out / 'run.json'
  if not manifest.exists():
    ours = ('.', 'training.lock')  # what a killed process leaves
    if there == out and not all(n.startswith(ours) for n in os.listdir(out)):
      raise UserError(
        f'--out {out} holds something other than a demo; nothing was changed. '
        'Give an empty folder or one that does not exist.'
      )
    return
  try:
    made_with = json.loads(manifest.read_text())
  except ValueError as error:
    raise UserError(
      f'{manifest} does not parse ({error}), so it is unknown what --out {out} '
      'holds; nothing was changed. Choose another --out.'
    ) from error
  differences = [
    f'  {name}: {made_with.get(name)!r} there, {value!r} now'
    for name, value in configuration.items()
    if made_with.get(name) != value
  ]
  if differences:
    raise UserError(
      f'--out {out} holds a demo of another configuration; nothing was '
      'changed. Choose another --out, or give what it was made with:\n'
      + '\n'.join(differences)
    )


def _write_json(path: pathlib.Path, value: Any) -> None:
  atomic.write(path, json.dumps(value, indent=2) + '\n')
