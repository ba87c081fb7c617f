"""The event files that TensorBoard reads."""

import tensorflow.compat.v1 as tf


def without_graph(folder: str) -> None:
  """Has this process's hooks write events to a folder without the graph.

  They share one writer a folder, which TensorFlow makes with the graph of the
  first of them, twice: as such and as a meta graph.
  """
  cache = tf.summary.FileWriterCache
  with cache._lock:
    if folder not in cache._cache:
      cache._cache[folder] = tf.summary.FileWriter(folder)
