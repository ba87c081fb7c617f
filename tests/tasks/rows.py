"""Runs a tf.data pipeline in a graph of its own and returns its rows."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf


def run(
  make: Callable[[], tf.data.Dataset], limit: int = -1
) -> list[dict[str, Any]]:
  """Returns the first `limit` elements of the dataset that `make` builds."""
  rows = []
  with tf.Graph().as_default(), tf.Session() as session:
    ds = make().take(limit)

    def collect(count: tf.Tensor, row: dict[str, tf.Tensor]) -> tf.Tensor:
      def append(*values: Any) -> np.int64:
        rows.append(tf.nest.pack_sequence_as(row, values))
        return np.int64(1)

      return count + tf.numpy_function(append, tf.nest.flatten(row), tf.int64)

    session.run(ds.reduce(np.int64(0), collect))
  return rows


def frozen(value: Any) -> Any:
  """Returns a row as something that can be compared and sorted."""
  if isinstance(value, dict):
    return tuple((key, frozen(value[key])) for key in sorted(value))
  if hasattr(value, 'tolist'):
    return frozen(value.tolist())
  if isinstance(value, list):
    return tuple(map(frozen, value))
  if isinstance(value, bytes):
    return value.decode()
  return round(value, 5) if isinstance(value, float) else value
