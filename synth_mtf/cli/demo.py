"""`synth-mtf demo`: pretraining to results, on a laptop."""

import argparse
import contextlib
import dataclasses
import io
import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import Optional

from synth_mtf import atomic, cli
from synth_mtf.demo.configuration import BYTES, Configuration, gin_names
from synth_mtf.demo.job import Job
from synth_mtf.run.console import Console, duration

SUMMARY = 'pretrain, finetune and evaluate each variant; print one table'

_VARIANTS = ['vanilla', 'random', 'random_vanilla']  # V, R, R+V
# Collides with no gin folder or Python package.
_OUT = 'synth-mtf-demo'


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags."""
  default = Configuration()
  add = parser.add_argument
  add(
    '--variants',
    nargs='+',
    default=_VARIANTS,
    metavar='NAME',
    help='models to compare, separated by spaces or commas; choose from '
    f'{", ".join(gin_names("variant"))} (default: {" ".join(_VARIANTS)})',
  )
  add(
    '--size',
    default=default.size,
    metavar='NAME',
    help=f'choose from {", ".join(gin_names("size"))} (default: %(default)s)',
  )
  add(
    '--steps',
    type=int,
    metavar='N',
    help='training steps of pretraining and of finetuning, unless given '
    'separately',
  )
  add(
    '--pretrain_steps',
    type=int,
    default=argparse.SUPPRESS,
    metavar='N',
    help='training steps of pretraining; 0 skips it (default: '
    f'{default.pretrain_steps}, or 0 with an --init_checkpoint)',
  )
  add(
    '--finetune_steps',
    type=int,
    default=argparse.SUPPRESS,
    metavar='N',
    help=f'training steps of finetuning (default: {default.finetune_steps})',
  )
  add(
    '--init_checkpoint',
    type=_path,
    metavar='PATH',
    help='where the first training starts, such as <folder>/model.ckpt-1000; '
    "T5's own checkpoints work with its --size and --vocabulary",
  )
  add(
    '--seed',
    '--seeds',
    dest='seeds',
    nargs='+',
    type=int,
    default=default.seeds,
    metavar='N',
    help='the same seed gives the same results; with several, each variant '
    'runs with each, and the table shows mean and standard deviation '
    f'(default: {" ".join(map(str, default.seeds))})',
  )
  add(
    '--out',
    default=_OUT,
    metavar='FOLDER',
    help='where all files are written; a run in it is resumed '
    '(default: %(default)s)',
  )
  add(
    '--data_dir',
    type=_path,
    default=os.environ.get('SYNTH_MTF_DATA_DIR') or None,
    metavar='FOLDER',
    help='official files: glue/CoLA/train.tsv, superglue/BoolQ/train.jsonl, '
    'squad/train-v1.1.json, corpus/**/*.txt, ... (default: '
    '$SYNTH_MTF_DATA_DIR, else generated samples and the documentation of '
    'installed packages)',
  )
  add(
    '--mixture',
    default=default.mixture,
    metavar='NAME',
    help='mixture or task to finetune and evaluate on (default: %(default)s)',
  )
  add(
    '--eval_examples',
    type=_examples,
    default=default.eval_examples,
    metavar='N',
    help="validation examples of each task to evaluate on, or 'all' "
    '(default: %(default)s)',
  )
  add(
    '--vocabulary',
    type=_path,
    default=os.environ.get('SYNTH_MTF_VOCABULARY') or None,
    metavar='FILE',
    help="a SentencePiece .model file, or 'bytes' (default: "
    '$SYNTH_MTF_VOCABULARY, else one is trained on the corpus)',
  )
  add(
    '--skip_bad_rows',
    action='store_true',
    help='skip malformed rows of the official files',
  )
  for name, what in (('file', 'FILE'), ('param', 'BINDING')):
    add(
      f'--gin_{name}',
      action='append',
      default=[],
      metavar=what,
      help=f'a further gin {what.lower()} for every stage; repeatable',
    )


def _path(path: str) -> str:
  """Makes a path absolute, so that it is the same from any folder."""
  if not path or path == BYTES or '://' in path:
    return path
  return os.path.abspath(os.path.expanduser(path))


def _examples(word: str) -> Optional[int]:
  """Parses a number of examples; None means all."""
  if word == 'all':
    return None
  if not word.lstrip('-').isdigit():
    raise argparse.ArgumentTypeError(f"{word!r}; expected a number, or 'all'")
  return int(word)


def run(args: argparse.Namespace) -> int:
  """Runs the demo."""

  def interrupt(number: int, frame: object) -> None:
    del frame
    raise KeyboardInterrupt(number)

  begun = time.monotonic()
  console = Console(sys.stdout)
  configuration = _configuration(args)
  variants = [name for word in args.variants for name in word.split(',')]
  job = Job(configuration, variants, args.out, console)
  data = _data(configuration)
  before = signal.signal(signal.SIGTERM, interrupt)
  try:
    job.run()
    _report(job.finished(), args.out, data, console)
  except KeyboardInterrupt as stopped:
    console.line('\nInterrupted. The same command resumes where it stopped.')
    (number,) = stopped.args or (signal.SIGINT,)
    return 128 + number
  finally:
    signal.signal(signal.SIGTERM, before)
  seconds = time.monotonic() - begun
  print(_FILES.format(data=data, time=duration(seconds), out=args.out))
  return 0


def _configuration(args: argparse.Namespace) -> Configuration:
  steps = {}
  if args.steps is not None:
    steps = {'pretrain_steps': args.steps, 'finetune_steps': args.steps}
  if args.init_checkpoint:
    steps['pretrain_steps'] = 0
  names = [field.name for field in dataclasses.fields(Configuration)]
  given = {name: value for name, value in vars(args).items() if name in names}
  return Configuration(**{**steps, **given})


def _report(
  variants: Sequence[str], out: str, data: str, console: Console
) -> None:
  """Writes the page and the table, and prints the table."""
  runs = [os.path.join(out, name) for name in variants]
  with (
    console.task('make table and page'),
    contextlib.redirect_stdout(io.StringIO()) as table,
  ):
    _command('table', *runs, '--format=markdown')
    atomic.write(os.path.join(out, 'table.md'), f'{table.getvalue()}\n{data}\n')
    _command('report', *runs, f'--out={os.path.join(out, "report.html")}')
  console.line()
  _command('table', *runs)


def _command(*words: str) -> None:
  """Runs another subcommand in this process."""
  args = cli.parser().parse_args(words, argparse.Namespace(words=words))
  args.run(args)


def _data(configuration: Configuration) -> str:
  if configuration.data_dir:
    return f'Data: the official files in {configuration.data_dir}.'
  return (
    'Data: GENERATED SAMPLES of the tasks. They show that everything runs; '
    'scores\non them are not scores of the benchmarks (see --data_dir).'
  )


_FILES = """
{data}
Done in {time}. In {out}:
  table.md, metrics.json         this table, and all its numbers
  <variant>/pretrain, finetune   checkpoints, TensorBoard summaries, gin, log
  <variant>/finetune/validation_eval   metrics.json and predictions.jsonl
Curves:  tensorboard --logdir {out}
Everything, and what the models attend to, in a browser:  {out}/report.html"""
