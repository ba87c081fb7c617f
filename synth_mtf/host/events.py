"""Reads the event files of TensorBoard."""

import contextlib
import itertools
import os
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow.compat.v1 as tf

from synth_mtf import paths

Scalars = Mapping[str, Mapping[int, float]]  # values by tag and step


def read(folder: str) -> Scalars:
  """Reads the event files of a folder, which may be local or in a bucket.

  Reads a truncated or damaged file up to the damage. Later values of a step
  replace earlier ones, because a resumed run repeats some steps.
  """
  scalars: dict[str, dict[int, float]] = {}
  for event in _events(folder):
    for value in event.summary.value:
      number = _number(value)
      if number is not None:
        scalars.setdefault(value.tag, {})[event.step] = number
  return {tag: dict(sorted(values.items())) for tag, values in scalars.items()}


def _number(value: Any) -> float | None:
  """Returns the number in a summary's value, or None if it is none."""
  if value.HasField('simple_value'):
    return value.simple_value
  if not value.HasField('tensor'):
    return None
  # TPUs write tensors. A damaged event may have a huge shape, or values that do
  # not fit its type or shape.
  with contextlib.suppress(KeyError, OverflowError, TypeError, ValueError):
    shape = tf.TensorShape(value.tensor.tensor_shape)
    if shape.num_elements() == 1:
      array = tf.make_ndarray(value.tensor)
      if array.dtype != object:
        return float(array.item())
  return None


def _events(folder: str) -> Iterator[Any]:
  for path in files(folder):
    with contextlib.suppress(tf.errors.DataLossError):
      events = tf.train.summary_iterator(path)
      yield from itertools.islice(events, _whole(path))


def _whole(path: str) -> int:
  """Counts the events that end within a file.

  TensorFlow would allocate the memory that a truncated event asks for.
  """
  count, begin = 0, 0
  with tf.io.gfile.GFile(path, 'rb') as stream:
    size = stream.size()
    while begin + 12 <= size:
      stream.seek(begin)
      (length,) = struct.unpack('<Q', stream.read(8))
      begin += 16 + length  # the length, the event, and a checksum of each
      if begin <= size:
        count += 1
  return count


def files(folder: str) -> list[str]:
  """Returns the paths of a folder's event files, oldest first."""
  paths.check_entries(folder)
  names = tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []
  return [
    os.path.join(folder, name)
    for name in sorted(names)
    if name.startswith('events.out.tfevents.')
  ]
