"""Writes results part by part, within a time limit."""

import contextlib
import json
import pathlib
import time
import traceback
from collections.abc import Iterator
from typing import Any


class Report:
  """A JSON file that is complete after each part.

  A part that fails has `error`, the traceback, in its place; a part that would
  start after the limit has `skipped`. The others go on.
  """

  def __init__(self, path: pathlib.Path, seconds: float) -> None:
    self._path, self._limit = path, seconds
    self._start = time.monotonic()
    self.results: dict[str, Any] = {}
    path.parent.mkdir(parents=True, exist_ok=True)

  @property
  def elapsed(self) -> float:
    return time.monotonic() - self._start

  @property
  def left(self) -> float:
    """Seconds until the limit."""
    return self._limit - self.elapsed

  @contextlib.contextmanager
  def part(self, *keys: str) -> Iterator[dict[str, Any]]:
    """Yields the results of a part; catches and records its errors."""
    found = self.results
    for key in keys:
      found = found.setdefault(key, {})
    try:
      yield found
    except Exception as error:
      found['error'] = traceback.format_exc()[-3000:]
      print(f'{" ".join(keys)}: {type(error).__name__}: {error!s:.300}')
    self.save()

  def time_for(self, *keys: str) -> bool:
    """Whether a part may still start; records that it was skipped if not."""
    if self.left > 0:
      return True
    with self.part(*keys) as found:
      found['skipped'] = f'no time left after {self.elapsed:.0f} s'
    return False

  def save(self) -> None:
    """Writes what is known so far."""
    self._path.write_text(json.dumps(self.results, indent=1) + '\n')
