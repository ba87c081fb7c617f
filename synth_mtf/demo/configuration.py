"""The settings of a demo, and the checks of them that need no TensorFlow."""

import dataclasses
import os
import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import Optional

from synth_mtf.errors import UserError, nearest
from synth_mtf.paths import gin_path

BYTES = 'bytes'  # the vocabulary that needs no file


@dataclasses.dataclass(frozen=True)
class Configuration:
  """The flags of `synth-mtf demo` that the results of a variant depend on."""

  size: str = 'tiny'
  pretrain_steps: int = 200
  finetune_steps: int = 600
  seeds: Sequence[int] = (0,)
  mixture: str = 'synth_en_mix'
  eval_examples: Optional[int] = 64  # None: all
  init_checkpoint: Optional[str] = None
  data_dir: Optional[str] = None  # None: the samples
  vocabulary: Optional[str] = None  # None: one is trained
  skip_bad_rows: bool = False
  gin_file: Sequence[str] = ()
  gin_param: Sequence[str] = ()


def check(configuration: Configuration, variants: Sequence[str]) -> None:
  """Checks names, numbers and paths.

  Raises:
    UserError: one message with every fault.
  """
  faults = [
    *_faults_of_names('size', [configuration.size]),
    *_faults_of_names('variant', variants),
    *_faults_of_numbers(configuration),
    *_faults_of_paths(configuration),
  ]
  if faults:
    raise UserError('\n'.join(faults))


def step_of(checkpoint: str) -> Optional[int]:
  """Returns the step in a checkpoint's name, or None if it has none."""
  match = re.search(r'model\.ckpt-(\d+)$', checkpoint)
  return int(match[1]) if match else None


def gin_names(kind: str) -> list[str]:
  """Returns the names of the gin files of a kind: 'size' or 'variant'."""
  folder = pathlib.Path(gin_path(), f'{kind}s')
  return sorted(path.stem for path in folder.glob('*'))


def _faults_of_names(kind: str, names: Sequence[str]) -> Iterator[str]:
  known = gin_names(kind)
  for name in names:
    if name not in known:
      hint = nearest(name, known) or f'; expected one of {", ".join(known)}.'
      yield f'unknown {kind} {name!r}{hint}'
  if len(set(names)) < len(names):
    yield f'a {kind} is named twice: {", ".join(names)}.'
  if not names:
    yield f'no {kind} is named; expected at least one.'


def _faults_of_numbers(configuration: Configuration) -> Iterator[str]:
  minimum = {'pretrain_steps': 0, 'finetune_steps': 1, 'eval_examples': 1}
  for name, smallest in minimum.items():
    value = getattr(configuration, name)
    if value is not None and value < smallest:
      yield f'--{name} is {value}; expected {smallest} or more.'
  if not configuration.pretrain_steps and not configuration.init_checkpoint:
    yield (
      '--pretrain_steps is 0: give an --init_checkpoint to finetune from, or 1 '
      'or more.'
    )
  seeds = configuration.seeds
  if min(seeds) < 0:
    yield f'--seeds has {min(seeds)}; expected 0 or more.'
  if len(set(seeds)) < len(seeds):
    yield f'--seeds names a seed twice: {" ".join(map(str, seeds))}.'


def _faults_of_paths(configuration: Configuration) -> Iterator[str]:
  for name, is_good, expected in (
    ('data_dir', _is_readable, 'a folder of official files that you may read'),
    ('vocabulary', _is_vocabulary, "a SentencePiece .model file or 'bytes'"),
    (
      'init_checkpoint',
      _is_checkpoint,
      'an existing checkpoint, such as <folder>/model.ckpt-1000',
    ),
  ):
    path = getattr(configuration, name)
    if path is not None and not is_good(path):
      yield f'--{name} {path} is not {expected}.'


def _is_readable(folder: str) -> bool:
  return os.path.isdir(folder) and os.access(folder, os.R_OK | os.X_OK)


def _is_vocabulary(path: str) -> bool:
  return path == BYTES or os.path.isfile(path)


def _is_checkpoint(path: str) -> bool:
  exists = '://' in path or os.path.isfile(f'{path}.index')
  return exists and step_of(path) is not None
