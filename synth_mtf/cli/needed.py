"""Refuses data and vocabularies that are missing before TensorFlow is imported.

Which files the tasks need is an answer that the package has (`remembered`).
With another host, no files are missed here.
"""

import os
import re
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from synth_mtf import paths
from synth_mtf.errors import UserError
from synth_mtf.storage import filesystem, remembered

QUESTION = 'files'  # of `remembered`
# Settings that name other data than the folder.
_ELSEWHERE = (
  'SYNTH_MTF_CACHE_DIR',
  'SYNTH_MTF_TASK_DATA_DIRS',
  'SYNTH_MTF_TASK_FILE',
  'SYNTH_MTF_TEXT',
)
_MOST_SHOWN = 3
_REFUSALS = (401, 403, 404)
_SECONDS = 3  # until the request is left to TensorFlow


def check_files(name: str, split: str, folder: str) -> None:
  """Refuses a data folder without the files of a split.

  Args:
    name: a task or a mixture; one of the user's is not checked.
    split: of each task that has to have it.
    folder: as in --data_dir, or ''. A bucket is not searched.
  """
  if not _is_local(folder):
    return
  missing = {
    task: splits[split]['patterns']
    for task, splits in _tasks([name])
    if split in splits and not splits[split]['optional']
    if not _has_any(folder, splits[split]['patterns'])
  }
  if not missing:
    return
  shown = [f'{task} ({x[0]})' for task, x in missing.items()][:_MOST_SHOWN]
  more = len(missing) - len(shown)
  if more:
    shown.append(f'{more} more tasks')
  patterns = [pattern for x in missing.values() for pattern in x]
  root = os.path.expanduser(folder)
  there = filesystem.instead(root, patterns) or f'; {filesystem.contents(root)}'
  raise UserError(
    f'{folder} has no {split} files of {", ".join(shown)}{there}. Put them '
    'there, or give --data_dir=FOLDER with the official files (docs/data.md '
    'shows the layout).'
  )


def check_splits(name: str, *splits: str) -> None:
  """Refuses a data folder of the environment without the files of splits."""
  if not any(map(os.environ.get, _ELSEWHERE)):
    for split in splits:
      check_files(name, split, os.environ.get('SYNTH_MTF_DATA_DIR', ''))


def may_have_files(names: Sequence[str] = ()) -> bool:
  """Whether the data folder of the environment may have files of any task.

  Args:
    names: tasks and mixtures; by default, all.
  """
  folder = os.environ.get('SYNTH_MTF_DATA_DIR', '')
  known = remembered.get(QUESTION)
  if not known or not _is_local(folder) or any(map(os.environ.get, _ELSEWHERE)):
    return True
  if not {*names} <= {*known['tasks'], *known['mixtures']}:
    return True
  return any(
    _has_any(folder, split['patterns'])
    for _, splits in _tasks(names or known['tasks'])
    for split in splits.values()
  )


def check_vocabulary(names: Sequence[str], vocabulary: str) -> None:
  """Refuses a run whose vocabulary is T5's own if that cannot be read.

  It is the default, in a bucket. TensorFlow takes several seconds to ask for
  it, and does so again if the answer says nothing about the vocabulary.

  Args:
    names: of tasks and mixtures; T5's do not depend on the vocabulary.
    vocabulary: the setting, or ''.
  """
  path = vocabulary or filesystem.T5_VOCABULARY
  is_used = any(name.startswith(paths.PREFIX) for name in names)
  if not is_used or not path.startswith(filesystem.T5_BUCKET):
    return
  cause = _refusal_of(path)
  if cause:
    raise UserError(filesystem.NO_T5_VOCABULARY.format(cause, path))


def _tasks(names: Iterable[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
  """Yields tasks, also those of mixtures, with the files of each split."""
  known: Mapping[str, Any] | None = remembered.get(QUESTION)
  if not known:
    return
  for name in names:
    for task in known['mixtures'].get(name, [name]):
      yield task, known['tasks'].get(task, {})


def _is_local(folder: str) -> bool:
  return bool(folder) and folder != 'tfds' and not filesystem.is_bucket(folder)


def _has_any(folder: str, patterns: Iterable[str]) -> bool:
  root = os.path.expanduser(folder)
  return any(filesystem.find(root, pattern) for pattern in patterns)


def _refusal_of(file: str) -> str:
  """Returns why a public file of a bucket cannot be read, or '' if it may be.

  Args:
    file: its path, gs://...
  """
  import ssl  # with the next, these take a while
  import urllib.error
  import urllib.request

  address = re.sub('^gs://', 'https://storage.googleapis.com/', file)
  request = urllib.request.Request(address, method='HEAD')
  certificates = os.environ.get('CURL_CA_BUNDLE')  # TensorFlow's
  try:
    context = ssl.create_default_context(cafile=certificates)
    urllib.request.urlopen(request, timeout=_SECONDS, context=context).close()
  except urllib.error.HTTPError as error:
    if error.code in _REFUSALS:
      return f'HTTP response code {error.code}'
  except urllib.error.URLError as error:
    if isinstance(error.reason, (socket.gaierror, ConnectionError)):
      return f'storage.googleapis.com: {error.reason.strerror}'
  except OSError:  # such as a time-out
    pass
  return ''
