"""Caches in tests: what seqio keeps of a cache as long as a process lives."""

import contextlib
from collections.abc import Iterator

import seqio


@contextlib.contextmanager
def used(*folders: str) -> Iterator[None]:
  """Has seqio look for caches in folders, for a while."""
  _forget()
  seqio.set_global_cache_dirs(folders)
  try:
    yield
  finally:
    seqio.set_global_cache_dirs([])
    _forget()


def _forget() -> None:
  for name in seqio.TaskRegistry.names():
    task = seqio.TaskRegistry.get(name)
    task._cache_dir = None  # noqa: SLF001
    task._stats = {}  # noqa: SLF001
