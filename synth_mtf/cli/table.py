"""`synth-mtf table`: prints the paper's tables for your own runs."""

import argparse

from synth_mtf import paths
from synth_mtf.cli import arguments, data, loading
from synth_mtf.errors import UserError
from synth_mtf.results import layouts, printing
from synth_mtf.run import process


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags."""
  arguments.add_runs(
    parser,
    'model folders of any command, folders of `synth-mtf demo`, folders of '
    'these; runs that differ only in their seeds are one row',
  )
  parser.add_argument(
    '--layout',
    choices=(*layouts.LAYOUTS, layouts.ALL),
    help='the columns of a published table, or all that the runs have '
    "(default: these, with the mean of the log perplexities of a mixture's "
    'tasks)',
  )
  parser.add_argument(
    '--checkpoint',
    default='last',
    metavar='STEP',
    help="a step; 'last', the last one that was evaluated; or 'best', for each "
    "task the step at which its metrics are best (default: 'last')",
  )
  parser.add_argument(
    '--errors',
    action='store_true',
    help='add the standard errors of the scores over the examples',
  )
  parser.add_argument(
    '--paper',
    action='store_true',
    help='add the published row of each model, and the difference, below it',
  )
  parser.add_argument(
    '--format',
    choices=('terminal', 'markdown', 'csv', 'latex', 'json'),
    help='default: on a terminal, terminal, which is split to fit its width; '
    'elsewhere, markdown',
  )
  parser.add_argument(
    '--bold',
    action=argparse.BooleanOptionalAction,
    default=True,
    help='whether the best numbers of each column are bold (default: yes)',
  )
  data.add_modules(parser)


def run(args: argparse.Namespace) -> None:
  """Prints the table."""
  from synth_mtf.results import tables, views

  runs = loading.runs(args.runs)
  tables.check_checkpoint(args.checkpoint, runs)
  loading.describe(runs, args.module_import)
  if args.layout == 'speed':  # it counts products in the graph of each model
    process.load(args.module_import)
  table = tables.make(runs, args.layout, args.checkpoint)
  if args.paper and table.is_generated:
    raise UserError(
      f'--paper: scores of {paths.GENERATED} are not scores of the benchmarks; '
      'leave out --paper, or evaluate on official files (--data_dir).'
    )
  if args.format == 'csv':
    print(views.csv(table, args.errors))
  elif args.format == 'json':
    print(views.as_json(table, args.errors, args.paper))
  else:
    grid = views.grid(table, args.errors, args.paper)
    if not args.bold:
      grid = printing.without_bold(grid)
    print(printing.text(grid, args.format))
