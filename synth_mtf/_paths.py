"""Where the package's data files are."""

import pathlib

_PACKAGE = pathlib.Path(__file__).resolve().parent


def gin_path() -> str:
  """Returns the folder of our gin files.

  An installed wheel carries it inside the package. In a checkout, which is
  also what an editable install points at, it stands beside the package.
  """
  installed = _PACKAGE / 'gin'
  return str(installed if installed.is_dir() else _PACKAGE.parent / 'gin')
