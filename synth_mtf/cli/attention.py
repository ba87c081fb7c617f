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
  parser.add_argument(
    '--text', action='append', default=[], help='an input; may be repeated'
  )
  parser.add_argument(
    '--target',
    action='append',
    default=[],
    help='the target of each input; without it, only the encoder is shown',
  )
  parser.add_argument(
    '--input',
    metavar='FILE',
    help='instead: a text file with an input per line, and after a tab its '
    'target if any',
  )
  parser.add_argument('--task', help='instead: the first examples of a task')
  parser.add_argument('--split', default='validation', help='of the task')
  parser.add_argument(
    '--examples', type=int, default=4, help='how many of the task'
  )
  parser.add_argument(
    '--data_dir',
    metavar='FOLDER',
    help="of the task's official files (default: $SYNTH_MTF_DATA_DIR)",
  )
  parser.add_argument(
    '--vocabulary',
    metavar='MODEL',
    help="a SentencePiece .model or 'bytes' (default: that of the run)",
  )
  parser.add_argument('--seed', type=int, default=0, help='for initial weights')


def step(text: str) -> Union[int, str]:
  """Parses a step on the command line."""
  if text in ('last', 'initial'):
    return text
  if text.isdecimal():
    return int(text)
  raise argparse.ArgumentTypeError(
    f"{text!r}: expected a step, 'last' or 'initial'"
  )


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
    print(f'  {name}_weights  {list(stack.weights.shape)}')
    print(f'  {name}_logits   {list(stack.logits.shape)}')
    if stack.alpha is not None:
      mixed = ', '.join(stack.functions)
      print(f'  {name}_alpha    {list(stack.alpha.shape)} of {mixed}')
  return 0


def look(args: argparse.Namespace, folder: str, steps: Any) -> Any:
  """Computes the attention of a run's checkpoints on the named text."""
  choose = chooser(args)
  from synth_mtf.attention import runs

  return runs.look(folder, steps, choose, args.vocabulary, args.seed)


def names_text(args: argparse.Namespace) -> bool:
  """Whether the flags name a text."""
  return bool(args.text or args.target or args.input or args.task)


def text_words(args: argparse.Namespace) -> list[str]:
  """Returns the flags that name the text, as words of a command."""
  words = [
    *(word for text in args.text for word in ('--text', text)),
    *(word for text in args.target for word in ('--target', text)),
  ]
  if args.task:
    words += ['--split', args.split, '--examples', str(args.examples)]
  for name in ('input', 'task', 'data_dir', 'vocabulary'):
    if getattr(args, name):
      words += [f'--{name}', getattr(args, name)]
  return words


def chooser(args: argparse.Namespace) -> Callable[[], Any]:
  """Returns a function that makes the examples, and loads the plugin.

  Raises:
    UserError: the flags name no text, or several.
  """
  ways = [bool(args.text or args.target), bool(args.input), bool(args.task)]
  if sum(ways) != 1:
    raise UserError(
      'name the text to look at in one way: --text (and --target), --input '
      'FILE, or --task NAME'
    )
  if args.examples < 1:
    raise UserError(f'--examples {args.examples}: expected at least 1')
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
  """Refuses a place that cannot be written to, before anything is computed.

  Args:
    path: of a file.
    make: whether its folder will be made.

  Raises:
    UserError: it is a folder, or in one that is missing or not writable.
  """
  if '://' in path:
    return
  folder = os.path.dirname(os.path.abspath(path))
  if os.path.isdir(path):
    raise UserError(f'--out {path} is a folder; expected a file')
  while make and not os.path.lexists(folder):
    folder = os.path.dirname(folder)
  if not os.path.isdir(folder):
    raise UserError(f'--out {path}: there is no folder {folder}')
  if not os.access(folder, os.W_OK | os.X_OK):
    raise UserError(f'--out {path}: {folder} is not writable')
