"""Checks the index of a checkpoint before TensorFlow reads it.

TensorFlow ends the process if an index has, for instance, a negative dimension.
The index is LevelDB's table of sorted keys, not compressed: blocks of entries,
a block with the place of each block, and a footer with the place of the latter.
It maps names to `BundleEntryProto`, and '' to `BundleHeaderProto`.
"""

import math
import os
from collections.abc import Iterator, Mapping
from typing import Any

from tensorboard.compat.proto import types_pb2

from synth_mtf.checkpoints.messages import BundleEntry, BundleHeader
from synth_mtf.errors import UserError
from synth_mtf.storage import filesystem

_FOOTER_BYTES = 48
MAGIC = (0xDB4775248B80FB57).to_bytes(8, 'little')
_TRAILER_BYTES = 5  # the compression of a block, and its checksum
_VERSION = 1  # of the format
_LITTLE = 0  # the order of bytes
_MOST_DIMENSIONS = 254
_MOST_BYTES = 1 << 28
_MOST_TEXTS = 1 << 20
_VARINT_BYTES = 10  # the most that a number has
_CHECKSUM_BYTES = 4
# The types of variables: TensorFlow's name, and the bytes of an element.
_TYPES = {
  types_pb2.DT_FLOAT: ('float32', 4),
  types_pb2.DT_DOUBLE: ('float64', 8),
  types_pb2.DT_INT32: ('int32', 4),
  types_pb2.DT_UINT8: ('uint8', 1),
  types_pb2.DT_INT16: ('int16', 2),
  types_pb2.DT_INT8: ('int8', 1),
  types_pb2.DT_STRING: ('string', 1),  # at least
  types_pb2.DT_COMPLEX64: ('complex64', 8),
  types_pb2.DT_INT64: ('int64', 8),
  types_pb2.DT_BOOL: ('bool', 1),
  types_pb2.DT_QINT8: ('qint8', 1),
  types_pb2.DT_QUINT8: ('quint8', 1),
  types_pb2.DT_QINT32: ('qint32', 4),
  types_pb2.DT_BFLOAT16: ('bfloat16', 2),
  types_pb2.DT_QINT16: ('qint16', 2),
  types_pb2.DT_QUINT16: ('quint16', 2),
  types_pb2.DT_UINT16: ('uint16', 2),
  types_pb2.DT_COMPLEX128: ('complex128', 16),
  types_pb2.DT_HALF: ('float16', 2),
  types_pb2.DT_UINT32: ('uint32', 4),
  types_pb2.DT_UINT64: ('uint64', 8),
  24: ('float8_e5m2', 1),  # not every release of TensorBoard knows these two
  25: ('float8_e4m3fn', 1),
}


class Broken(Exception):
  """An index that TensorFlow cannot read, or that would end the process."""


def check(path: str) -> tuple[int, dict[str, Any]]:
  """Returns the number of data files and, by name, the entries of an index.

  Raises a `Broken` if TensorFlow could not read it.

  Args:
    path: of the checkpoint, without `.index`.
  """
  file = f'{path}.index'
  if not filesystem.exists(file):
    raise Broken('its index is missing')
  size = filesystem.size(file)
  if size > _MOST_BYTES:
    raise Broken(f'its index has {size:,} bytes')
  data = filesystem.read(file, _MOST_BYTES)
  try:
    header, entries = _parsed(data)
  except Broken:
    raise
  except UnicodeDecodeError as error:
    raise Broken(f'the name {error.object[:60]!r} is not UTF-8') from error
  except IndexError as error:
    raise Broken('its index is cut off') from error
  except Exception as error:  # protobuf has several
    raise Broken(f'its index does not parse ({error})') from error
  _check_header(header)
  for name, entry in entries.items():
    if not name.isprintable():
      raise Broken(f'the name {name!r:.200} has control characters')
    fault = _fault(entry, header.num_shards)
    if fault:
      raise Broken(f'{name!r:.200} {fault}')
  _check_ends(path, header.num_shards, entries)
  for name, entry in entries.items():
    if entry.dtype == types_pb2.DT_STRING:
      fault = _fault_of_texts(path, header.num_shards, entry)
      if fault:
        raise Broken(f'{name!r:.200} {fault}')
  return header.num_shards, entries


def shard(path: str, number: int, num_shards: int) -> str:
  """Returns the path of a data file of a checkpoint."""
  return f'{path}.data-{number:05d}-of-{num_shards:05d}'


def dtype_name(entry: Any) -> str:
  """Returns TensorFlow's name for the type of an entry, such as 'float32'."""
  name, _ = _TYPES[entry.dtype]
  return name


def shape(entry: Any) -> tuple[int, ...]:
  """Returns the shape of an entry."""
  return tuple(dimension.size for dimension in entry.shape.dim)


def _parsed(data: bytes) -> tuple[Any, dict[str, Any]]:
  """Returns the header and the entries by name."""
  pairs = list(entries_of(data))
  values = dict(pairs)
  if [key for key, _ in pairs] != sorted(values):
    raise Broken('its index has a name twice, or names out of order')
  if b'' not in values:
    raise Broken('its index has no header')
  header = BundleHeader.FromString(values.pop(b''))
  parse = BundleEntry.FromString
  return header, {name.decode(): parse(x) for name, x in values.items()}


def _check_header(header: Any) -> None:
  version = header.version
  if version.min_consumer > _VERSION or _VERSION in version.bad_consumers:
    raise Broken(
      f'its format needs a reader of version {version.min_consumer}; that of '
      f'this TensorFlow is {_VERSION}'
    )
  if header.endianness != _LITTLE:
    raise Broken('it was written on a big-endian machine')
  if not 1 <= header.num_shards < 100_000:
    raise Broken(f'it has {header.num_shards} data files')


