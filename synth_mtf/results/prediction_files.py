"""Scores in T5's event files, with n and errors out of its text files.

T5 writes what targets and predictions were taken for a line each, as Python
shows it. Where a line can be read back, and the task's metric of all lines is
the score that was told, the standard error is that of the metric; an accuracy
has a binomial one in any case.
"""

import ast
import contextlib
import itertools
import math
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Optional

import seqio
import tensorflow.compat.v1 as tf

from synth_mtf.results.records import Result
from synth_mtf.results.standard_error import MetricFn, standard_errors

_OURS = 'synth_'
_ACCURACY = 'accuracy'  # in percent
# Of longer texts, such as summaries, metrics take too long to repeat.
_MOST_CHARACTERS = 1_000_000
# The event files hold float32.
_AGREE = 1e-5


def results(
  folder: str, task: str, split: str, step: int, values: Mapping[str, float]
) -> list[Result]:
  """Returns what is known of a task at a checkpoint.

  Args:
    folder: of the evaluation.
    task: its name.
    split: of its examples.
    step: of the checkpoint.
    values: of its metrics, as the event files tell them.
  """
  targets = _lines(os.path.join(folder, f'{task}_targets'))
  predictions = _lines(os.path.join(folder, f'{task}_{step}_predictions'))
  n = None
  errors: Mapping[str, Optional[float]] = {}
  if targets and len(targets) == len(predictions):
    n = len(targets)
    errors = _errors(task, values, targets, predictions)
  return [
    Result(
      task=task,
      split=split,
      metric=metric,
      value=value if math.isfinite(value) else None,
      n=n,
      unit='example',
      standard_error=errors.get(metric),
      step=step,
    )
    for metric, value in values.items()
  ]


def _errors(
  task: str,
  values: Mapping[str, float],
  targets: Sequence[str],
  predictions: Sequence[str],
) -> Mapping[str, Optional[float]]:
  """The errors of those metrics that come out as they were told.

  An accuracy, of which nothing but n need be known, has that of a share.
  """
  accuracy = values.get(_ACCURACY, -1.0)
  errors: dict[str, Optional[float]] = {}
  if 0 <= accuracy <= 100:
    variance = accuracy * (100 - accuracy) / len(targets)
    errors[_ACCURACY] = math.sqrt(variance)
  if sum(map(len, itertools.chain(targets, predictions))) > _MOST_CHARACTERS:
    return errors
  # A number may be a text that was written: what agrees with the score is it.
  readings = itertools.product(_readings(targets), _readings(predictions))
  for pair, metric_fn in itertools.product(readings, _metric_fns(task)):
    # A metric is anyone's code, and was not made for what was read back.
    with contextlib.suppress(Exception), warnings.catch_warnings():
      warnings.simplefilter('ignore')
      found = metric_fn(*pair)
      agree = {
        name
        for name, value in found.items()
        if name in values
        and math.isclose(value, values[name], rel_tol=_AGREE, abs_tol=_AGREE)
      }
      if agree:
        every = standard_errors(metric_fn, *pair)
        errors.update({name: every.get(name) for name in agree})
  return errors


def _metric_fns(task: str) -> Sequence[MetricFn]:
  """The metrics of a task of ours, or of T5's task that ours is made after."""
  for name in (task, _OURS + task):
    if name in seqio.TaskRegistry.names():
      return seqio.TaskRegistry.get(name).metric_fns
  return ()


def _readings(lines: Sequence[str]) -> list[list[Any]]:
  """What lines may show: texts, or numbers and collections, if all do."""
  readings: list[list[Any]] = [list(lines)]
  with contextlib.suppress(
    ValueError, SyntaxError, MemoryError, RecursionError
  ):
    readings.append(list(map(ast.literal_eval, lines)))
  return readings


def _lines(path: str) -> list[str]:
  """The lines of a file; a line ends in nothing but a line feed."""
  if not tf.io.gfile.exists(path):
    return []
  with tf.io.gfile.GFile(path, 'rb') as stream:
    return stream.read().decode('utf-8', 'replace').split('\n')[:-1]
