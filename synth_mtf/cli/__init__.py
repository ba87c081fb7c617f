"""The `synth-mtf` command: one module per subcommand.

A subcommand is a module in this package with `add_arguments(parser)` and
`run(args)`, which may return an exit status; `args.words` is the whole command
line. It imports TensorFlow, and modules that need it, inside `run`; before it
runs, the plugin is loaded, unless the subcommand is one of `_SELF_LOADING`.
`PARSER_OPTIONS`, if defined, are passed to its `argparse.ArgumentParser`.
"""

import argparse
import contextlib
import gc
import importlib
import os
import re
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

from synth_mtf import __version__
from synth_mtf.cli import data
from synth_mtf.errors import RunFailed, UserError, nearest
from synth_mtf.run import output, process

COMMANDS = {
  'demo': 'pretrain, finetune and evaluate each variant; print one table',
  'transformer': "T5's own main: the flags of t5_mesh_transformer, no torch",
  'vocabulary': 'train a SentencePiece vocabulary on the text of a data folder',
  'tasks': 'tasks and mixtures: rows, rates, metrics, and two examples of one',
  'cache': 'write tasks as TFRecords, which any host can read, without Beam',
  'checkpoint': (
    'inspect, compare or convert checkpoints; export to and import from '
    'Hugging Face'
  ),
  'cluster': "T5's main over several machines: the same command on each",
  'cost': 'parameters, floating-point operations and bytes of each variant',
  'table': "the paper's tables, for your own runs",
  'attention': (
    'attention weights, logits and alpha of a checkpoint on some text'
  ),
  'plot': 'figures of runs: curves, scores, alpha, attention (PNG and SVG)',
  'report': 'one page about runs: tables, figures, attention, configuration',
  'replay': 'the commands that reproduce a run, and what differs here',
  'doctor': 'versions, devices, vocabulary and data, and how to fix each fault',
}
# These load the plugin themselves: they report whether it can be loaded, show
# progress meanwhile, or restart the process first.
_SELF_LOADING = ('demo', 'transformer', 'cluster', 'doctor')


def main(argv: Sequence[str] | None = None) -> int:
  """Runs the command line.

  Args:
    argv: the arguments of `synth-mtf`; by default those of this process.

  Returns:
    The exit status: 0 for success, 2 for a user error, 1 for another failure
    (both explained on stderr), or 130 after Ctrl-C.
  """
  gc.set_threshold(200_000, 50, 50)  # cuts TensorFlow's import time by a sixth
  words = sys.argv[1:] if argv is None else argv
  out: Any = output.Printable(sys.stdout)
  err: Any = output.Printable(sys.stderr)
  with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
    return _run(words)


def _run(words: Sequence[str]) -> int:
  main_parser = parser()
  # The host imports it, and the deprecation would be printed by every command.
  warnings.filterwarnings('ignore', '(?s).*pkg_resources')
  if '_ARGCOMPLETE' in os.environ:  # the shell asks for completions
    importlib.import_module('argcomplete').autocomplete(main_parser)
  try:
    for word in words:
      if word.encode(errors='replace').decode() != word:
        raise UserError(f'{word!r} is not UTF-8; rename the file')
    args = main_parser.parse_args(words, argparse.Namespace(words=words))
    if not args.command:
      main_parser.print_help(sys.stderr)
      return 2
    if args.command not in _SELF_LOADING:
      data.use(args)
      process.load_quietly()
    return args.run(args) or 0
  except (UserError, RunFailed, OSError) as error:
    print(f'synth-mtf: error: {error}', file=sys.stderr)
    return 2 if isinstance(error, UserError) else 1
  except KeyboardInterrupt:
    print('synth-mtf: interrupted', file=sys.stderr)
    return 130


def parser() -> argparse.ArgumentParser:
  """Returns the command-line parser; `args.run` runs `args.command`."""
  main_parser = _Parser(
    prog='synth-mtf',
    description='Synthesizer (arXiv 2005.00743) in Mesh-TensorFlow T5.',
    allow_abbrev=False,
  )
  main_parser.add_argument(
    '--version', action='version', version=f'synth-mtf {__version__}'
  )
  subparsers = main_parser.add_subparsers(metavar='command', dest='command')
  for name, summary in COMMANDS.items():
    command = importlib.import_module(f'synth_mtf.cli.{name}')
    options = getattr(command, 'PARSER_OPTIONS', {})
    subparser = subparsers.add_parser(
      name, help=summary, description=summary, allow_abbrev=False, **options
    )
    command.add_arguments(subparser)
    subparser.set_defaults(run=command.run)
  return main_parser


class _Parser(argparse.ArgumentParser):
  """Suggests names that are similar to a mistyped command, flag or choice."""

  def parse_known_args(self, *args: Any, **kwargs: Any) -> Any:
    namespace, unknown = super().parse_known_args(*args, **kwargs)
    if unknown:
      flag = unknown[0].partition('=')[0]
      hint = nearest(flag, self._option_string_actions)
      self.error(f'unrecognized arguments: {" ".join(unknown)}{hint}')
    return namespace, unknown

  def error(self, message: str) -> NoReturn:
    match = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
    if match:
      choice, choices = match.groups()
      message += nearest(choice, re.findall(r"[^', ]+", choices))
    super().error(message)