def _fault(entry: Any, num_shards: int) -> str:
  """Returns what is wrong with an entry, or ''."""
  sizes = shape(entry)
  if entry.dtype not in _TYPES:
    return f'has the type {entry.dtype}, which no variable has'
  if entry.shape.unknown_rank or len(sizes) > _MOST_DIMENSIONS:
    return f'has {len(sizes) or "an unknown number of"} dimensions'
  elements = math.prod(sizes)
  if min(sizes, default=0) < 0 or elements >= 2**62:
    return f'has the shape {[*sizes]}'
  if entry.slices:
    return 'is stored in slices'
  if not 0 <= entry.shard_id < num_shards:
    return f'is in data file {entry.shard_id} of {num_shards}'
  if entry.offset < 0 or entry.size < 0:
    return f'is at byte {entry.offset}, with {entry.size} bytes'
  if entry.dtype == types_pb2.DT_STRING:
    if entry.size < elements:
      return f'has {elements:,} texts in {entry.size:,} bytes'
    return ''
  _, size = _TYPES[entry.dtype]
  if entry.size != elements * size:
    return f'has {entry.size:,} bytes, expected {elements:,} x {size}'
  return ''


def _fault_of_texts(path: str, num_shards: int, entry: Any) -> str:
  """Returns what is wrong with texts in a data file, or ''.

  Their lengths come first, then a checksum of the lengths, then the texts.
  TensorFlow allocates what a length says.
  """
  count = math.prod(shape(entry))
  if count > _MOST_TEXTS:
    return f'has {count:,} texts; no model has more than {_MOST_TEXTS:,}'
  file = shard(path, entry.shard_id, num_shards)
  with filesystem.reading(file) as stream:
    stream.seek(entry.offset)
    data = stream.read(min(entry.size, _VARINT_BYTES * count))
  position = 0
  total = 0
  for _ in range(count):
    try:
      length, position = _number(data, position)
    except (Broken, IndexError):
      return 'has a text without a length'
    total += length
  expected = entry.size - position - _CHECKSUM_BYTES
  if count and total != expected:
    return f'has texts of {total:,} bytes in {expected:,} bytes'
  return ''


def _check_ends(
  path: str,
  num_shards: int,
  entries: Mapping[str, Any],
) -> None:
  """Raises a `Broken` if a value is beyond the end of its data file."""
  ends: dict[int, int] = {}
  for number in range(num_shards):
    file = shard(path, number, num_shards)
    if not filesystem.exists(file):
      raise Broken(f'{file} is missing')
    if filesystem.is_folder(file):
      raise Broken(f'{file} is a folder')
    if not filesystem.is_bucket(file) and not os.access(file, os.R_OK):
      raise UserError(
        f'the checkpoint {path} cannot be read: Permission denied: {file!r}'
      )
    ends[number] = filesystem.size(file)
  for name, entry in entries.items():
    if entry.offset + entry.size > ends[entry.shard_id]:
      file = shard(path, entry.shard_id, num_shards)
      with filesystem.reading(file):  # refuses a pointer of Git LFS
        raise Broken(f'{name!r:.200} is beyond the end of its data file')


def entries_of(data: bytes) -> Iterator[tuple[bytes, bytes]]:
  """Yields the keys and values of a table; an IndexError if it is cut off."""
  footer = data[-_FOOTER_BYTES:]
  if len(footer) < _FOOTER_BYTES or not footer.endswith(MAGIC):
    raise Broken('its index is cut off or is not one')
  place = _handle(footer, _handle(footer, 0)[2])  # after that of the metadata
  for _, value in _block(data, *place[:2]):
    start, size, _ = _handle(value, 0)
    yield from _block(data, start, size)


def _block(data: bytes, start: int, size: int) -> Iterator[tuple[bytes, bytes]]:
  """Yields the entries of a block; keys leave out what they share."""
  block = data[start : start + size]
  if start + size + _TRAILER_BYTES > len(data) or size < 4:
    raise Broken('its index refers to bytes beyond its end')
  if data[start + size]:
    raise Broken('its index is compressed, as TensorFlow does not write it')
  restarts = int.from_bytes(block[-4:], 'little')
  end = size - 4 - 4 * restarts
  if end < 0:
    raise Broken('its index has a broken block')
  position = 0
  key = b''
  whole = set()  # where a key shares nothing, so that a search may start there
  while position < end:
    start_of_entry = position
    shared, position = _number(block, position)
    if not shared:
      whole.add(start_of_entry)
    unshared, position = _number(block, position)
    length, position = _number(block, position)
    stop = position + unshared + length
    if stop > end or shared > len(key):
      raise Broken('its index has a broken entry')
    key = key[:shared] + block[position : position + unshared]
    yield key, block[position + unshared : stop]
    position = stop
  for place in range(end, size - 4, 4):
    # Elsewhere, a search would read an entry that this loop has not seen.
    start_of_search = int.from_bytes(block[place : place + 4], 'little')
    if start_of_search not in whole | {0}:
      raise Broken('its index has a broken block')


def _handle(data: bytes, position: int) -> tuple[int, int, int]:
  """Returns the start and size of a block, and the end of the numbers."""
  start, position = _number(data, position)
  size, position = _number(data, position)
  return start, size, position


def _number(data: bytes, position: int) -> tuple[int, int]:
  """Returns a number in base 128, and its end."""
  value = 0
  for shift in range(0, 70, 7):
    byte = data[position]
    position += 1
    value |= (byte & 127) << shift
    if byte < 128:
      return value, position
  raise Broken('its index has a number of more than 64 bits')
