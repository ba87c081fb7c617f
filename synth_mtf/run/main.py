"""Runs T5's own main with our layer and tasks.

`synth-mtf transformer` runs `t5_mesh_transformer` with its flags, except that
torch is not needed, TensorFlow 2.20 works, `synth_mtf` and `synth_mtf.tasks`
are imported without a flag, variables are resource variables (ref variables
race on a CPU: updates arrive while gradients still read them, so no two runs
agree), progress is shown line by line while TensorFlow's output goes to a log,
and each known mistake is reported in one message.
"""

import contextlib
import errno
import importlib
import logging
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager

import synth_mtf
from synth_mtf.errors import RunFailed, UserError
from synth_mtf.run import output, process, stopping
from synth_mtf.run.outcome import Outcome

_MOST_LINES = 5  # of an unknown error
# Modules whose flags --help lists.
FLAG_MODULES = (
  't5.models.mesh_transformer_main',
  'mesh_tensorflow.transformer.utils',
  'synth_mtf.tasks.data_settings',
  __name__,
)


def prepare() -> None:
  """Imports what a run needs, defines all flags, and leaves TensorFlow 2.

  It starts nothing of TensorFlow's runtime: a fork may run.
  """
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '1')
  process.load_plugin()
  for module in (
    't5.models.mesh_transformer_main',
    't5.data.mixtures',
    'synth_mtf.checked',
    'synth_mtf.recorded',
  ):
    importlib.import_module(module)
  import tensorflow.compat.v1 as tf
  from absl import flags

  from synth_mtf import tasks

  tf.disable_v2_behavior()
  tf.enable_resource_variables()
  tasks.define_flags()

  if 'verbose' not in flags.FLAGS:
    flags.DEFINE_bool(
      'verbose',
      False,
      "Shows all output of TensorFlow instead of writing it to the run's log.",
      module_name=__name__,
    )
    flags.DEFINE_enum(
      'device',
      None,
      ['cpu', 'gpu', 'tpu'],
      'Computes on all devices of this kind that JAX finds, through XLA; see '
      'docs/scaling.md. Not with --tpu, which is how TensorFlow itself reaches '
      'TPUs.',
      module_name=__name__,
    )
    flags.DEFINE_string(
      'coordinator_address',
      None,
      'host:port of process 0, for --device on several hosts. Give the same '
      'command on each, with its own --process_id. On a TPU slice, JAX finds '
      'the hosts itself.',
      module_name=__name__,
    )
    flags.DEFINE_integer(
      'num_processes',
      None,
      'The number of hosts, one process on each.',
      module_name=__name__,
    )
    flags.DEFINE_integer(
      'process_id',
      None,
      'The number of this host, from 0; 0 writes to --model_dir.',
      module_name=__name__,
    )


def run(words: Sequence[str]) -> int:
  """Runs T5's main with the given flags, and returns the exit status."""

  def say(text: str) -> None:
    output.console().line(text)

  with stopping.acknowledged(say, 'ending the run.'):
    return _run(words)


def _run(words: Sequence[str]) -> int:
  is_verbose = '--verbose' in words
  printed = output.Kept()  # before the log is opened
  with (
    output.Console().passing('load TensorFlow ...'),
    contextlib.nullcontext() if is_verbose else output.kept(printed),
  ):
    prepare()

    import tensorflow.compat.v1 as tf

    from synth_mtf.host import explanations

    tf.logging.set_verbosity(tf.logging.INFO)
    with explanations.explained():  # a TPU may be out of order
      tf.config.list_physical_devices()  # TensorFlow 2.20 prints what it lacks

  import gin
  from absl import app, flags
  from absl.testing import flagsaver
  from t5.models import mesh_transformer_main

  from synth_mtf.host import patches, user_modules
  from synth_mtf.run import (
    current,
    flags_of_model_api,
    model_dir as model_dirs,
    ways,
  )

  def main(argv: Sequence[str]) -> None:
    flags_of_model_api.check()
    run = current.Run(ways.of_flags(flags.FLAGS))
    if flags.FLAGS.use_model_api:  # it does not pass through `checked_run`
      run.way.check_mode(flags.FLAGS.mode or '')
    with (
      current.begun(run),
      run.way.joined(flags.FLAGS.model_dir) as model_dir,
    ):
      flags.FLAGS.model_dir = model_dir
      run_in(model_dir, run, argv)

  def run_in(model_dir: str, run: current.Run, argv: Sequence[str]) -> None:
    if run.way.shows_progress:
      gin.parse_config(  # gin files may override it
        'import synth_mtf.progress\n'
        'utils.run.train_model_fn = @synth_mtf.train_with_progress'
      )
    showing: AbstractContextManager[None] = contextlib.nullcontext()
    if not flags.FLAGS.verbose:
      showing = shown(model_dir, run.outcome, printed)
    with (
      model_dirs.opened(model_dir),
      showing,
      run.way.entered(),
      explanations.explained(
        lambda error: model_dirs.explain(error, model_dir)
      ),
      _full_disk_named(model_dir),
    ):
      user_modules.import_all(flags.FLAGS.module_import)  # T5 would, too
      mesh_transformer_main.main(argv)

  separate_gin = patches.separate_gin()
  try:
    # The next command of this process begins without what this one was given.
    with (
      separate_gin(),
      flagsaver.flagsaver(),
      patches.separate_caches(),
    ):
      app.run(main, [sys.argv[0], *words])
  except SystemExit as done:  # from app.run or a stopped run
    return int(done.code or 0)
  return 0


