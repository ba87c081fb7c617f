"""What a demo run is asked to do; its names and numbers are checked here."""

import dataclasses
import os
import pathlib
import re
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
    pretrain_steps: training steps of pretraining; 0 leaves it out.
    finetune_steps: training steps of finetuning.
    seeds: of the data order, initial values and dropout, one for each run of a
      variant; the first one is that of the samples, too.
    mixture: what to finetune and evaluate on, a mixture or a task.
    eval_examples: how many examples of each task are evaluated; None is all.
    init_checkpoint: where the first training starts; None makes new weights.
    data_dir: folder of the official files; None means generated samples.
    vocabulary: a SentencePiece model or 'bytes'; None trains one.
    skip_bad_rows: leave malformed rows out.
    gin_files: further gin files, used in every stage.
    gin_params: further gin bindings, used in every stage.
  """

  size: str = 'tiny'
  pretrain_steps: int = 200
  finetune_steps: int = 600
  seeds: tuple[int, ...] = (0,)
  mixture: str = 'synth_en_mix'
  eval_examples: Optional[int] = 64
  init_checkpoint: Optional[str] = None
  data_dir: Optional[str] = None
  vocabulary: Optional[str] = None
  skip_bad_rows: bool = False
  gin_files: tuple[str, ...] = ()
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
  faults += _wrong_numbers(configuration)
  faults += _unreadable(configuration)
  if faults:
    raise UserError('\n'.join(faults))


def step_of(checkpoint: str) -> Optional[int]:
  """Returns the step in a checkpoint's name, or None if it has none."""
  match = re.search(r'model\.ckpt-(\d+)$', checkpoint)
  return int(match[1]) if match else None


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


def _wrong_numbers(configuration: Configuration) -> Iterable[str]:
  least = {'pretrain_steps': 0, 'finetune_steps': 1, 'eval_examples': 1}
  for name, smallest in least.items():
    value = getattr(configuration, name)
    if value is not None and value < smallest:
      yield f'--{name} is {value}; expected {smallest} or more.'
  if not configuration.pretrain_steps and not configuration.init_checkpoint:
    yield (
      '--pretrain_steps is 0: give an --init_checkpoint to finetune from, or 1 '
      'or more.'
    )
  seeds = configuration.seeds
  for seed in seeds:
    if seed < 0:
      yield f'--seeds has {seed}; expected 0 or more.'
  if len(set(seeds)) < len(seeds):
    yield f'--seeds names a seed twice: {" ".join(map(str, seeds))}.'


def _unreadable(configuration: Configuration) -> Iterable[str]:
  folder = configuration.data_dir
  if folder is not None:
    if not os.path.isdir(folder):
      what = 'is a file' if os.path.exists(folder) else 'does not exist'
      yield f'--data_dir {folder} {what}; expected a folder of official files.'
    elif not os.access(folder, os.R_OK | os.X_OK):
      yield f'--data_dir {folder} cannot be read (permissions).'
  vocabulary = configuration.vocabulary
  has_file = vocabulary is not None and vocabulary != BYTES
  if has_file and not os.path.isfile(str(vocabulary)):
    yield (
      f'--vocabulary {vocabulary} does not exist; expected the path of a '
      "SentencePiece .model file or 'bytes'."
    )
  checkpoint = configuration.init_checkpoint
  if checkpoint is not None:
    if step_of(checkpoint) is None:
      yield (
        f'--init_checkpoint {checkpoint}: expected a path such as '
        '<folder>/model.ckpt-1000.'
      )
    elif '://' not in checkpoint and not os.path.isfile(f'{checkpoint}.index'):
      yield (
        f'--init_checkpoint {checkpoint} does not exist: there is no file '
        f'{checkpoint}.index.'
      )
