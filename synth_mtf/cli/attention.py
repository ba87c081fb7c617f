"""`synth-mtf attention`: what a checkpoint's layers attend to, as an .npz.

`synth_mtf.attention.file` and docs/figures.md name the arrays.
"""

import argparse
import os
from collections.abc import Callable
from typing import Any, Union

from synth_mtf.errors import UserError
from synth_mtf.run import output, process

SUMMARY = 'attention weights, logits and alpha of a checkpoint on some text'


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags."""
  parser.add_argument('folder', metavar='RUN', help='a model folder')
  parser.add_argument(
    '--out', metavar='FILE', default='attention.npz', help='what to write'
  )
  add_text_arguments(parser)
  parser.add_argument(
    '--step',
    type=step,
    default='last',
    help="of the checkpoint; 'last' (default), or 'initial' for the weights "
    'before training',
  )


def add_text_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags that name the text to look at."""
  add = parser.add_argument
  add('--text', action='append', default=[], help='an input; may be repeated')
  add(
    '--target',
    action='append',
    default=[],
    help='the target of each input; without it, only the encoder is shown',
  )
  add(
    '--input',
    metavar='FILE',
    help='instead: a text file with an input per line, and after a tab its '
    'target if any',
  )
  add('--task', help='instead: the first examples of a task')
  add('--split', default='validation', help='of the task')
  add('--examples', type=int, default=4, help='how many of the task')
  add(
    '--data_dir',
    metavar='FOLDER',
    help="of the task's official files (default: $SYNTH_MTF_DATA_DIR)",
  )
  add(
    '--vocabulary',
    metavar='MODEL',
    help="a SentencePiece .model or 'bytes' (default: that of the run)",
  )


def step(text: str) -> Union[int, str]:
  """Parses a step on the command line."""
  if text.isdecimal():
    return int(text)
  if text not in ('last', 'initial'):
    raise argparse.ArgumentTypeError(
      f"{text!r}: expected a step, 'last' or 'initial'"
    )
  return text


def run(args: argparse.Namespace) -> int:
  """Writes the file, and prints its contents."""
  check_writable(args.out)
  (found,) = look(args, args.folder, [args.step])
  from synth_mtf.attention import file

  file.write(args.out, found)
  print(
    f'{found.label}, step {found.step}, {found.examples} examples: {args.out}'
  )
  for name, stack in found.stacks.items():
    for key, array in vars(stack).items():
      if array is not None and key != 'functions':
        print(f'  {name}_{key}  {list(array.shape)}')
  return 0


def look(args: argparse.Namespace, folder: str, steps: Any) -> Any:
  """Computes the attention of a run's checkpoints on the named text."""
  choose = chooser(args)
  from synth_mtf.attention import runs

  return runs.look(folder, steps, choose, args.vocabulary)


def names_text(args: argparse.Namespace) -> bool:
  """Whether the flags name a text."""
  return bool(args.text or args.target or args.input or args.task)


def text_words(args: argparse.Namespace) -> list[str]:
  """Returns the flags that name the text, as words of a command."""
  words = []
  for name in ('text', 'target', 'input', 'task', 'data_dir', 'vocabulary'):
    given = getattr(args, name) or []
    for value in given if isinstance(given, list) else [given]:
      words += [f'--{name}', value]
  if args.task:
    words += ['--split', args.split, '--examples', str(args.examples)]
  return words


def chooser(args: argparse.Namespace) -> Callable[[], Any]:
  """Returns a function that makes the examples, and loads the plugin."""
  ways = [bool(args.text or args.target), bool(args.input), bool(args.task)]
  if sum(ways) != 1 or args.examples < 1:
    raise UserError(
      'name the text to look at in one way: --text (and --target), --input '
      'FILE, or --task NAME with at least one of its --examples'
    )
  if args.data_dir:
    os.environ['SYNTH_MTF_DATA_DIR'] = args.data_dir
  process.load_quietly()
  with output.kept():
    from synth_mtf.attention import examples

  def choose() -> Any:
    if args.task:
      return examples.from_task(args.task, args.split, args.examples)
    if args.input:
      return examples.from_file(args.input)
    return examples.from_texts({'inputs': args.text, 'targets': args.target})

  return choose


def check_writable(path: str, make: bool = False) -> None:
  """Refuses a file that cannot be written, before anything is computed.

  Its folder must exist, unless it will be made.
  """
  folder = os.path.dirname(os.path.abspath(path))
  while make and not os.path.lexists(folder):
    folder = os.path.dirname(folder)
  may_write = os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)
  if '://' not in path and (os.path.isdir(path) or not may_write):
    raise UserError(
      f'--out {path}: expected a file, in a folder that you may write to'
    )
