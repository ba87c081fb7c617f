"""What is known already of what takes TensorFlow, or a long time, to compute.

Each answer is a small JSON file that only this module reads and writes. The
package has the answers to what everybody asks; a command finds all others in
the user's cache folder (`$XDG_CACHE_HOME/synth_mtf` or `~/.cache/synth_mtf`),
which may be removed at any time. Row counts are in that folder, too, or in
`--index_dir`.
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

from synth_mtf.storage import atomic, filesystem

# Their versions decide whether the answers of the package hold.
_HOST = ('mesh-tensorflow', 't5', 'seqio-nightly', 'absl-py')
_PACKAGE = pathlib.Path(__file__).parent.parent
_SHIPPED = _PACKAGE / 'shipped'
_SECONDS_KEPT = 30 * 24 * 3600  # answers of another version


def get(question: Any) -> Any:
  """Returns the answer to a question, or None if it is not known.

  Args:
    question: a value that JSON can hold. The answer depends on nothing else but
      the package's sources and the versions of the host. A question that is a
      word may be one of those that the package answers.
  """
  if isinstance(question, str):
    shipped = load(_shipped_path(question))
    if shipped and shipped['host'] == _versions():
      return shipped['answer']
  return load(_path(question))


def put(question: Any, answer: Any) -> None:
  """Remembers the answer to a question; both are values that JSON can hold.

  A folder that cannot be written is not an error.
  """
  path = _path(question)
  with contextlib.suppress(OSError):
    if not path.parent.exists():
      _remove_old(path.parents[1])
    save(path, answer)


def ship(question: str, answer: Any) -> None:
  """Makes an answer part of the package, for the versions of this host."""
  content = {'host': _versions(), 'answer': answer}
  text = json.dumps(content, ensure_ascii=False, indent=1)
  atomic.write(_shipped_path(question), f'{text}\n')


def load(path: atomic.Path) -> Any:
  """Returns the answer in a file, or None if it is missing or damaged."""
  try:
    text = filesystem.text(str(path), filesystem.RECORDS_BYTES)
    return json.loads(text or 'null')
  except (OSError, ValueError, RecursionError):
    return None


def save(path: atomic.Path, answer: Any) -> None:
  """Writes an answer to a file, local or in a bucket.

  Raises:
    OSError: the file cannot be written.
  """
  filesystem.make_folder(os.path.dirname(path))
  atomic.write(path, json.dumps(answer))


def folder() -> pathlib.Path:
  """Returns the user's cache folder."""
  home = os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache')
  return pathlib.Path(home, 'synth_mtf')


def _path(question: Any) -> pathlib.Path:
  name = hashlib.sha256(json.dumps(question).encode()).hexdigest()
  return folder() / _version() / f'{name}.json'


def _shipped_path(question: str) -> pathlib.Path:
  return _SHIPPED / f'{question}.json'


@functools.cache
def _version() -> str:
  """Returns a digest of what answers depend on in addition to the question."""
  digest = hashlib.sha256()
  for version in _versions('tensorflow').values():
    digest.update(version.encode())
  for part in (_PACKAGE, _PACKAGE / 'tasks', _PACKAGE / 'gin'):  # may be links
    for path in sorted(part.rglob('*')):
      if path.suffix in ('.py', '.gin', '.json'):
        digest.update(str(path.relative_to(_PACKAGE)).encode())
        digest.update(path.read_bytes())
  return digest.hexdigest()[:16]


def _versions(*others: str) -> dict[str, str]:
  """Returns the versions of the host's packages, and of others."""
  versions = {}
  for name in (*_HOST, *others):
    try:
      versions[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
      versions[name] = 'none'
  return versions


def _remove_old(answers: pathlib.Path) -> None:
  """Removes what versions wrote that have not been used for long."""
  oldest = time.time() - _SECONDS_KEPT
  for other in answers.glob('*'):
    if other.stat().st_mtime < oldest:
      shutil.rmtree(other, ignore_errors=True)
