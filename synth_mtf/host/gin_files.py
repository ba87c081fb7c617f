"""How gin finds and reads files: ours, T5's and those of a user."""

import contextlib
import importlib.util
import logging
import os
import pathlib
from collections.abc import Iterator, Sequence

import gin
import gin.resource_reader
import mesh_tensorflow.transformer

from synth_mtf.host import errors
from synth_mtf.paths import gin_path

_DEFAULTS = str(
  pathlib.Path(mesh_tensorflow.transformer.__file__).parent
  / 'gin'
  / 'defaults.gin'
)


def make_readable() -> None:
  """Has gin search our folder, whatever other folders of the same names hold.

  gin also takes `runs/x.gin` for a file of the Python package `runs`, and ends
  in a TypeError if that is a folder without an `__init__.py` somewhere on
  sys.path, such as one in the working folder. Here that counts as "not found".
  """
  _search(gin_path())
  gin.config._FILE_READERS[:] = [
    (reader, _is_packaged)
    if reader is gin.resource_reader.system_path_reader
    else (reader, is_readable)
    for reader, is_readable in gin.config._FILE_READERS
  ]


def parse(files: Sequence[str], bindings: Sequence[str] = ()) -> None:
  """Makes gin hold what a run with these files and bindings would have.

  Args:
    files: as in --gin_file; found in the working folder, in ours and in T5's.
    bindings: as in --gin_param.

  Raises:
    UserError: a file, a name or a value is wrong.
  """
  import t5.models
  from t5.models import mesh_transformer

  gin.clear_config()
  _search(str(pathlib.Path(t5.models.__file__).parent / 'gin'))
  make_readable()
  with errors.explained(), _quiet():
    gin.parse_config_files_and_bindings(
      [_DEFAULTS, *files],
      list(bindings),
      skip_unknown=mesh_transformer.DEPRECATED_GIN_REFERENCES,
    )


def _search(folder: str) -> None:
  if folder not in gin.config._LOCATION_PREFIXES:
    gin.add_config_file_search_path(folder)


def _is_packaged(path: str) -> bool:
  """Whether a path such as `package/folder/x.gin` is a file of a package."""
  folder, name = os.path.split(path)
  if not folder or os.path.isabs(folder):
    return False
  try:
    spec = importlib.util.find_spec(folder.replace('/', '.'))
  except (ImportError, ValueError, AttributeError):
    return False
  # A namespace package has no file, and so no folder of its own.
  return (
    spec is not None
    and spec.origin is not None
    and os.path.isfile(os.path.join(os.path.dirname(spec.origin), name))
  )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
  """Keeps gin from logging each file that it looks for."""
  logging.disable(logging.ERROR)
  try:
    yield
  finally:
    logging.disable(logging.NOTSET)
