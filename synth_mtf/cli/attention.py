"""`synth-mtf attention`: saves the attention of a checkpoint as an .npz file.

`synth_mtf.attention.file` and docs/figures.md list the arrays.
"""

import argparse
from collections.abc import Callable
from typing import Any

from synth_mtf import atomic
from synth_mtf.cli import arguments, data
from synth_mtf.errors import UserError
from synth_mtf.run import output, process


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags."""
  parser.add_argument(
    'folder', type=arguments.existing, metavar='RUN', help='a model folder'
  )
  parser.add_argument(
    '--out', metavar='FILE', default='attention.npz', help='what to write'
  )
  add_text_arguments(parser)
  parser.add_argument(
    '--step',
    default='last',
    help="of the checkpoint; 'last' (default), or 'initial' for the weights "
    'before training',
  )


def add_text_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags that select the text."""
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
  data.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
  """Writes the file."""
  process.load_quietly()
  from synth_mtf.attention import file

  atomic.check_replaceable(args.out, file.MARK)
  (found,) = look(args, args.folder, [args.step])
  file.write(args.out, found)
  print(
    f'{found.label}, step {found.step}, {found.examples} examples: {args.out}'
  )
  return 0


def look(args: argparse.Namespace, folder: str, steps: Any) -> Any:
  """Computes the attention of a run's checkpoints on the named text."""
  choose = chooser(args)
  from synth_mtf.attention import runs

  return runs.look(folder, steps, choose, args.vocabulary)


def names_text(args: argparse.Namespace) -> bool:
  """Returns whether the flags select a text."""
  return bool(args.text or args.target or args.input or args.task)


def chooser(args: argparse.Namespace) -> Callable[[], Any]:
  """Loads the plugin, and returns a function that creates the examples."""
  ways = [bool(args.text or args.target), bool(args.input), bool(args.task)]
  if sum(ways) != 1 or args.examples < 1:
    raise UserError(
      'name the text to look at in one way: --text (and --target), --input '
      'FILE, or --task NAME with at least one of its --examples'
    )
  data.use(args)
  process.load_quietly()
  with output.kept():
    from synth_mtf.attention import examples

  if args.task:
    return lambda: examples.from_task(args.task, args.split, args.examples)
  if args.input:
    return lambda: examples.from_file(args.input)
  texts = {'inputs': args.text, 'targets': args.target}
  return lambda: examples.from_texts(texts)
