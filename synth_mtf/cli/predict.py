"""`synth-mtf predict`: prints the target that a model finds for each input."""

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Sequence

from synth_mtf.cli import arguments, stages
from synth_mtf.errors import UserError
from synth_mtf.storage import filesystem


def add_arguments(parser: arguments.Parser) -> None:
  """Adds the flags."""
  parser.anywhere = 'texts'
  add = parser.add_argument
  add(
    'folder', metavar='RUN', help='the folder of a run, or a checkpoint in it'
  )
  add('texts', nargs='*', metavar='TEXT', help='inputs, in quotes')
  add(
    '--input',
    type=arguments.examples_file,
    metavar='FILE',
    help='a file with an input in each line (default: standard input)',
  )
  add(
    '--beams',
    type=arguments.at_least(1),
    default=4,
    help='of beam search; 1 decodes greedily',
  )
  add(
    '--max_length',
    type=arguments.at_least(1),
    help='the most tokens of a target (default: those of an input)',
  )
  stages.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
  """Prints a line for each input; all else goes to standard error."""
  from synth_mtf.commands import run_folder, stages as commands

  stages.look(args.folder)
  given = stages.given(args)
  trained, step = run_folder.get(args.folder)
  trained.checkpoint(step)
  if trained.is_pretraining:
    print(
      f'note: {trained.name} is pretrained only: it continues with what fills '
      'the gaps of a text. Finetune it to have it answer.',
      file=sys.stderr,
    )
  # Before the inputs are read, as the process may start again.
  stages.start(args)
  with tempfile.TemporaryDirectory(prefix='synth-mtf-') as folder:
    inputs = args.input or os.path.join(folder, 'inputs.txt')
    if not args.input and not args.dry_run:
      with open(inputs, 'w', encoding='utf-8') as file:
        file.writelines(f'{line}\n' for line in _lines(args.texts))
    outputs = os.path.join(folder, 'outputs')
    made = commands.predict(
      trained, step, inputs, outputs, args.beams, args.max_length, given
    )
    if args.dry_run:
      return stages.run(made, args)
    with contextlib.redirect_stdout(sys.stderr):
      status = stages.run(made, args)
    if not status:
      for name in sorted(os.listdir(folder)):
        if name.startswith('outputs-'):
          path = os.path.join(folder, name)
          print(filesystem.text(path) or '', end='')
  return status


def _lines(texts: Sequence[str]) -> list[str]:
  """Returns the inputs, one in each line."""
  for text in texts:
    if len(text.splitlines()) != 1 or not text.strip():
      raise UserError(
        f'{text!r:.80}: expected a text in one line; give several texts as '
        'several arguments'
      )
  if texts:
    return [*texts]
  if sys.stdin.isatty():
    raise UserError(
      "give the inputs: as arguments in quotes, such as 'cola sentence: The "
      "book was read by.', with --input=FILE, or on standard input"
    )
  return sys.stdin.read().splitlines()
