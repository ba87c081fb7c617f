"""`synth-mtf attention`: saves the attention of a checkpoint as an .npz file.

`synth_mtf.attention.file` and docs/figures.md list the arrays.
"""

import argparse
import functools
from collections.abc import Sequence
from typing import Any

from synth_mtf.cli import arguments, data, loading, needed
from synth_mtf.errors import UserError
from synth_mtf.run import process
from synth_mtf.storage import atomic, filesystem


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags."""
  parser.add_argument(
    'folder', type=arguments.existing, metavar='RUN', help='a model folder'
  )
  parser.add_argument(
    '--out',
    type=arguments.new_path,
    metavar='FILE',
    default='attention.npz',
    help='the file to write (default: %(default)s)',
  )
  add_text_arguments(parser)
  parser.add_argument(
    '--step',
    default='last',
    help="the checkpoint's step, 'last' (default), or 'initial', the weights "
    'before training',
  )


def add_text_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags that select the text."""
  source = parser.add_mutually_exclusive_group()
  source.add_argument(
    '--text', action='append', help='an input; may be repeated'
  )
  source.add_argument(
    '--input',
    type=arguments.examples_file,
    metavar='FILE',
    help='a text file with an input per line, optionally followed by a tab and '
    'its target',
  )
  source.add_argument(
    '--task',
    type=arguments.TaskName(),
    help='show the first examples of this task',
  )
  parser.add_argument(
    '--target',
    action='append',
    help='the target of each --text; without it, only the encoder is shown',
  )
  parser.add_argument(
    '--split',
    default='validation',
    help='the split of --task (default: %(default)s)',
  )
  parser.add_argument(
    '--examples',
    type=arguments.at_least(1),
    default=4,
    help='the number of examples of --task (default: %(default)s)',
  )
  data.add_arguments(parser)


def check_text(args: argparse.Namespace) -> None:
  """Refuses what the flags of `add_text_arguments` cannot select."""
  if args.target and (args.task or args.input):
    raise UserError(
      '--target needs --text; files and tasks have their own targets'
    )
  if args.task:
    data.check_names([args.task], args.module_import)
    needed.check_splits(args.task, args.split)


def run(args: argparse.Namespace) -> None:
  """Writes the file."""
  check_text(args)
  loading.for_paths(args.folder, args.out)
  from synth_mtf.attention import file
  from synth_mtf.results import runs

  runs.only(args.folder).checkpoint_at(args.step)
  atomic.check_replaceable(args.out, file.MARK)
  process.load(args.module_import)
  from synth_mtf.attention import computation

  (attention,) = computation.look(
    args.folder, [args.step], functools.partial(chosen, args), args.vocabulary
  )
  file.write(args.out, attention)
  number = attention.examples
  examples = '1 example' if number == 1 else f'{number} examples'
  print(f'{attention.label}, step {attention.step}, {examples}: {args.out}')


def names_text(args: argparse.Namespace) -> bool:
  """Whether the flags select a text."""
  return bool(args.text or args.target or args.input or args.task)


def look_at_each(
  args: argparse.Namespace, runs: Sequence[Any], steps: Sequence[str]
) -> tuple[list[Any], list[str]]:
  """Returns the attention of runs at some steps, and why others have none.

  The plugin is loaded.
  """
  from synth_mtf.attention import computation

  attentions, missing = [], []
  for run in runs:
    try:
      attentions += computation.look(
        run.name, steps, functools.partial(chosen, args), args.vocabulary
      )
    except UserError as error:
      missing.append(f'No attention of {run.label}, {run.name}: {error}')
  return attentions, missing


def chosen(args: argparse.Namespace, model: Any) -> Any:
  """Creates the selected examples for a model, by default four sentences."""
  from synth_mtf.attention import examples

  if args.text or args.target:
    texts = {'inputs': args.text or [], 'targets': args.target or []}
    return examples.from_texts(model, texts)
  if args.input:
    with filesystem.named_by('--input'):
      return examples.from_file(model, args.input)
  if args.task:
    return examples.from_task(model, args.task, args.split, args.examples)
  return examples.defaults(model)
