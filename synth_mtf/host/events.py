"""The event files that TensorBoard reads."""

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow.compat.v1 as tf

_PREFIX = 'events.out.tfevents.'


@dataclasses.dataclass(frozen=True)
class Events:
  """What the event files of a folder say.

  Attributes:
    scalars: of each tag, the value at each step, in order of the steps.
    texts: of each tag, what was written last.
  """

  scalars: Mapping[str, Mapping[int, float]]
  texts: Mapping[str, str]


def read(folder: str) -> Events:
  """Reads the event files of a folder, none of which need be whole.

  A file whose end is missing or damaged gives what comes before. What was
  written later takes the place of what was there: a run that was resumed goes
  over some of its steps again.

  Args:
    folder: local or in a bucket; its name is no pattern.
  """
  scalars: dict[str, dict[int, float]] = {}
  texts: dict[str, str] = {}
  for event in _events(folder):
    for value in event.summary.value:
      if value.HasField('simple_value'):
        scalars.setdefault(value.tag, {})[event.step] = value.simple_value
      elif value.HasField('tensor'):
        found = tf.make_ndarray(value.tensor)
        if found.dtype == object and found.size == 1:
          texts[value.tag] = found.item().decode('utf-8', 'replace')
        elif found.dtype != object and found.size == 1:  # as TPUs write it
          scalars.setdefault(value.tag, {})[event.step] = float(found.item())
  return Events(
    {tag: dict(sorted(values.items())) for tag, values in scalars.items()},
    texts,
  )


def are_in(folder: str) -> bool:
  """Whether a folder has event files."""
  return any(_files(folder))


def without_graph(folder: str) -> None:
  """Has this process's hooks write events to a folder without the graph.

  They share one writer a folder, which TensorFlow makes with the graph of the
  first of them, twice: as such and as a meta graph.
  """
  cache = tf.summary.FileWriterCache
  with cache._lock:
    if folder not in cache._cache:
      cache._cache[folder] = tf.summary.FileWriter(folder)


def _events(folder: str) -> Iterator[Any]:
  # Their names begin with the time at which they were begun.
  for name in sorted(_files(folder)):
    with contextlib.suppress(tf.errors.DataLossError):
      yield from tf.train.summary_iterator(os.path.join(folder, name))


def _files(folder: str) -> Iterator[str]:
  if tf.io.gfile.isdir(folder):
    for name in tf.io.gfile.listdir(folder):
      if name.startswith(_PREFIX):
        yield name
