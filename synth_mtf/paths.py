"""Paths of the package's data files."""

import pathlib


def gin_path() -> str:
  """Returns the folder of our gin files."""
  return str(pathlib.Path(__file__).resolve().parent / 'gin')


def gin_names(folder: str) -> list[str]:
  """Returns the names of our gin files in a folder such as `variants`."""
  files = pathlib.Path(gin_path(), folder).glob('*.gin')
  return sorted(path.stem for path in files)


def samples_path() -> str:
  """Returns the folder of generated GLUE, SuperGLUE and SQuAD samples."""
  return str(pathlib.Path(__file__).resolve().parent / 'demo' / 'samples')
