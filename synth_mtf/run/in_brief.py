"""What `synth-mtf transformer` shows of a run; its log has the rest."""

import contextlib
import logging
import pathlib
import time
import traceback
from collections.abc import Iterator

from absl import logging as absl_logging

import synth_mtf
from synth_mtf.errors import RunFailed, UserError
from synth_mtf.recorded import RECORDER
from synth_mtf.results.records import Result
from synth_mtf.run import output
from synth_mtf.run.console import Console, duration
from synth_mtf.run.recording import OnDecoded, OnResult

_SECONDS_BETWEEN_UPDATES = 0.2


@contextlib.contextmanager
def shown(model_dir: str) -> Iterator[None]:
  """Shows a run line by line, and writes TensorFlow's words to its log.

  Args:
    model_dir: the run's folder.

  Yields:
    Nothing.

  Raises:
    RunFailed: an error that nothing explains; the log has its traceback.
  """
  log = output.log_of(model_dir)
  begun = time.monotonic()
  with output.to_log(log):
    console = output.console()
    console.line(f'Log: {log}')
    console.start('prepare')
    RECORDER.tell(*_shown_on(console))
    try:
      with _our_warnings_shown_on(console):
        yield
    except Exception as error:
      with contextlib.suppress(OSError):  # the log's disk is full
        traceback.print_exc()
      if isinstance(error, UserError):
        raise
      lines = str(error).strip().splitlines() or ['no message']
      raise RunFailed(
        f'{type(error).__name__}: {lines[0]}\nThe traceback is in {log}.'
      ) from error
    console.line(f'Done in {duration(time.monotonic() - begun)}.')


@contextlib.contextmanager
def _our_warnings_shown_on(console: Console) -> Iterator[None]:
  """Shows what this package warns of, such as rows that are left out."""
  here = str(pathlib.Path(synth_mtf.__file__).parent)
  told: set[str] = set()

  class Handler(logging.Handler):
    """Shows the records of this package."""

    def emit(self, record: logging.LogRecord) -> None:
      """Shows a record."""
      message = record.getMessage()
      if record.pathname.startswith(here) and message not in told:
        told.add(message)  # a file is read several times
        console.line(f'warning: {message}')

  handler, logger = Handler(logging.WARNING), absl_logging.get_absl_logger()
  logger.addHandler(handler)
  try:
    yield
  finally:
    logger.removeHandler(handler)


def _shown_on(console: Console) -> tuple[OnDecoded, OnResult]:
  """Returns what shows progress and results of an evaluation."""
  updated = 0.0

  def decoded(step: int, examples: int) -> None:
    nonlocal updated
    if examples == 1:
      console.start(f'decode, checkpoint {step}')
    if time.monotonic() - updated >= _SECONDS_BETWEEN_UPDATES:
      console.update(f'{examples} examples')
      updated = time.monotonic()

  def result(found: Result) -> None:
    value = '-' if found.value is None else f'{found.value:.3f}'
    error = found.standard_error
    spread = '' if error is None else f' +- {error:.3f}'
    console.line(
      f'checkpoint {found.step}  {found.task}  {found.metric} {value}{spread}  '
      f'({found.n} {found.unit}s)'
    )

  return decoded, result
