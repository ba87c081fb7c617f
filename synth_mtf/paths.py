"""Paths of the package's data files, and a check of the files of others."""

import os
import pathlib
import re

from synth_mtf.errors import UserError

_OF_A_CHECKPOINT = re.compile(r'model\.ckpt-\d+\.(index|meta|data-[\d\w-]+)')

GENERATED = 'generated samples'


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


def check_entries(folder: str, written: bool = False) -> None:
  """Refuses a local folder with pipes and devices, which hang their reader.

  If the folder is `written`, also refuses links in it and below, which lead
  elsewhere; checkpoints alone, which are only replaced, may be links.
  """
  # Unlike a glob, `os.walk` ignores folders that disappear.
  entries = (
    pathlib.Path(place, name)
    for place, folders, files in os.walk(folder)
    if written or place == folder
    for name in (*folders, *files)
  )
  for path in entries:
    is_known = os.path.isfile(path) or os.path.isdir(path)
    if os.path.exists(path) and not is_known:
      raise UserError(f'{path} is a pipe or a device: remove it')
    is_replaced = _OF_A_CHECKPOINT.fullmatch(path.name)
    if written and os.path.islink(path) and not is_replaced:
      raise UserError(
        f'{path} is a link to {os.readlink(path)}, which this run would '
        'write to: replace it with what it links to, or remove it'
      )


def holds_samples(folder: str | None) -> bool:
  """Whether a data folder holds the samples, or a copy of them."""
  mark = f'{folder}/GENERATED_SAMPLE.txt'
  if folder and '://' in folder:
    import tensorflow as tf

    return tf.io.gfile.exists(mark)
  return bool(folder) and os.path.exists(mark)