@contextlib.contextmanager
def _full_disk_named(folder: str) -> Iterator[None]:
  """Adds the folder to an error that only says that some disk is full."""
  try:
    yield
  except OSError as error:
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    if not is_full or error.filename:
      raise
    raise OSError(error.errno, error.strerror, folder) from error


@contextlib.contextmanager
def shown(
  model_dir: str, outcome: Outcome, printed: output.Kept
) -> Iterator[None]:
  """Shows a run line by line, and writes TensorFlow's output to its log.

  Args:
    model_dir: the folder of the run.
    outcome: what the run adds to, and the last lines show.
    printed: what the process has printed so far, with which the log begins.

  Raises:
    RunFailed: the cause of an error is unknown; the log has the traceback.
  """
  from absl import logging as absl_logging

  from synth_mtf.host import explanations

  start = time.monotonic()
  with _log_of(model_dir) as log, output.to_log(log, printed):
    console = output.console()
    console.line(f'Log: {log}')
    console.start('prepare', 'check data, settings and model ...')
    logger = absl_logging.get_absl_logger()
    handler = _OurWarnings()
    logger.addHandler(handler)
    try:
      yield
    except Exception as error:
      with contextlib.suppress(OSError):  # the log's disk is full
        traceback.print_exc()
      if isinstance(error, UserError):
        raise
      raise RunFailed(
        f'{type(error).__name__}: {_shortened(explanations.cause(error))}\n'
        f'The traceback is in {log}.'
      ) from error
    finally:
      logger.removeHandler(handler)
    for line in outcome.written():
      console.line(line)
    end = f': {outcome.result}' if outcome.result else '.'
    console.line(f'Done in {output.duration(time.monotonic() - start)}{end}')


@contextlib.contextmanager
def _log_of(model_dir: str) -> Iterator[str]:
  """Yields the path of a run's log: `log`, or a new file elsewhere.

  The latter is removed if nothing was written to it, or if the run was refused:
  the message says all.
  """
  if os.access(model_dir, os.W_OK):
    yield os.path.join(model_dir, 'log')
    return
  # A bucket, or read-only. Anybody could have made a file of a known name.
  descriptor, path = tempfile.mkstemp(prefix='synth-mtf-', suffix='.log')
  os.close(descriptor)
  try:
    yield path
  except UserError:
    os.remove(path)
    raise
  if not os.path.getsize(path):
    os.remove(path)


def _shortened(text: str) -> str:
  """Returns the first lines of a message, whose rest is in the log."""
  lines = text.splitlines()
  rest = ['...'] if len(lines) > _MOST_LINES else []
  return '\n'.join([*lines[:_MOST_LINES], *rest])


class _OurWarnings(logging.Handler):
  """Shows each of this package's warnings once."""

  def __init__(self) -> None:
    super().__init__(logging.WARNING)
    self._seen: set[str] = set()

  def emit(self, record: logging.LogRecord) -> None:
    message = record.getMessage()
    is_ours = record.pathname.startswith(os.path.dirname(synth_mtf.__file__))
    if is_ours and message not in self._seen:
      self._seen.add(message)  # reading a file again repeats its warnings
      output.console().line(f'warning: {message}')
