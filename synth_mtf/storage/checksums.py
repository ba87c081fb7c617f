"""CRC-32C, the checksum of TensorFlow's checkpoints and event files.

Of long data, NumPy computes the checksums of many parts side by side and then
joins them, by the linearity of the polynomial's remainder.
"""

import functools

import numpy as np
import numpy.typing as npt

_POLYNOMIAL = 0x82F63B78  # Castagnoli's, with its lowest power first
_MASK = 0xA282EAD8
_PARTS = 1 << 14

_Words = npt.NDArray[np.uint32]


def masked_crc32c(data: bytes) -> int:
  """Returns the checksum as TensorFlow stores it."""
  crc = crc32c(data)
  return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF


def crc32c(data: bytes) -> int:
  """Returns the CRC-32C of bytes."""
  crc = 0xFFFFFFFF
  length = len(data) // _PARTS // 2 * 2  # of a part
  start = 0
  if length:
    start = _PARTS * length
    crc = _of_parts(data[:start], crc)
  return _of_bytes(data[start:], crc) ^ 0xFFFFFFFF


def _of_bytes(data: bytes, crc: int) -> int:
  table = _table_of_bytes()
  for byte in data:
    crc = table[(crc ^ byte) & 255] ^ crc >> 8
  return crc


def _of_parts(data: bytes, crc: int) -> int:
  """Continues a checksum with data whose length is a multiple of the parts'."""
  table = _table_of_pairs()
  pairs = np.frombuffer(data, '<u2').reshape(_PARTS, -1).T
  crcs = np.zeros(_PARTS, np.uint32)
  for column in np.ascontiguousarray(pairs):
    crcs = table[(crcs ^ column) & 0xFFFF] ^ crcs >> np.uint32(16)
  shift = _shift(2 * len(pairs))
  for of_part in crcs.tolist():
    crc = _times(shift, crc) ^ of_part
  return crc


def _shift(length: int) -> tuple[int, ...]:
  """Returns what `length` bytes of zeros make of each bit of a checksum."""
  matrix = tuple(_of_bytes(b'\0', 1 << bit) for bit in range(32))
  result = tuple(1 << bit for bit in range(32))
  while length:
    if length & 1:
      result = tuple(_times(matrix, column) for column in result)
    matrix = tuple(_times(matrix, column) for column in matrix)
    length >>= 1
  return result


def _times(matrix: tuple[int, ...], vector: int) -> int:
  """Multiplies a matrix of bits by a vector of bits."""
  result = 0
  for column in matrix:
    if vector & 1:
      result ^= column
    vector >>= 1
  return result


@functools.cache
def _table_of_bytes() -> list[int]:
  table: _Words = np.arange(256, dtype=np.uint32)
  one = np.uint32(1)
  for _ in range(8):
    table = (table >> one) ^ (table & one) * np.uint32(_POLYNOMIAL)
  return table.tolist()


@functools.cache
def _table_of_pairs() -> _Words:
  table = np.array(_table_of_bytes(), np.uint32)
  eight = np.uint32(8)
  crcs: _Words = np.arange(1 << 16, dtype=np.uint32)
  for _ in range(2):
    crcs = table[crcs & 255] ^ crcs >> eight
  return crcs
