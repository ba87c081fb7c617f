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
      if value.HasField('simple_value'):
        scalars.setdefault(value.tag, {})[event.step] = value.simple_value
      elif value.HasField('tensor'):
        # TPUs write tensors. A damaged event may have a huge shape, or values
        # that do not fit its type or shape.
        with contextlib.suppress(
          KeyError, OverflowError, TypeError, ValueError
        ):
          shape = tf.TensorShape(value.tensor.tensor_shape)
          single = shape.num_elements() == 1
          if single and (one := tf.make_ndarray(value.tensor)).dtype != object:
            scalars.setdefault(value.tag, {})[event.step] = float(one.item())
  return {tag: dict(sorted(found.items())) for tag, found in scalars.items()}


def _events(folder: str) -> Iterator[Any]:
  for path in files(folder):
    with contextlib.suppress(tf.errors.DataLossError):
      found = tf.train.summary_iterator(path)
      yield from itertools.islice(found, _whole(path))


def _whole(path: str) -> int:
  """Counts the events that end within a file.

  TensorFlow would allocate the memory that a truncated event asks for.
  """
  count, begin = 0, 0
  with tf.io.gfile.GFile(path, 'rb') as stream:
    size = stream.size()
    while begin + 12 <= size:
      stream.seek(begin)
      begin += 16 + struct.unpack('<Q', stream.read(8))[0]  # with checksums
      count += begin <= size
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
