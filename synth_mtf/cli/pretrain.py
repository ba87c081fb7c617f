"""`synth-mtf pretrain`: trains a new model on text, or continues a run."""

import argparse
from typing import TYPE_CHECKING

from synth_mtf.cli import arguments, data, early, stages
from synth_mtf.commands import variants
from synth_mtf.commands.command import Command
from synth_mtf.errors import UserError

if TYPE_CHECKING:
  from synth_mtf.commands.stages import Given

_SIZE = 'tiny'


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags."""
  add = parser.add_argument
  add(
    'folder',
    type=arguments.new_path,
    metavar='RUN',
    help='the folder of the run; if there is one in it, it is continued',
  )
  add(
    '--size',
    type=arguments.GinNames('sizes'),
    help=f'of the model: gin/sizes/ (default: {_SIZE})',
  )
  add(
    '--variant',
    type=arguments.Variant(),
    help=f"the paper's name: {', '.join(variants.NAMES)}; or a file of "
    'gin/variants/',
  )
  add(
    '--text',
    type=arguments.text_path,
    metavar='PATH',
    help='a file of text, or a folder with .txt and .jsonl files',
  )
  add(
    '--steps',
    type=arguments.at_least(1),
    help='of training, those before a continuation included (default: '
    f'{stages.STEPS})',
  )
  add(
    '--vocabulary_size',
    type=arguments.at_least(4),
    help='pieces of the vocabulary that is trained on the text if none is '
    'given (default: as many as suit the size)',
  )
  stages.add_training(parser)
  data.add_files(parser)
  stages.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
  """Pretrains."""
  from synth_mtf.commands import run_folder, stages as commands

  stages.look(args.folder)
  given = stages.given(args)
  existing = run_folder.find(args.folder)
  if existing is None:
    return stages.run(_new(args, given), args)
  if existing.init_checkpoint:
    raise UserError(
      f'{args.folder} holds a model that was finetuned from '
      f'{existing.init_checkpoint}: continue it with `synth-mtf finetune '
      f'{args.folder}`, or pretrain into another folder'
    )
  commands.check_same(existing, args.size, args.variant)
  return stages.run(commands.resume(existing, args.steps, given), args)


def _new(args: argparse.Namespace, given: 'Given') -> list[Command]:
  """Returns the commands that pretrain a new model."""
  from synth_mtf.commands import stages as commands

  if not args.variant:
    raise UserError(
      f'{args.folder} holds no run yet: give --variant, such as R+V. The '
      f"paper's: {', '.join(variants.NAMES)}."
    )
  if not early.has_text(args.text, args.data_dir):
    raise UserError(
      'give the text to pretrain on: --text=FILE_OR_FOLDER, or --data_dir with '
      'a folder corpus/ in it'
    )
  early.check_corpus(args.text, args.data_dir)
  return commands.pretrain(
    args.folder,
    args.size or _SIZE,
    args.variant,
    args.steps or stages.STEPS,
    given,
    args.vocabulary_size,
  )
