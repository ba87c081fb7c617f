"""Reads and writes the JSON files in folders of runs."""

import json
import os
from collections.abc import Callable
from typing import Any

from synth_mtf.errors import UserError
from synth_mtf.storage import atomic, filesystem


def read(folder: str, name: str, parse: Callable[[Any], Any]) -> Any:
  """Returns `parse` of a file's content, or None if there is no such file.

  Raises:
    UserError: the file is damaged, that is, `json` or `parse` fails on it.
  """
  filesystem.check_entries(folder)
  path = os.path.join(folder, name)
  if not filesystem.exists(path):
    return None
  data = filesystem.read(path, filesystem.RECORDS_BYTES)
  try:
    text = data.decode('utf-8-sig')
    content = json.loads(text)
    if r'\ud' in text.lower():  # half of a character, or two halves
      json.dumps(content, ensure_ascii=False).encode()
    return parse(content)
  except Exception as error:  # depends on what the file holds instead
    raise UserError(
      f'{path} is damaged ({type(error).__name__}: {error}). Copy it again, or '
      'remove it if you are sure that you do not need what it records.'
    ) from error


def write(path: atomic.Path, content: Any, indent: int = 2) -> None:
  """Writes a file atomically."""
  atomic.write(path, json.dumps(content, indent=indent) + '\n')
