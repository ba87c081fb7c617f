"""Reads the event files of TensorBoard, without TensorFlow.

An event file is a sequence of records: the length of an event, a checksum of
the length, the event, and a checksum of the event.
"""

import contextlib
import os
import struct
from collections.abc import Iterator, Mapping
from typing import IO, Any

from google.protobuf.message import DecodeError
from tensorboard.compat.proto import event_pb2
from tensorboard.util import tensor_util

from synth_mtf.storage import checksums, filesystem

NATS_PER_TOKEN = 'nats_per_token'  # the tag of our training loss

Scalars = Mapping[str, Mapping[int, float]]  # values by tag and step

_HEADER = struct.Struct('<QI')
_CHECKSUM = struct.Struct('<I')


def read(folder: str) -> Scalars:
  """Reads the event files of a folder, which may be local or in a bucket.

  Reads a truncated or damaged file up to the damage. Later values of a step
  replace earlier ones, because a resumed run repeats some steps.
  """
  scalars: dict[str, dict[int, float]] = {}
  for path in files(folder):
    with filesystem.reading(path) as stream:
      for event in _events(stream, filesystem.size(path)):
        for value in event.summary.value:
          number = _number(value)
          if number is not None:
            scalars.setdefault(value.tag, {})[event.step] = number
  return {tag: dict(sorted(values.items())) for tag, values in scalars.items()}


def _number(value: Any) -> float | None:
  """Returns the number in a summary's value, or None if it holds none."""
  if value.HasField('simple_value'):
    return value.simple_value
  if not value.HasField('tensor'):
    return None
  # TPUs write tensors. A damaged event may have a huge shape, or values that do
  # not fit its type or shape.
  with contextlib.suppress(KeyError, OverflowError, TypeError, ValueError):
    shape = [dimension.size for dimension in value.tensor.tensor_shape.dim]
    if all(size == 1 for size in shape):
      array = tensor_util.make_ndarray(value.tensor)
      if array.dtype != object:
        return float(array.item())
  return None


def _events(stream: IO[bytes], size: int) -> Iterator[Any]:
  """Yields the events with summaries that are whole.

  The others hold the graph. They are long, and their checksums are skipped.
  """
  end = 0
  while True:
    header = stream.read(_HEADER.size)
    if len(header) < _HEADER.size:
      return
    length, checksum = _HEADER.unpack(header)
    end += _HEADER.size + length + _CHECKSUM.size
    if checksums.masked_crc32c(header[:8]) != checksum or end > size:
      return
    data = stream.read(length)
    (checksum,) = _CHECKSUM.unpack(stream.read(_CHECKSUM.size))
    try:
      event = event_pb2.Event.FromString(data)
    except DecodeError:
      return
    if event.HasField('summary'):
      if checksums.masked_crc32c(data) != checksum:
        return
      yield event


def files(folder: str) -> list[str]:
  """Returns the paths of a folder's event files, oldest first."""
  filesystem.check_entries(folder)
  return [
    os.path.join(folder, name)
    for name in sorted(filesystem.names(folder))
    if name.startswith('events.out.tfevents.')
  ]
