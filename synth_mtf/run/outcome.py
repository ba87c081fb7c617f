"""What a run has measured and written, for its last lines."""

import os

_MOST_PATHS = 4  # of a folder, and of all lines


class Outcome:
  """What a run has measured and written.

  Attributes:
    result: the last loss or score, or ''.
  """

  def __init__(self) -> None:
    self.result = ''
    self._paths: dict[str, None] = {}

  def add_written(self, path: str) -> None:
    """Adds the path of a file or folder that is complete."""
    self._paths[path] = None

  def written(self) -> list[str]:
    """Describes what was written, in a few lines.

    A folder with many new files is one line.
    """
    folders: dict[str, list[str]] = {}
    for path in self._paths:
      folders.setdefault(os.path.dirname(path), []).append(path)
    lines = []
    for folder, paths in folders.items():
      if len(paths) > _MOST_PATHS:
        lines.append(f'Wrote {len(paths)} files in {folder or "."}')
      else:
        lines += [f'Wrote {path}' for path in paths]
    rest = len(lines) - _MOST_PATHS
    if rest > 0:
      lines[_MOST_PATHS:] = [f'... and {rest} more']
    return lines
