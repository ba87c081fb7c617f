"""`synth-mtf demo`: the main job in a size for a laptop."""

import argparse
import os
import signal
import sys
import time
from typing import Optional

from synth_mtf.demo import workers
from synth_mtf.demo.configuration import BYTES, Configuration, names_of
from synth_mtf.demo.job import Job
from synth_mtf.results import printing
from synth_mtf.run.console import Console, duration

SUMMARY = 'pretrain, finetune and evaluate each variant; print one table'

_VARIANTS = ['vanilla', 'random', 'random_vanilla']  # V, R, R+V
# No name of a gin folder or of a Python package can collide with it.
_OUT = 'synth-mtf-demo'


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the demo's options."""
  default = Configuration()
  add = parser.add_argument
  add(
    '--variants',
    nargs='+',
    default=_VARIANTS,
    metavar='NAME',
    help='models to compare, with spaces or commas between them; of: '
    f'{", ".join(names_of("variants"))} '
    f'(default: {" ".join(_VARIANTS)})',
  )
  add(
    '--size',
    default=default.size,
    metavar='NAME',
    help=f'of: {", ".join(names_of("sizes"))} (default: {default.size})',
  )
  add(
    '--steps',
    type=int,
    metavar='N',
    help='training steps, of pretraining and of finetuning each, where no '
    'other number is given',
  )
  add(
    '--pretrain_steps',
    type=int,
    metavar='N',
    help='training steps of pretraining; 0 leaves it out (default: '
    f'{default.pretrain_steps}, or 0 with an --init_checkpoint)',
  )
  add(
    '--finetune_steps',
    type=int,
    metavar='N',
    help=f'training steps of finetuning (default: {default.finetune_steps})',
  )
  add(
    '--init_checkpoint',
    metavar='PATH',
    help="where the first training starts, <folder>/model.ckpt-1000; T5's own "
    'will do, with its --size and --vocabulary',
  )
  add(
    '--seed',
    '--seeds',
    dest='seeds',
    nargs='+',
    type=int,
    default=list(default.seeds),
    metavar='N',
    help='the same seed gives the same results; with several, each variant '
    'runs with each, and the table has mean and standard deviation (default: '
    f'{" ".join(map(str, default.seeds))})',
  )
  add(
    '--out',
    default=_OUT,
    metavar='FOLDER',
    help='where all is written; a run that is there is resumed '
    f'(default: {_OUT})',
  )
  add(
    '--data_dir',
    default=os.environ.get('SYNTH_MTF_DATA_DIR') or None,
    metavar='FOLDER',
    help='official files: glue/CoLA/train.tsv, superglue/BoolQ/train.jsonl, '
    'squad/train-v1.1.json, corpus/**/*.txt, ... (default: '
    '$SYNTH_MTF_DATA_DIR; without it, generated samples and the documentation '
    'text of installed packages)',
  )
  add(
    '--mixture',
    default=default.mixture,
    metavar='NAME',
    help='mixture or task to finetune and evaluate on '
    f'(default: {default.mixture})',
  )
  add(
    '--eval_examples',
    type=_examples,
    default=default.eval_examples,
    metavar='N',
    help="validation examples of each task that are evaluated, or 'all' "
    f'(default: {default.eval_examples})',
  )
  add(
    '--vocabulary',
    default=os.environ.get('SYNTH_MTF_VOCABULARY') or None,
    metavar='FILE',
    help="a SentencePiece .model file, or 'bytes' (default: "
    '$SYNTH_MTF_VOCABULARY; without it, one is trained on the corpus)',
  )
  add(
    '--skip_bad_rows',
    action='store_true',
    help='leave malformed rows of the official files out',
  )
  add(
    '--gin_file',
    action='append',
    default=[],
    metavar='FILE',
    help='a further gin file for every stage; may be given several times',
  )
  add(
    '--gin_param',
    action='append',
    default=[],
    metavar='BINDING',
    help='a gin binding for every stage; may be given several times',
  )


def _examples(word: str) -> Optional[int]:
  """Reads a number of examples; None is all of them."""
  if word == 'all':
    return None
  if not word.lstrip('-').isdigit():
    raise argparse.ArgumentTypeError(f"{word!r}; expected a number, or 'all'")
  return int(word)


def run(args: argparse.Namespace) -> int:
  """Runs the demo."""
  asked_by = []  # a signal

  def interrupt(number: int, frame: object) -> None:
    del frame
    asked_by.append(number)
    raise KeyboardInterrupt

  before = signal.signal(signal.SIGTERM, interrupt)
  # Part of repeatability: see synth_mtf.progress.train_with_progress.
  os.environ['PYTHONHASHSEED'] = '0'
  console = Console(sys.stdout)
  configuration = _configuration(args)
  variants = [name for word in args.variants for name in word.split(',')]
  job = Job(configuration, variants, args.out, console)
  begun = time.monotonic()
  try:
    grid = job.run()
  except workers.WorkerFailed as failure:
    print(f'synth-mtf: error: {failure}', file=sys.stderr)
    return 1
  except KeyboardInterrupt:
    console.line('\nInterrupted. The same command goes on where it was.')
    return 128 + (asked_by or [signal.SIGINT])[0]
  finally:
    signal.signal(signal.SIGTERM, before)
  console.line(f'\n{printing.text(grid)}')
  console.line(f'\n{_where(args.out, configuration, time.monotonic() - begun)}')
  return 0


def _configuration(args: argparse.Namespace) -> Configuration:
  def absolute(path: Optional[str]) -> Optional[str]:
    return path and os.path.abspath(os.path.expanduser(path))

  default = Configuration()
  return Configuration(
    size=args.size,
    pretrain_steps=_first_given(
      args.pretrain_steps,
      0 if args.init_checkpoint else args.steps,
      default.pretrain_steps,
    ),
    finetune_steps=_first_given(
      args.finetune_steps, args.steps, default.finetune_steps
    ),
    seeds=tuple(args.seeds),
    mixture=args.mixture,
    eval_examples=args.eval_examples,
    data_dir=absolute(args.data_dir),
    vocabulary=(
      args.vocabulary if args.vocabulary == BYTES else absolute(args.vocabulary)
    ),
    skip_bad_rows=args.skip_bad_rows,
    init_checkpoint=(
      args.init_checkpoint
      if '://' in (args.init_checkpoint or '')
      else absolute(args.init_checkpoint)
    ),
    gin_files=tuple(args.gin_file),
    gin_params=tuple(args.gin_param),
  )


def _first_given(*numbers: Optional[int]) -> int:
  return next(number for number in numbers if number is not None)


def _where(out: str, configuration: Configuration, seconds: float) -> str:
  """Says what was made, where it is, and how to look at it."""
  data = (
    f'the official files in {configuration.data_dir}'
    if configuration.data_dir
    else 'GENERATED SAMPLES of the tasks. They show that everything runs;\n'
    'scores on them are not scores of the benchmarks (see --data_dir)'
  )
  return f"""\
Data: {data}.
Done in {duration(seconds)}. In {out}:
  table.md, metrics.json         this table, and every number in it
  <variant>/pretrain, finetune   checkpoints, TensorBoard summaries, gin
  <variant>/finetune/validation_eval   metrics.json and predictions.jsonl
  logs                           TensorFlow's log of each stage
Curves:  tensorboard --logdir {out}
All of it, and what the models attend to, in a browser:  {out}/report.html"""
