"""What pretrain, finetune, evaluate and predict have in common."""

import argparse
import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from synth_mtf import cli
from synth_mtf.cli import arguments, data, early, loading
from synth_mtf.commands.command import Command
from synth_mtf.run import process
from synth_mtf.storage import filesystem

if TYPE_CHECKING:
  from synth_mtf.commands.stages import Given

STEPS = 1000  # of training, unless a command says more
_DEVICES = ('cpu', 'gpu', 'tpu')


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags that every command has."""
  add = parser.add_argument
  add(
    '--vocabulary',
    type=arguments.vocabulary_file,
    metavar='MODEL',
    help="a SentencePiece .model, or 'bytes' (default: the run's)",
  )
  add('--batch_size', type=arguments.at_least(1), help='the rows of a step')
  add(
    '--device',
    choices=_DEVICES,
    help='compute on all such devices that JAX finds (default: a session of '
    'TensorFlow on this CPU or GPU)',
  )
  add(
    '--gin_file',
    action='append',
    default=[],
    type=arguments.GinFile(),
    help='included after all others; may be repeated',
  )
  add(
    '--gin_param',
    action='append',
    default=[],
    help='a binding, which overrides all others; may be repeated',
  )
  data.add_modules(parser)
  add(
    '--dry_run',
    action='store_true',
    help='print the commands that this one stands for, and run nothing',
  )


def add_training(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of a run that trains."""
  add = parser.add_argument
  add(
    '--learning_rate',
    type=arguments.positive,
    help='default: that of the run file',
  )
  add(
    '--seed',
    type=arguments.seed,
    help='makes the run repeatable (default: new random numbers)',
  )


def given(args: argparse.Namespace) -> 'Given':
  """Returns what the flags of `add_arguments` and the others say."""
  from synth_mtf.commands.run_folder import SETTINGS
  from synth_mtf.commands.stages import Given

  early.check_gin(args.gin_file, args.gin_param, args.module_import)
  data.check_task_files(args)
  words = vars(args)
  return Given(
    settings={name: words.get(name) for name in SETTINGS},
    device=args.device,
    gin_files=args.gin_file,
    gin_params=args.gin_param,
    modules=args.module_import,
    batch_size=args.batch_size,
    learning_rate=words.get('learning_rate'),
    seed=words.get('seed'),
  )


def look(folder: str, *paths: str) -> None:
  """Checks a folder's name; loads TensorFlow if a path is in a bucket."""
  filesystem.check_no_pattern(folder)
  loading.for_paths(folder, *paths)


def start(args: argparse.Namespace) -> None:
  """Starts the process again if it has to; what comes next happens once."""
  if not args.dry_run:
    process.fix_hash_seed()


def run(commands: Sequence[Command], args: argparse.Namespace) -> int:
  """Prints each command and runs it; returns the status of the last one."""
  if args.dry_run:
    for command in commands:
      print(command)
    return 0
  for command in commands:
    if command.words[0] == 'transformer':  # before a vocabulary is trained
      early.check_gin_of(command.words[1:])
  start(args)
  for command in commands:
    print(command, file=sys.stderr, flush=True)
    with _typed(command):
      status = cli.main(command.words)
    if status:
      return status
  return 0


@contextlib.contextmanager
def _typed(command: Command) -> Iterator[None]:
  """Makes a command the one that the process was started with.

  A run records it, and T5 does.
  """
  before = sys.argv
  sys.argv = [before[0], *command.words]
  try:
    yield
  finally:
    sys.argv = before
