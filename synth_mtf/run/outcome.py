"""What this process's run has measured and written, for its last lines."""

import os

_MOST_PATHS = 4  # of a folder, and of all lines
_result = ''
_paths: dict[str, None] = {}


def clear() -> None:
  """Forgets an earlier run of this process."""
  global _result
  _result = ''
  _paths.clear()


def set_result(text: str) -> None:
  """Sets the last loss or score."""
  global _result
  _result = text


def result() -> str:
  """Returns the last loss or score, or ''."""
  return _result


def add_written(path: str) -> None:
  """Adds the path of a file or folder that is complete."""
  _paths[path] = None


def written() -> list[str]:
  """Describes what was written, in a few lines.

  A folder with many new files is one line.
  """
  folders: dict[str, list[str]] = {}
  for path in _paths:
    folders.setdefault(os.path.dirname(path), []).append(path)
  lines = []
  for folder, paths in folders.items():
    if len(paths) > _MOST_PATHS:
      lines.append(f'Wrote {len(paths)} files in {folder or "."}')
    else:
      lines += [f'Wrote {path}' for path in paths]
  rest = len(lines) - _MOST_PATHS
  if rest > 0:
    lines[_MOST_PATHS:] = [f'... and {rest} more, beside these']
  return lines
