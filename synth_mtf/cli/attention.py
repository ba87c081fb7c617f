"""`synth-mtf attention`: what a checkpoint's layers attend to, as an .npz.

The arrays are named in `synth_mtf.attention.file`, and in
docs/figures.md.
"""

import argparse
import os
from collections.abc import Callable
from typing import Any, Union

from synth_mtf.errors import UserError
from synth_mtf.run import output, process

SUMMARY = 'attention weights, logits and alpha of a checkpoint on some text'

_EXAMPLES = 4


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
    help="of the checkpoint; 'last' (default); 'initial': weights as they are "
    'drawn before training',
  )


def add_text_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags that say which text is looked at."""
  parser.add_argument(
    '--text',
    action='append',
    default=[],
    help='an input; may be given several times',
  )
  parser.add_argument(
    '--target',
    action='append',
    default=[],
    help='the target of each input; without, the encoder alone is looked at',
  )
  parser.add_argument(
    '--input',
    metavar='FILE',
    help='instead: a text with an input a line, and after a tab its target',
  )
  parser.add_argument('--task', help='instead: the first examples of a task')
  parser.add_argument('--split', default='validation', help='of the task')
  parser.add_argument(
    '--examples', type=int, default=_EXAMPLES, help='how many of the task'
  )
  parser.add_argument(
    '--data_dir',
    metavar='FOLDER',
    help="of the task's official files (default: $SYNTH_MTF_DATA_DIR)",
  )
  parser.add_argument(
    '--vocabulary',
    metavar='MODEL',
    help="a SentencePiece .model or 'bytes' (default: the one of the run)",
  )
  parser.add_argument(
    '--seed', type=int, default=0, help='that initial weights are drawn with'
  )


def step(text: str) -> Union[int, str]:
  """A step of the command line."""
  if text in ('last', 'initial'):
    return text
  if text.isdecimal():
    return int(text)
  raise argparse.ArgumentTypeError(
    f"{text!r}: expected a step, 'last' or 'initial'"
  )


def run(args: argparse.Namespace) -> int:
  """Writes the file, and prints what is in it."""
  check_writable(args.out)
  (found,) = look(args, args.folder, [args.step])
  from synth_mtf.attention import file as attention_file

  attention_file.write(args.out, found)
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
  """Looks at the text that the flags name, with checkpoints of a run."""
  choose = chooser(args)
  from synth_mtf.attention import runs as attention

  return attention.look(folder, steps, choose, args.vocabulary, args.seed)


def names_text(args: argparse.Namespace) -> bool:
  """Whether the flags say which text to look at."""
  return bool(args.text or args.target or args.input or args.task)


def text_words(args: argparse.Namespace) -> list[str]:
  """The words that say again what the flags of the text say."""
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
  """Returns what makes the examples that the flags name, and loads the plugin.

  Raises:
    UserError: they name none, or several.
  """
  ways = [bool(args.text or args.target), bool(args.input), bool(args.task)]
  if sum(ways) != 1:
    raise UserError(
      'say which text to look at, in one way: --text (and --target), --input '
      'FILE, or --task NAME'
    )
  if args.examples < 1:
    raise UserError(f'--examples {args.examples}: expected at least 1')
  if args.data_dir:
    os.environ['SYNTH_MTF_DATA_DIR'] = args.data_dir
  process.load_quietly()
  with output.kept():
    from synth_mtf.attention import examples as attention_examples

  def choose() -> Any:
    if args.task:
      return attention_examples.of_task(args.task, args.split, args.examples)
    if args.input:
      return attention_examples.of_file(args.input)
    return attention_examples.of_texts(
      {'inputs': args.text, 'targets': args.target}
    )

  return choose


def check_writable(path: str, make: bool = False) -> None:
  """Refuses, before anything is computed, a place that cannot be written to.

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
    raise UserError(f'--out {path}: {folder} may not be written to')
