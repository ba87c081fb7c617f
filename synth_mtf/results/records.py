"""Reads and writes evaluation results: metrics.json and predictions.jsonl.

metrics.json has an entry for each task, metric and checkpoint; the index `run`
of an entry refers to its origin. predictions.jsonl has a line for each example
and checkpoint. New results replace those of the same task and checkpoint;
a lock keeps two evaluations of a folder from losing each other's. docs/runs.md
describes both formats.
"""

import dataclasses
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args, get_type_hints

import numpy as np
from absl import logging

from synth_mtf.storage import atomic, filesystem, json_files

METRICS = 'metrics.json'
ORIGINS = 'origins.json'
PREDICTIONS = 'predictions.jsonl'
# Held while one of these files is changed: evaluations may run side by side.
LOCK = 'results.lock'

# Where results come from (run/origin.py), with the operative `gin`.
Origin = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Result:
  """One metric of one task at one checkpoint.

  Attributes:
    task: registered name of the task.
    split: such as 'validation'.
    metric: the host's name for the metric.
    value: None if it is NaN or infinite.
    n: number of examples, questions or tokens evaluated, if known.
    unit: what `n` counts: 'example', 'question' (standard_error.py) or 'token'.
    standard_error: over the units, if known; see standard_error.py.
    step: step of the checkpoint.
    data: paths.GENERATED if the examples were generated, else ''.
    digest: of the official files; '' for TFDS, or if they are large.
    reason: why `value` is None, if known.
  """

  task: str
  split: str
  metric: str
  value: float | None
  n: int | None
  unit: str
  standard_error: float | None
  step: int
  data: str = ''
  digest: str = ''
  reason: str = ''

  @property
  def key(self) -> tuple[int, str, str, str]:
    """Identifies a result in a folder."""
    return self.step, self.task, self.split, self.metric


def read(folder: str) -> list[tuple[Result, Origin]]:
  """Returns the results in a folder, each with its origin."""
  return json_files.read(folder, METRICS, _parsed) or []


def _parsed(content: Any) -> list[tuple[Result, Origin]]:
  pairs = []
  for entry in content['results']:
    run = entry.pop('run')
    pairs.append((_checked(Result(**entry)), content['runs'][run]))
  return pairs


def _checked(result: Result) -> Result:
  """Raises an exception if a field of a result has another type."""
  for name, annotation in get_type_hints(Result).items():
    value = getattr(result, name)
    types = get_args(annotation) or (annotation,)
    if isinstance(value, int):  # JSON does not tell 1 from 1.0
      value = float(value) if float in types else int(np.int64(value))
    if not isinstance(value, types):
      raise TypeError(f'{name}: {value!r:.99}')
  return result


def add_results(
  folder: str, results: Iterable[Result], made_with: Origin
) -> None:
  """Adds results to metrics.json; raises a UserError if it is not ours."""
  with atomic.one_at_a_time(folder, LOCK):
    _add_results(folder, results, made_with)


def _add_results(
  folder: str, results: Iterable[Result], made_with: Origin
) -> None:
  pairs = [*read(folder), *((result, made_with) for result in results)]
  by_key = {result.key: (result, origin) for result, origin in pairs}
  entries, origins = [], []
  for _, (result, origin) in sorted(by_key.items()):
    if origin not in origins:
      origins.append(origin)
    entry = {**vars(result), 'run': origins.index(origin)}
    if not result.reason:
      del entry['reason']  # earlier releases do not know it
    entries.append(entry)
  content = {'format': 1, 'results': entries, 'runs': origins}
  path = os.path.join(folder, METRICS)
  json_files.write(path, _plain(content), indent=1)


def add_predictions(
  folder: str,
  task: str,
  split: str,
  step: int,
  examples: Sequence[Mapping[str, Any]],
) -> None:
  """Replaces the predictions of a task at a step in predictions.jsonl.

  Examples have `input`, `target`, `prediction`, `read_as`, `target_read_as`.
  Where a metric is the mean over them, they also have `scores`.
  """
  name = {'task': task, 'split': split, 'step': step}
  path = os.path.join(folder, PREDICTIONS)
  with atomic.one_at_a_time(folder, LOCK), atomic.writing(path) as stream:
    for line in _lines_of_others(path, name):
      stream.write(line + '\n')
    for number, example in enumerate(examples):
      entry = _plain({**name, 'example': number, **example})
      stream.write(json.dumps(entry, ensure_ascii=False) + '\n')


def _lines_of_others(path: str, name: Mapping[str, Any]) -> Iterator[str]:
  """Yields the lines of a file, if it exists, that have another name."""
  if not filesystem.exists(path):
    return
  with filesystem.reading(path) as stream:
    for number, data in enumerate(stream, 1):
      try:
        line = data.decode().rstrip('\n')
        has_name = name.items() <= json.loads(line).items()
      except (ValueError, AttributeError, RecursionError):
        logging.warning('%s:%d: cut or altered; left out', path, number)
        continue
      if not has_name:
        yield line


def _plain(value: Any) -> Any:
  """Converts to JSON's types: bytes to text, NaN and infinities to None."""
  if isinstance(value, bytes):
    return value.decode('utf-8', 'replace')
  if isinstance(value, Mapping):
    return {str(_plain(key)): _plain(item) for key, item in value.items()}
  if isinstance(value, (np.ndarray, np.generic)):
    return _plain(value.tolist())
  if isinstance(value, (list, tuple)):
    return [_plain(item) for item in value]
  if isinstance(value, float) and not math.isfinite(value):
    return None
  if value is None or isinstance(value, (str, int, float)):
    return value
  return str(value)
