"""Remembers, between commands, what takes TensorFlow to compute.

Every answer depends on nothing but its question, the package's sources and the
versions of the host. It is a small JSON file in the user's cache folder
(`$XDG_CACHE_HOME/synth_mtf` or `~/.cache/synth_mtf`), which may be removed at
any time. A folder that cannot be written is no error.
"""

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
import pathlib
import shutil
import time
from typing import Any

from synth_mtf import atomic

_HOST = ('mesh-tensorflow', 't5', 'seqio-nightly', 'tensorflow')
_SECONDS_KEPT = 30 * 24 * 3600  # answers of another version


def get(question: Any) -> Any:
  """Returns the answer to a question, or None if it is not remembered.

  Args:
    question: a value that JSON can hold.
  """
  path = _path(question)
  try:
    return json.loads(path.read_text('utf-8'))
  except (OSError, ValueError):
    return None


def put(question: Any, answer: Any) -> None:
  """Remembers the answer to a question, which JSON can hold."""
  path = _path(question)
  with contextlib.suppress(OSError):
    if not path.parent.exists():
      _remove_old(path.parents[1])
      path.parent.mkdir(parents=True)
    atomic.write(path, json.dumps(answer))


def _path(question: Any) -> pathlib.Path:
  name = hashlib.sha256(json.dumps(question).encode()).hexdigest()
  return _folder() / _version() / f'{name}.json'


def _folder() -> pathlib.Path:
  home = os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache')
  return pathlib.Path(home, 'synth_mtf')


@functools.cache
def _version() -> str:
  """Returns a digest of what answers depend on in addition to the question."""
  digest = hashlib.sha256()
  for name in _HOST:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
      digest.update(importlib.metadata.version(name).encode())
  package = pathlib.Path(__file__).parent
  for folder in (package, package / 'tasks', package / 'gin'):  # may be links
    for path in sorted(folder.rglob('*')):
      if path.suffix in ('.py', '.gin', '.json'):
        digest.update(str(path.relative_to(package)).encode())
        digest.update(path.read_bytes())
  return digest.hexdigest()[:16]


def _remove_old(folder: pathlib.Path) -> None:
  """Removes what versions wrote that have not been used for long."""
  oldest = time.time() - _SECONDS_KEPT
  for other in folder.glob('*'):
    if other.stat().st_mtime < oldest:
      shutil.rmtree(other, ignore_errors=True)
