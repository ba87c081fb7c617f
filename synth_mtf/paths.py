"""Paths of the package's data files."""

import pathlib


def gin_path() -> str:
  """Returns the folder of our gin files."""
  return str(pathlib.Path(__file__).resolve().parent / 'gin')


def samples_path() -> str:
  """Returns the folder of generated GLUE, SuperGLUE and SQuAD samples."""
  return str(pathlib.Path(__file__).resolve().parent / 'demo' / 'samples')
