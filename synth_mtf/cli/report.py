"""`synth-mtf report`: writes one page about any number of runs."""

import argparse
import sys
from typing import Any

from synth_mtf.cli import arguments, attention, loading
from synth_mtf.errors import UserError
from synth_mtf.results.layouts import ALL, LAYOUTS
from synth_mtf.run import process
from synth_mtf.storage import atomic


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags."""
  arguments.add_runs(parser)
  parser.add_argument(
    '--out',
    type=arguments.new_path,
    default='report.html',
    metavar='FILE',
    help='the page; an existing page is replaced (default: report.html)',
  )
  parser.add_argument(
    '--layout',
    action='append',
    default=[],
    choices=(*LAYOUTS, ALL),
    help='a table of the paper, in addition to that of all results; may be '
    'repeated',
  )
  parser.add_argument(
    '--attention',
    action='append',
    default=[],
    metavar='FILE',
    help='an .npz of `synth-mtf attention` to show instead of computing the '
    'attention of the runs; may be repeated',
  )
  attention.add_text_arguments(parser)


def run(args: argparse.Namespace) -> None:
  """Writes the page."""
  if args.attention and attention.names_text(args):
    raise UserError(
      '--attention shows the files that you give; leave it out to use --text, '
      '--target, --input or --task'
    )
  attention.check_text(args)
  read = loading.runs(args.runs)
  from synth_mtf.attention import file
  from synth_mtf.report import page
  from synth_mtf.results import runs

  loading.for_paths(args.out, *args.attention)
  atomic.check_replaceable(args.out, page.GENERATOR)
  attentions: list[Any] = [file.read(path) for path in args.attention]
  process.load(args.module_import)
  import synth_mtf.tasks  # noqa: F401 (their metrics)

  missing: list[str] = []
  if not attentions:
    first_seeds = [same[0] for same in runs.by_model(read).values()]
    attentions, missing = attention.look_at_each(args, first_seeds, ['last'])
  if not attentions and attention.names_text(args):
    raise UserError('\n'.join(missing))
  command = ['synth-mtf', 'report', *args.words[1:]]
  page.write(args.out, read, attentions, args.layout, command, missing)
  for line in missing:
    print(line, file=sys.stderr)
  number = '1 run' if len(read) == 1 else f'{len(read)} runs'
  print(f'{number}: {args.out}')
