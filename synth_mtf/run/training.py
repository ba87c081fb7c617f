"""T5's training as a user can watch, stop and repeat it.

In gin:

    import synth_mtf.progress
    utils.run.train_model_fn = @synth_mtf.train_with_progress
"""

import contextlib
from collections.abc import Callable
from typing import Any, Optional

import gin
from mesh_tensorflow.transformer import utils

from synth_mtf.checkpoints import folder
from synth_mtf.host import events
from synth_mtf.run import (
  attention_summaries,
  output,
  repeatable,
  saving,
  stopping,
)
from synth_mtf.run.console import Console, TrainingProgress
from synth_mtf.run.hooks import (
  FiniteWeightsListener,
  Listener,
  LossHook,
  WithHooks,
)


@gin.configurable(module='synth_mtf')
def train_with_progress(
  estimator: Any,
  vocabulary: Any,
  sequence_length: Any,
  batch_size: int,
  train_dataset_fn: Callable[..., Any],
  train_steps: int,
  ensemble_inputs: Optional[int],
  seed: Optional[int] = None,
  save_seconds: float = 60.0,
  attention_every: Optional[int] = None,
  **kwargs: Any,
) -> None:
  """The host's `train_model` with progress, timely checkpoints and a seed.

  Shows its progress. Saves a checkpoint by time, too, and when Ctrl-C or
  SIGTERM ends it. Stops on NaN or infinity, and saves no such weights.

  Args:
    estimator: as in mesh_tensorflow.transformer.utils.train_model, and so are
      all other arguments but `seed`, `save_seconds` and `attention_every`.
    vocabulary: see there.
    sequence_length: see there.
    batch_size: see there.
    train_dataset_fn: see there.
    train_steps: see there.
    ensemble_inputs: see there.
    seed: an integer; with it, initial values and dropout are the same in each
      run. That also takes the environment variable PYTHONHASHSEED, because the
      host seeds each operation by the hash of its name, and
      `mesh_train_dataset_fn.seed` for the order of the data.
    save_seconds: the least time between two checkpoints that are not due by
      `utils.run.save_checkpoints_steps`. What takes long to save is saved less
      often: no more than a twentieth of the time goes into it.
    attention_every: how many steps lie between two summaries of attention for
      TensorBoard (docs/figures.md); None for none, which costs nothing.
    **kwargs: see there.

  Raises:
    UserError: a seed without PYTHONHASHSEED; a loss that is not finite.
    SystemExit: a signal has ended the run, with a status of 130 or 143.
  """
  console = output.console()
  model_dir = estimator and estimator.model_dir
  hooks: list[Any] = []
  with contextlib.ExitStack() as stack:
    if seed is not None:
      repeatable.seed(estimator, seed)
      stack.enter_context(repeatable.drawn_by_step())
      hooks.append(repeatable.StepHook())
    events.without_graph(model_dir)
    stop = stack.enter_context(stopping.on_signals(console.line))
    stack.enter_context(
      saving.also_by_time(save_seconds, FiniteWeightsListener(model_dir))
    )
    hooks += [
      LossHook(model_dir, train_steps, _shown_on(console)),
      stopping.StopHook(stop),
    ]
    if attention_every is not None:
      watched = attention_summaries.watched(model_dir, attention_every)
      hooks.append(stack.enter_context(watched))
    utils.train_model(
      WithHooks(estimator, *hooks),
      vocabulary,
      sequence_length,
      batch_size,
      train_dataset_fn,
      train_steps,
      ensemble_inputs,
      **kwargs,
    )
  if stop.signal is not None:
    latest = folder.written(model_dir)[-1]
    console.line(
      f'Stopped. {latest} is saved: the same command resumes from it.'
    )
    raise SystemExit(stop.status)


def _shown_on(console: Console) -> Listener:
  def show(progress: TrainingProgress) -> None:
    is_last = progress.step >= progress.total
    (console.finish if is_last else console.update)(str(progress))

  console.start('train')
  return show
