"""Paths of the package's data files, and checks of other people's folders."""

import os
import pathlib
import re
import sys
from collections.abc import Sequence

from synth_mtf import filesystem
from synth_mtf.errors import UserError, nearest

GENERATED = 'generated samples'
# The host writes a run's configuration to this file beside the checkpoints.
OPERATIVE_CONFIG = 'operative_config.gin'

_CHECKPOINT_FILE = re.compile(r'model\.ckpt-\d+\.(index|meta|data-[\d\w-]+)')


def is_command() -> bool:
  """Whether this process is the `synth-mtf` console script."""
  return bool(sys.argv) and pathlib.Path(sys.argv[0]).stem == 'synth-mtf'


def gin_path() -> str:
  """Returns the folder of our gin files."""
  return str(pathlib.Path(__file__).resolve().parent / 'gin')


def gin_names(folder: str) -> list[str]:
  """Returns the names of our gin files in a folder such as `variants`."""
  files = pathlib.Path(gin_path(), folder).glob('*.gin')
  return sorted(path.stem for path in files)


def missing_gin_file(name: str, searched: Sequence[str]) -> str:
  """Says that none of the searched folders has a gin file."""
  folders = dict.fromkeys(
    pathlib.Path(folder, name).absolute().parent for folder in searched
  )
  similar = [
    os.path.join(os.path.dirname(name), path.name)
    for folder in folders
    for path in folder.glob('*.gin')
  ]
  return (
    f'gin file {name!r} does not exist{nearest(name, similar)}\n'
    f'Searched: {", ".join(map(str, folders))}'
  )


def samples_path() -> str:
  """Returns the folder of generated GLUE, SuperGLUE and SQuAD samples."""
  return str(pathlib.Path(__file__).resolve().parent / 'demo' / 'samples')


def holds_samples(folder: str | None) -> bool:
  """Whether a data folder holds the samples, or a copy of them."""
  if not folder:
    return False
  return filesystem.exists(f'{folder}/GENERATED_SAMPLE.txt')


def check_entries(folder: str, start: str = '') -> None:
  """Refuses a local folder with pipes and devices, which hang their reader.

  TensorFlow cannot list a folder with names that are not UTF-8: these, too.

  Args:
    folder: which need not exist.
    start: of the names to check.
  """
  try:
    names = os.listdir(folder)
  except OSError:  # a bucket, or it has disappeared
    return
  for name in names:
    if name.startswith(start):
      _check_file(os.path.join(folder, name))


def check_written_entries(folder: str) -> None:
  """Refuses a local folder that is not safe to write to, with those below it.

  Links lead elsewhere, so they are refused as pipes and devices are. Only
  checkpoints may be links, since they are replaced rather than written to.
  """
  for parent, folders, files in os.walk(folder):
    for name in (*folders, *files):
      path = os.path.join(parent, name)
      _check_file(path)
      if os.path.islink(path) and not _CHECKPOINT_FILE.fullmatch(name):
        raise UserError(
          f'{path} is a link to {os.readlink(path)}, which this run would '
          'write to: replace it with what it links to, or remove it'
        )


def _check_file(path: str) -> None:
  if path.encode(errors='replace').decode() != path:
    raise UserError(f'{path} is not a name in UTF-8: rename it')
  is_known = os.path.isfile(path) or os.path.isdir(path)
  if os.path.exists(path) and not is_known:
    raise UserError(f'{path} is a pipe or a device: remove it')
