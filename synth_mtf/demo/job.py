"""The main job: check everything, make the data, run the stages, report."""

import pathlib
import shutil
import string
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from synth_mtf.demo import configuration as configurations
from synth_mtf.demo import workers
from synth_mtf.demo.configuration import Configuration
from synth_mtf.demo.run_folder import RunFolder
from synth_mtf.demo.stages import Stage, stages, task_settings
from synth_mtf.errors import UserError
from synth_mtf.results import printing
from synth_mtf.results.printing import Grid
from synth_mtf.run.console import Console, TrainingProgress, duration

_WORK = 'synth_mtf.demo.work'
_FOUND = {  # what a stage has found, for a person
  'pretrain': '{steps_per_second:.1f} steps/s',
  'perplexity': 'validation log perplexity {log_perplexity:.3f}',
  'finetune': '{steps_per_second:.1f} steps/s',
  'evaluate': 'GLUE, SuperGLUE and SQuAD metrics are in the table',
}


class Job:
  """A demo run.

  Args:
    configuration: what to run.
    variants: files of gin/variants; each is pretrained, finetuned, evaluated.
    out: the folder to which everything is written.
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
    self._variants = variants
    self._console = console
    self._seconds: dict[str, float] = {}  # how long each stage took last time
    self.folder = RunFolder(out, configuration)

  def run(self) -> Grid:
    """Does what has not been done yet and returns the table of results.

    Raises:
      UserError: a mistake, found before anything was trained or written.
      workers.WorkerFailed: some work failed; the same command resumes there.
    """
    configurations.check(self._configuration, self._variants)
    self.folder.check()
    workers.prepare([_WORK])
    self._check()
    with self.folder.opened():
      self._make_data()
      todo = self._stages()
      for number, stage in enumerate(todo, start=1):
        self._run_stage(stage, f'[{number}/{len(todo)}]')
      return self._report()

  def _check(self) -> None:
    """Finds all bad input, before anything is written."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix='synth-mtf-check-'))
    try:
      self._check_with(folder)
    except workers.WorkerFailed:
      raise  # the log that the message names is in the folder
    except BaseException:
      shutil.rmtree(folder)
      raise
    shutil.rmtree(folder)

  def _check_with(self, folder: pathlib.Path) -> None:
    configuration, log = self._configuration, folder / 'check.log'
    if configuration.data_dir is not None:
      settings = task_settings(configuration, self.folder)
      self._work(
        'check data',
        log,
        'check_data',
        {**settings, 'index_dir': str(folder / 'index')},
        configuration.mixture,
      )
    self._work(
      'check gin files and models',
      log,
      'check_models',
      self._stages(),
      configuration.mixture,
    )

  def _make_data(self) -> None:
    folder, configuration = self.folder, self._configuration
    if configuration.data_dir is None and not folder.data.exists():
      self._work(
        'copy samples, gather documentation text',
        folder.log('data'),
        'make_data',
        folder.data,
      )
    if configuration.vocabulary is None and not folder.vocabulary.exists():
      self._work(
        'train vocabulary',
        folder.log('vocabulary'),
        'train_vocabulary',
        task_settings(configuration, folder),
        folder.vocabulary,
      )

  def _stages(self) -> list[Stage]:
    return [
      stage
      for variant in self._variants
      for seed in self._configuration.seeds
      for stage in stages(variant, seed, self._configuration, self.folder)
    ]

  def _run_stage(self, stage: Stage, number: str) -> None:
    several = len(self._configuration.seeds) > 1
    seed = [f'seed_{stage.seed}'] if several else []
    title = f'{number} {" ".join([stage.variant, *seed])}: {stage.name}'
    if self.folder.result(stage.variant, stage.seed, stage.name) is not None:
      self._console.line(f'{title}  done before')
      return
    log = self.folder.log(stage.variant, *seed, stage.name)
    begun = time.monotonic()
    found = self._work(
      title,
      log,
      'run_stage',
      stage,
      found=_FOUND[stage.name],
      expected_seconds=self._seconds.get(stage.name),
    )
    self._seconds[stage.name] = time.monotonic() - begun
    self.folder.finish(stage.variant, stage.seed, stage.name, found)

  def _report(self) -> Grid:
    """Writes table and page of all variants there; returns the table."""
    rows = self.folder.rows(first=self._variants)
    grid = self._work(
      'make table',
      self.folder.log('table'),
      'tabulate',
      str(self.folder.path),
      list(rows),
    )
    self.folder.report(rows, printing.markdown(grid))
    self._work(
      'make page',
      self.folder.log('page'),
      'make_page',
      str(self.folder.path),
      list(rows),
      str(self.folder.page),
    )
    return grid

  def _work(
    self,
    title: str,
    log: pathlib.Path,
    function: str,
    *arguments: Any,
    found: str = '',
    expected_seconds: Optional[float] = None,
  ) -> Any:
    """Runs a function of work.py in a worker, and shows how far it has come."""
    console = self._console
    begun = time.monotonic()
    progress: Optional[TrainingProgress] = None

    def elapsed() -> str:
      return duration(time.monotonic() - begun)

    def so_far() -> str:
      left = (expected_seconds or 0) - (time.monotonic() - begun)
      return elapsed() + (f'  about {duration(left)} left' if left > 0 else '')

    def on_report(report: TrainingProgress) -> None:
      nonlocal progress
      progress = report
      console.update(str(report))

    console.start(title)
    try:
      result = workers.run(
        f'{_WORK}:{function}',
        *arguments,
        log=log,
        on_report=on_report,
        on_tick=lambda: console.update(str(progress or so_far())),
      )
    except UserError:
      console.finish('failed')
      raise
    except workers.WorkerFailed as failure:
      console.finish('failed')
      raise workers.WorkerFailed(
        f'{title}: {failure}. The log is {log}; the same command goes on where '
        'this one ended.'
      ) from failure
    parts = [f'loss {progress.loss:.3f}'] if progress else []
    parts += _said(found, result) if found else []
    console.finish(', '.join([*parts, elapsed()]))
    return result


def _said(template: str, found: Mapping[str, Any]) -> list[str]:
  """What a template says; nothing where a number of it could not be had."""
  names = [name for _, name, _, _ in string.Formatter().parse(template) if name]
  if any(found[name] is None for name in names):
    return []
  return [template.format_map(found)]
