"""The `synth-mtf` command: one module per subcommand.

A subcommand is a module in this package with `add_arguments(parser)` and
`run(args)`, which may return an exit status; `args.words` is the whole command
line, and the environment has the values of the flags for data. `run` refuses
what it can without TensorFlow. It then calls `process.load()`, if it needs the
plugin, and imports the modules that need TensorFlow. `PARSER_OPTIONS`, if
defined, are passed to its `argparse.ArgumentParser`.
"""

import argparse
import atexit
import contextlib
import gc
import importlib
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from synth_mtf import __version__
from synth_mtf.cli import arguments, completion, data
from synth_mtf.errors import RunFailed, Terminated, UserError
from synth_mtf.host import patches
from synth_mtf.run import output

COMMANDS = {
  'demo': 'pretrain, finetune and evaluate each variant; print one table',
  'pretrain': 'train a new model on your text, or continue a run',
  'finetune': 'train a trained model further, on a task',
  'evaluate': 'score a run on its task; print and record its metrics',
  'predict': 'print the target that a trained model finds for each input',
  'transformer': "T5's own main: the flags of t5_mesh_transformer, no torch",
  'vocabulary': 'train a SentencePiece vocabulary on the text of a data folder',
  'tasks': 'tasks and mixtures: rows, rates, metrics, and two examples of one',
  'cache': 'write tasks as TFRecords, which any host can read, without Beam',
  'checkpoint': (
    'inspect, compare or convert checkpoints; export to and import from '
    'Hugging Face'
  ),
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
# A first command to try, below the help of each subcommand.
EXAMPLES = {
  'demo': '--variants vanilla random --steps 50',
  'pretrain': 'my_runs/rv --variant=R+V --text=my.txt --steps=1000',
  'finetune': (
    'my_runs/sent --from=my_runs/rv --task_file=my_task.yaml '
    '--learning_rate=0.05'
  ),
  'evaluate': 'my_runs/sent',
  'predict': "my_runs/sent 'sentiment: a fine film'",
  'transformer': (
    '--model_dir=my_runs/rv --data_dir=my_data --vocabulary=bytes '
    '--gin_file=sizes/tiny.gin --gin_file=variants/random_vanilla.gin '
    '--gin_file=runs/pretrain_text.gin --gin_file=runs/cpu.gin'
  ),
  'vocabulary': '--data_dir=my_data --out=my_vocabulary.model --size=8000',
  'tasks': 'synth_glue_cola_v002 --data_dir=my_data',
  'cache': '--task=synth_glue_cola_v002 --data_dir=my_data --out=my_cache',
  'checkpoint': 'inspect my_runs/rv',
  'cost': '--size=base --variants=vanilla,random --inputs=1024',
  'table': 'my_runs/rv_en_mix --layout=glue --paper',
  'attention': "my_runs/rv --text='The red boat.' --target='Das rote Boot.'",
  'plot': 'my_runs/rv my_runs/v --out=my_figures',
  'report': 'my_runs/rv my_runs/v --out=my_report.html',
  'replay': 'my_runs/rv',
  'doctor': '--data_dir=my_data --vocabulary=my_vocabulary.model',
}
# What to type in place of a command that is gone.
GONE = {
  'cluster': (
    'give the flags after -- to `synth-mtf transformer` on every machine, '
    'without utils.run.mesh_devices, together with --device=cpu (or gpu), '
    '--coordinator_address=HOST:PORT (that of machine 0), --num_processes=N '
    'and --process_id=K (the former --task); see "On several hosts" in '
    'docs/scaling.md'
  ),
}


def main(argv: Sequence[str] | None = None) -> int:
  """Runs the command line, and leaves the environment as it was.

  Args:
    argv: the arguments of `synth-mtf`; by default those of this process.

  Returns:
    The exit status: 0 for success, 2 for a user error, 1 for another failure
    (both explained on stderr), 130 after Ctrl-C, or 141 if a pipe that takes
    the results is closed.
  """
  gc.set_threshold(200_000, 50, 50)  # cuts TensorFlow's import time by a sixth
  # Otherwise Python looks for garbage in all graphs before it ends.
  atexit.unregister(gc.freeze)
  atexit.register(gc.freeze)
  words = sys.argv[1:] if argv is None else argv
  output.open_closed_streams()
  out: Any = output.Results(sys.stdout)
  err: Any = output.Printable(sys.stderr)
  with (
    contextlib.redirect_stdout(out),
    contextlib.redirect_stderr(err),
    _environment_kept(),
  ):
    try:
      return _run(words)
    finally:
      out.finish()
      err.finish()


@contextlib.contextmanager
def _environment_kept() -> Iterator[None]:
  """Undoes at the end what a command sets for itself and its processes.

  The next command of this process would take it for the user's.
  """
  before = dict(os.environ)
  try:
    yield
  finally:
    for name in os.environ.keys() - before.keys():
      del os.environ[name]
    for name, value in before.items():
      if os.environ.get(name) != value:
        os.environ[name] = value


def _run(words: Sequence[str]) -> int:
  """Returns the exit status of a command, whose failure it explains."""
  try:
    try:
      return _command(words)
    finally:  # --help exits
      sys.stdout.flush()
  except output.CannotPrint as error:
    if not error.is_closed:
      _complain(f'error: {error}')
    return 141 if error.is_closed else 1
  except (UserError, RunFailed, OSError) as error:
    _complain(f'error: {error}')
    return 2 if isinstance(error, UserError) else 1
  except Terminated:
    _complain('terminated')
    return 143
  except KeyboardInterrupt:
    _complain('interrupted')
    return 130


def _complain(message: str) -> None:
  """Prints why a command has failed, if that can be written."""
  output.end_wait()
  with contextlib.suppress(OSError):
    print(f'synth-mtf: {message}', file=sys.stderr)


def _command(words: Sequence[str]) -> int:
  patches.ensure_home()
  main_parser = parser()
  # The host imports it, and the deprecation would be printed by every command.
  warnings.filterwarnings('ignore', '(?s).*pkg_resources')
  if '_ARGCOMPLETE' in os.environ:  # the shell asks for completions
    completion.complete(main_parser)
  for word in words:
    if word.encode(errors='replace').decode() != word:
      raise UserError(f'{word!r} is not UTF-8; rename the file')
  if words and words[0] in GONE:
    raise UserError(
      f'there is no `synth-mtf {words[0]}` any more: {GONE[words[0]]}'
    )
  args = main_parser.parse_args(words, argparse.Namespace(words=words))
  if not args.command:
    main_parser.print_help(sys.stderr)
    return 2
  data.use(args)
  return args.run(args) or 0


def parser() -> argparse.ArgumentParser:
  """Returns the command-line parser; `args.run` runs `args.command`."""
  main_parser = arguments.Parser(
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
    example = f'Example: synth-mtf {name} {EXAMPLES[name]}'
    subparser.epilog = ' '.join(filter(None, [subparser.epilog, example]))
  return main_parser
