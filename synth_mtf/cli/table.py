"""`synth-mtf table`: the paper's tables out of a user's own runs."""

import argparse

from synth_mtf.run import process

SUMMARY = "the paper's tables, out of your own runs"

LAYOUTS = (
  'glue',
  'superglue',
  'translation',
  'generation',
  'lm',
  'classification',
  'speed',
)
FORMATS = ('terminal', 'markdown', 'csv', 'latex', 'json')


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags."""
  parser.add_argument(
    'runs',
    nargs='+',
    metavar='RUN',
    help='a model folder, of whatever command, or a folder of `synth-mtf '
    'demo`; runs that differ by their seeds alone are one row',
  )
  parser.add_argument(
    '--layout',
    choices=LAYOUTS,
    help='the columns of a table of the paper (default: what the runs have)',
  )
  parser.add_argument(
    '--checkpoint',
    default='last',
    metavar='STEP',
    help='a step; last, the last that was evaluated; or best, for each task '
    'that at which its metrics are best (default: last)',
  )
  parser.add_argument(
    '--errors',
    action='store_true',
    help='standard errors of the scores over the examples',
  )
  parser.add_argument(
    '--paper',
    action='store_true',
    help="the paper's row and the difference below each model",
  )
  parser.add_argument(
    '--format',
    choices=FORMATS,
    help='default: terminal, cut to its width; markdown where there is none',
  )


def run(args: argparse.Namespace) -> int:
  """Prints the table."""
  process.load_quietly()
  import synth_mtf.tasks  # noqa: F401 (their metrics)
  from synth_mtf.results import printing, runs
  from synth_mtf.results.tables import (
    checkpoints,
    data,
    grid,
    layouts,
    table,
  )

  choice = checkpoints.choice(args.checkpoint)
  found = runs.read_all(args.runs)
  layout = (
    layouts.LAYOUTS[args.layout](found)
    if args.layout
    else layouts.overview(found)
  )
  made = table.make(found, layout, choice)
  texts = grid.grid(made, args.errors, args.paper)
  written = {
    'csv': lambda: data.comma_separated(made, args.errors),
    'json': lambda: data.as_json(made, texts.notes, args.paper),
  }
  if args.format in written:
    print(written[args.format]())
  else:
    print(printing.text(texts, args.format))
  return 0
