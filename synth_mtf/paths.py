"""Paths of the package's own files, and names that it shares with the host."""

import os
import pathlib
import sys
from collections.abc import Iterable, Sequence

from synth_mtf.errors import nearest
from synth_mtf.storage import filesystem

PREFIX = 'synth_'  # of our tasks and mixtures
GENERATED = 'generated samples'
# The host writes a run's configuration to this file, next to the checkpoints.
OPERATIVE_CONFIG = 'operative_config.gin'


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


def nearest_gin_file(name: str, files: Iterable[str]) -> str:
  """Suggests files; their names are compared, not what all paths have."""
  return nearest(name, files, lambda file: pathlib.PurePath(file).stem)


def missing_gin_file(name: str, searched: Sequence[str]) -> str:
  """Says that none of the searched folders has a gin file."""
  if filesystem.is_bucket(name):
    return f'gin file {name!r} does not exist'
  buckets = [folder for folder in searched if filesystem.is_bucket(folder)]
  folders = dict.fromkeys(
    pathlib.Path(folder, name).absolute().parent
    for folder in searched
    if folder not in buckets
  )
  similar = [
    os.path.join(os.path.dirname(name), path.name)
    for folder in folders
    for path in folder.glob('*.gin')
  ]
  if not os.path.dirname(name):  # the folder was left out
    ours = pathlib.Path(gin_path())
    similar += [str(path.relative_to(ours)) for path in ours.glob('*/*.gin')]
  return (
    f'gin file {name!r} does not exist{nearest_gin_file(name, similar)}\n'
    f'Searched: {", ".join(map(str, [*folders, *buckets]))}'
  )


def samples_path() -> str:
  """Returns the folder of generated GLUE, SuperGLUE and SQuAD samples."""
  return str(pathlib.Path(__file__).resolve().parent / 'demo' / 'samples')


def holds_samples(folder: str | None) -> bool:
  """Whether a data folder holds the samples, or a copy of them."""
  if not folder:
    return False
  return filesystem.exists(f'{folder}/GENERATED_SAMPLE.txt')
