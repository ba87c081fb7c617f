"""`synth-mtf demo`: from pretraining to results on a laptop."""

import argparse
import contextlib
import dataclasses
import io
import json
import os
import pathlib
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence

from synth_mtf import cli, paths
from synth_mtf.cli import arguments, data, early, needed
from synth_mtf.demo.stages import Configuration
from synth_mtf.errors import UserError
from synth_mtf.run import main, output, process, stopping
from synth_mtf.storage import atomic, filesystem

# Omitted flags stay unset: `Configuration` has the defaults.
PARSER_OPTIONS = {'argument_default': argparse.SUPPRESS}
_VARIANTS = ['vanilla', 'random', 'random_vanilla']  # V, R, R+V


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags."""
  add = parser.add_argument
  default = Configuration()
  variants = ', '.join(paths.gin_names('variants'))
  sizes = ', '.join(paths.gin_names('sizes'))
  add(
    '--variants',
    nargs='+',
    type=arguments.Variants(),
    default=_VARIANTS,
    help=f'choose from {variants} (default: {" ".join(_VARIANTS)})',
  )
  add(
    '--size',
    type=arguments.GinNames('sizes'),
    help=f'choose from {sizes} (default: {default.size})',
  )
  add('--steps', type=arguments.at_least(1), help='sets both of the following')
  add(
    '--pretrain_steps',
    type=arguments.at_least(1),
    help=f'default: {default.pretrain_steps}',
  )
  add(
    '--finetune_steps',
    type=arguments.at_least(1),
    help=f'default: {default.finetune_steps}',
  )
  add(
    '--seed',
    '--seeds',
    dest='seeds',
    nargs='+',
    type=arguments.at_least(0),
    help='the same seed gives the same results; with several, the table shows '
    'mean and standard deviation (default: 0)',
  )
  add(
    '--out',
    type=arguments.new_path,
    default='synth-mtf-demo',
    help='where all files are written; a demo in it is resumed (default: '
    '%(default)s)',
  )
  add(
    '--mixture',
    type=arguments.TaskName(),
    help=f'a mixture or task to finetune on (default: {default.mixture})',
  )
  add(
    '--eval_examples',
    type=_number_or_all,
    help=f"how many of each task, or 'all' (default: {default.eval_examples})",
  )
  every_stage = 'used in every stage; may be repeated'
  add('--gin_file', action='append', type=arguments.GinFile(), help=every_stage)
  add('--gin_param', action='append', help=every_stage)
  data.add_settings(parser)
  parser.epilog = (
    'Without a data folder, the tasks are generated samples, and the text to '
    'pretrain on is the documentation of the installed packages. Without a '
    'vocabulary, one is trained on that text.'
  )


def _number_or_all(word: str) -> int | None:
  return None if word == 'all' else arguments.at_least(1)(word)


def run(args: argparse.Namespace) -> int:
  """Runs the demo."""
  given = vars(args)
  early.check_gin(given.get('gin_file', []), given.get('gin_param', []))
  if 'mixture' in given:
    data.check_names([given['mixture']])
  folder = os.environ.get('SYNTH_MTF_DATA_DIR')
  if folder:
    early.check_corpus(None, folder)
    mixture = given.get('mixture', Configuration.mixture)
    needed.check_splits(mixture, 'train', 'validation')
  process.require_hash_seed()
  console = output.Console(sys.stdout)
  configuration = _configuration(args)
  data_dir = configuration.data_dir
  if data_dir and not paths.holds_samples(data_dir):
    used_data = f'the official files in {data_dir}.'
  else:
    used_data = (
      'GENERATED SAMPLES of the tasks. They show that everything runs; scores\n'
      'on them are not scores of the benchmarks (see --data_dir).'
    )
  # On SIGTERM, running stages save a checkpoint, as on Ctrl-C.
  before = signal.signal(signal.SIGTERM, signal.default_int_handler)
  try:
    with stopping.acknowledged(lambda text: console.line(f'\n{text}'), _ENDING):
      return _run(args, configuration, used_data, console)
  finally:
    signal.signal(signal.SIGTERM, before)


def _run(
  args: argparse.Namespace,
  configuration: Configuration,
  used_data: str,
  console: output.Console,
) -> int:
  begun = time.monotonic()
  if filesystem.is_bucket(args.out):
    raise UserError(f'--out {args.out}: expected a local folder')
  atomic.check_writable(args.out, '--out')
  try:
    # Stages are forks of this process: it imports what they need, and starts
    # nothing of TensorFlow.
    with console.task('load TensorFlow'), output.kept():
      main.prepare()
      from synth_mtf.demo import job
    variants = dict.fromkeys(','.join(args.variants).split(','))
    out = pathlib.Path(args.out).absolute()
    done = job.run(configuration, list(variants), out, console, cli.main)
    runs = [os.path.join(args.out, name) for name in done]
    _report(runs, args.out, used_data, console, len(configuration.seeds))
  except KeyboardInterrupt:
    console.line('\nInterrupted. The same command resumes where it stopped.')
    return 130
  seconds = output.duration(time.monotonic() - begun)
  print(
    _FILES.format(
      data=used_data,
      time=seconds,
      out=args.out,
      tensorboard=shlex.join([_as_typed('tensorboard'), '--logdir', args.out]),
      table=shlex.join([_as_typed('synth-mtf'), 'table', args.out]),
    )
  )
  return 0


def _as_typed(program: str) -> str:
  """Returns what starts a program of this environment from the current folder.

  After `make demo`, the programs are not on PATH.
  """
  path = os.path.join(os.path.dirname(sys.argv[0]), program)
  on_path = shutil.which(program)
  if on_path and os.path.realpath(on_path) == os.path.realpath(path):
    return program
  return os.path.relpath(path) if os.path.exists(path) else program


def _configuration(args: argparse.Namespace) -> Configuration:
  """Returns the flags that were given, over the defaults of `Configuration`."""
  given = dict(vars(args))
  if 'seeds' in given:
    given['seeds'] = list(dict.fromkeys(given['seeds']))
  if 'steps' in given:
    given.setdefault('pretrain_steps', given['steps'])
    given.setdefault('finetune_steps', given['steps'])
  given['data_dir'] = absolute(os.environ.get('SYNTH_MTF_DATA_DIR'))
  given['vocabulary'] = absolute(os.environ.get('SYNTH_MTF_VOCABULARY'))
  names = {field.name for field in dataclasses.fields(Configuration)}
  return Configuration(**{n: v for n, v in given.items() if n in names})


def absolute(path: str | None) -> str | None:
  """Returns a local path for any working folder; others are kept."""
  if not path or path == 'bytes' or filesystem.is_bucket(path):
    return path or None
  return os.path.abspath(os.path.expanduser(path))


def _report(
  runs: Sequence[str],
  out: str,
  used_data: str,
  console: output.Console,
  seeds: int,
) -> None:
  """Writes the page and the table; prints the table, and what differs."""
  from synth_mtf.results import runs as results

  labels = {}
  for label, same in results.by_model(results.read(*runs)).items():
    folder = same[0].name  # one of the model's, and its seeds' is in it
    labels[folder if seeds == 1 else os.path.dirname(folder)] = label
  differences = _differences(labels, pathlib.Path(out), seeds)
  with (
    console.task('make table and page'),
    contextlib.redirect_stdout(io.StringIO()) as table,
  ):
    _command('table', *runs, '--format=markdown')
    atomic.write(
      os.path.join(out, 'table.md'),
      f'{table.getvalue()}\n{differences}\n\nData: {used_data}\n',
    )
    _command('report', *runs, f'--out={os.path.join(out, "report.html")}')
  console.line()
  print(_HOW_TO_READ)
  _command('table', *runs)
  if differences:
    print(f'\n{differences}')


def _command(*words: str) -> None:
  """Runs another command; if it fails or is interrupted, so is the demo."""
  status = cli.main(words)
  if status == 130:
    raise KeyboardInterrupt
  if status:  # the command has printed the reason
    raise SystemExit(status)


def _differences(
  labels: Mapping[str, str], out: pathlib.Path, seeds: int
) -> str:
  """Compares the models in folders, by their labels in the table."""
  import pandas as pd

  from synth_mtf.demo import pairing

  names = {label: os.path.basename(run) for run, label in labels.items()}
  if seeds == 1:
    answers = {
      label: pairing.of_examples(out / name / 'finetune/validation_eval')
      for label, name in names.items()
    }
    return pairing.compared(
      answers, "these runs' right answers to the same examples"
    )
  models = json.loads((out / 'metrics.json').read_text())['models']
  scores = {}
  for label, name in names.items():
    metrics = [run['metrics'] for run in models[name]]
    scores[label] = pd.DataFrame(metrics, dtype=float)
  return pairing.compared(scores, f'the scores of {seeds} seeds')


_ENDING = (
  'a stage that trains finishes its step and saves a checkpoint, then the demo '
  'ends. A second Ctrl-C ends it at once.'
)
_HOW_TO_READ = (
  'Each row is a model. Look first at GLUE and SuperGLUE (averages, percent) '
  'and at Log ppl (lower is better) against Steps/s.'
)
_FILES = """
Data: {data}
Done in {time}. In {out}:
  table.md, metrics.json         this table, and all its numbers
  <variant>/pretrain, finetune   checkpoints, TensorBoard summaries, gin, log
  <variant>/finetune/validation_eval   metrics.json and predictions.jsonl
Curves:  {tensorboard}
This table again, and other formats (--help):  {table}
Everything, and what the models attend to, in a browser:  {out}/report.html"""
