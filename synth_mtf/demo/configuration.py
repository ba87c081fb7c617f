"""What a demo run is asked to do; its names and numbers are checked here."""

import dataclasses
import os
import pathlib
from collections.abc import Iterable, Sequence
from typing import Optional

from synth_mtf.errors import UserError, nearest
from synth_mtf.paths import gin_path

BYTES = 'bytes'  # the vocabulary that needs no file


@dataclasses.dataclass(frozen=True)
class Configuration:
  """The settings of a demo run that its results depend on.

  Two runs with the same configuration and seed give the same table. The
  variants are not part of it, since each is a run of its own.

  Attributes:
    size: a file of gin/sizes.
    steps: training steps, of pretraining and of finetuning each.
    seed: for the samples, the data order, initial values and dropout.
    mixture: what to finetune and evaluate on, a mixture or a task.
    eval_examples: how many examples of each task are evaluated.
    data_dir: folder of the official files; None means generated samples.
    vocabulary: a SentencePiece model or 'bytes'; None trains one.
    skip_bad_rows: leave malformed rows out.
    gin_params: further gin bindings, used in every stage.
  """

  size: str = 'tiny'
  steps: int = 200
  seed: int = 0
  mixture: str = 'synth_en_mix'
  eval_examples: int = 32
  data_dir: Optional[str] = None
  vocabulary: Optional[str] = None
  skip_bad_rows: bool = False
  gin_params: tuple[str, ...] = ()


def check(configuration: Configuration, variants: Sequence[str]) -> None:
  """Checks what needs no TensorFlow.

  Raises:
    UserError: one message with all faults.
  """
  faults = [
    *_unknown('size', [configuration.size], names_of('sizes')),
    *_unknown('variant', variants, names_of('variants')),
  ]
  if len(set(variants)) < len(variants):
    faults.append(f'a variant is named twice: {", ".join(variants)}.')
  if not variants:
    faults.append('no variant is named; expected at least one.')
  for name in ('steps', 'eval_examples'):
    if getattr(configuration, name) < 1:
      value = getattr(configuration, name)
      faults.append(f'--{name} is {value}; expected 1 or more.')
  if configuration.seed < 0:
    faults.append(f'--seed is {configuration.seed}; expected 0 or more.')
  faults += _unreadable(configuration)
  if faults:
    raise UserError('\n'.join(faults))


def names_of(axis: str) -> list[str]:
  """Returns the names of the gin files of an axis: 'sizes' or 'variants'."""
  return sorted(path.stem for path in pathlib.Path(gin_path(), axis).glob('*'))


def _unknown(
  kind: str, names: Iterable[str], known: Sequence[str]
) -> Iterable[str]:
  for name in names:
    if name not in known:
      hint = nearest(name, known) or f'; known are {", ".join(known)}.'
      yield f'unknown {kind} {name!r}{hint}'


def _unreadable(configuration: Configuration) -> Iterable[str]:
  folder = configuration.data_dir
  if folder is not None:
    if not os.path.isdir(folder):
      what = 'is a file' if os.path.exists(folder) else 'does not exist'
      yield f'--data_dir {folder} {what}; expected a folder of official files.'
    elif not os.access(folder, os.R_OK | os.X_OK):
      yield f'--data_dir {folder} cannot be read (permissions).'
  vocabulary = configuration.vocabulary
  if vocabulary is None or vocabulary == BYTES:
    return
  if not os.path.isfile(vocabulary):
    yield (
      f'--vocabulary {vocabulary} does not exist; expected the path of a '
      "SentencePiece .model file or 'bytes'."
    )
