"""Reads the values of a checkpoint: small local ones without TensorFlow.

TensorFlow computes checksums faster, but takes seconds to import.
"""

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from synth_mtf.checkpoints import index_file
from synth_mtf.storage import checksums, filesystem

_SMALL_BYTES = 4 << 20
_PLAIN = {
  *('bool', 'float16', 'float32', 'float64'),
  *('int8', 'int16', 'int32', 'int64', 'uint8', 'uint16', 'uint32', 'uint64'),
}


class Reader:
  """Reads values, and verifies their checksums.

  Attributes:
    path: of the checkpoint, without `.index`.
    entries: type, shape and place of each value, by name, sorted.
  """

  def __init__(self, path: str) -> None:
    """Raises a `Broken` if the index is damaged."""
    self.path = path
    self.num_shards, self.entries = index_file.check(path)

  def read(self, name: str) -> npt.NDArray[Any]:
    """Returns a value; raises a `Broken` if it is damaged."""
    entry = self.entries[name]
    is_small = entry.size <= _SMALL_BYTES
    dtype = index_file.dtype_name(entry)
    if is_small and dtype in _PLAIN and not filesystem.is_bucket(self.path):
      return self._small(name, np.dtype(dtype).newbyteorder('<'))
    return self._with_tensorflow(name)

  def _small(self, name: str, dtype: Any) -> npt.NDArray[Any]:
    entry = self.entries[name]
    shard = index_file.shard(self.path, entry.shard_id, self.num_shards)
    try:
      with open(shard, 'rb') as stream:
        stream.seek(entry.offset)
        data = stream.read(entry.size)
    except OSError as error:
      raise index_file.Broken(f'{name!r:.200} cannot be read') from error
    if checksums.masked_crc32c(data) != entry.crc32c:
      raise index_file.Broken(f'{name!r:.200} does not have its checksum')
    shape = index_file.shape(entry)
    return np.frombuffer(bytearray(data), dtype).reshape(shape)

  def _with_tensorflow(self, name: str) -> npt.NDArray[Any]:
    import tensorflow as tf

    # A truncated file raises an IndexError.
    try:
      return self._reader.get_tensor(name)
    except (tf.errors.OpError, IndexError, RuntimeError) as error:
      raise index_file.Broken(f'{name!r:.200} cannot be read') from error

  @functools.cached_property
  def _reader(self) -> Any:
    import tensorflow as tf

    return tf.train.load_checkpoint(self.path)
