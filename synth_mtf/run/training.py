"""T5's training with progress, clean stopping and reproducible results.

In gin:

    import synth_mtf.progress
    utils.run.train_model_fn = @synth_mtf.train_with_progress
"""

import contextlib
import os
import random
import signal
from typing import Any

import gin
from mesh_tensorflow.transformer import utils

from synth_mtf.checkpoints.folder import step_of
from synth_mtf.errors import UserError
from synth_mtf.host import losses, patches
from synth_mtf.run import current, output, stopping
from synth_mtf.run.hooks import Saver, TrainingHook, fed_step


@gin.configurable(module='synth_mtf')
def train_with_progress(
  estimator: Any,
  *args: Any,
  seed: int | None = None,
  save_seconds: float = 60.0,
  **kwargs: Any,
) -> None:
  """Runs the host's `train_model` with progress, timed checkpoints and a seed.

  Also saves a checkpoint when Ctrl-C or SIGTERM stops it. Stops on NaN or
  infinity, and never saves such weights.

  Args:
    estimator: as in mesh_tensorflow.transformer.utils.train_model.
    *args: as in `train_model`.
    seed: an integer that makes initial values and dropout the same in each run.
      Also set the environment variable PYTHONHASHSEED, because the host seeds
      each operation by the hash of its name, and `mesh_train_dataset_fn.seed`
      for the order of the data.
    save_seconds: minimum time between checkpoints that are not due by
      `utils.run.save_checkpoints_steps`. Saving them takes at most a twentieth
      of the time, so large checkpoints are saved less often.
    **kwargs: as in `train_model`.

  Raises:
    UserError: a seed is set without PYTHONHASHSEED, the loss is not finite, or
      the data ended before the last step.
    SystemExit: a signal stopped the run; the status is 130 or 143.
  """
  run = current.run()
  console = output.console()
  model_dir = estimator and estimator.model_dir
  with contextlib.ExitStack() as stack:
    if seed is not None:
      _seed(estimator, seed)
      # Random values depend on seed and step, even in a resumed run.
      stack.enter_context(run.way.repeatable(fed_step))
    patches.keep_graph_from_events(model_dir)
    stop_signal = stack.enter_context(stopping.on_signals(console.line))
    # Must be a class: the estimator looks for its instances.
    writing = stack.enter_context(run.way.writing())
    settings = {
      'hosts': run.way.hosts,
      'writing': writing,
      'seconds': save_seconds,
    }
    saver = type('Saver', (Saver,), settings)
    stack.enter_context(patches.savers_are(saver))
    used: list[TrainingHook] = []

    def prepare(max_steps: int) -> list[TrainingHook]:
      latest = estimator.latest_checkpoint()
      if latest and step_of(latest) >= max_steps:  # the host does nothing
        run.outcome.result = f'already at step {step_of(latest)}'
        console.finish(run.outcome.result)
        return []
      used.append(
        TrainingHook(
          model_dir,
          max_steps,
          console,
          stop_signal,
          run.way.hosts,
          writing,
          run.outcome,
        )
      )
      return used[-1:]

    patches.before_training(estimator, prepare)
    losses.count_tokens(estimator)
    console.start('train', 'build the model ...')
    utils.train_model(estimator, *args, **kwargs)
  number = stop_signal()
  if number is None and any(hook.has_stopped for hook in used):
    number = signal.SIGTERM  # to another host
  if number is not None:
    last = f'model.ckpt-{used[-1].step}' if used else 'the last checkpoint'
    console.line(f'Stopped. {last} is saved: the same command resumes from it.')
    raise SystemExit(128 + number)
  for hook in used:
    hook.check_complete()


def _seed(estimator: Any, seed: int) -> None:
  if not os.environ.get('PYTHONHASHSEED', 'random').isdigit():
    raise UserError(
      f'synth_mtf.train_with_progress.seed is {seed}, but the environment '
      'variable PYTHONHASHSEED is not set: no two runs would agree. Put '
      'PYTHONHASHSEED=0 in front of the command.'
    )
  random.seed(seed)
  patches.set_seed(estimator, seed)
