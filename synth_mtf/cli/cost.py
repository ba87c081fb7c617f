"""`synth-mtf cost`: parameters, FLOPs and bytes of each variant."""

import argparse

from synth_mtf.cli import arguments
from synth_mtf.paths import gin_names
from synth_mtf.results import printing
from synth_mtf.run import output

_HEADERS = (
  'variant',
  'trained',
  'fixed',
  'tables',
  'forward',
  'state',
  "tables' state",
  'attention',
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags."""
  add = parser.add_argument
  ours = [name for name in gin_names('variants') if 'original' not in name]
  add(
    '--size',
    type=arguments.GinNames('sizes'),
    default='base',
    help='a file of gin/sizes',
  )
  add(
    '--variants',
    type=arguments.GinNames('variants'),
    default=','.join(ours),
    help='files of gin/variants, separated by commas; a + joins those of one '
    'model (random+cross_dense); default: all of ours',
  )
  count = arguments.at_least(1)
  add(
    '--inputs', type=count, default=512, help="N; also the encoder's max_length"
  )
  add(
    '--targets', type=count, default=114, help="also the decoder's max_length"
  )
  add(
    '--model_parallelism',
    type=count,
    default=1,
    help='cores that share one copy of the model',
  )
  add('--gin_param', action='append', default=[], help='further bindings')
  add(
    '--paper',
    action='store_true',
    help='compare with Tables 2 and 4 of the paper and with arXiv 2102.11972 '
    'instead',
  )


def run(args: argparse.Namespace) -> None:
  """Prints a table, or the published counts beside our own."""
  if args.paper:
    _print_published()
  else:
    _print_variants(args)


def _print_published() -> None:
  from synth_mtf.results import paper

  console = output.Console()
  for table in paper.TABLES:
    if 'costs' in table:
      title = table['title']
      console.start(title, 'count the cost of its models ...')
      counts = paper.costs(
        title, lambda row: console.update(f'count {row} ...')
      )
      console.clear()
      print(counts, end='\n\n', flush=True)


def _print_variants(args: argparse.Namespace) -> None:
  console = output.Console()
  variants = args.variants.split(',')
  rows = []
  console.start('count', f'the cost of {len(variants)} variants ...')
  for number, variant in enumerate(variants, 1):
    console.update(f'{variant} ({number} of {len(variants)}) ...')
    rows.append(_row(variant, args))
  console.clear()
  cores = args.model_parallelism
  print(
    f'{args.size}, {args.inputs} inputs and {args.targets} targets, '
    f'{cores} core{"s" if cores > 1 else ""} for one copy; bytes per core'
  )
  print(printing.columns(_HEADERS, rows))


def _row(variant: str, args: argparse.Namespace) -> list[str]:
  """Returns the cells of a variant, which may be several joined by `+`."""
  from synth_mtf.cost import cost_of_files

  variants = [f'variants/{name}.gin' for name in variant.split('+')]
  cost = cost_of_files(
    [f'sizes/{args.size}.gin', *variants],
    {'inputs': args.inputs, 'targets': args.targets},
    [
      # A decoder's tables need no more rows than the targets have tokens.
      f'encoder/Unitransformer.max_length = {args.inputs}',
      f'decoder/Unitransformer.max_length = {args.targets}',
      *args.gin_param,
    ],
    mesh_shape=f'model:{args.model_parallelism}',
  )
  fixed = cost.parameters - cost.trained
  return [
    variant,
    f'{cost.trained / 1e6:.1f} M',
    f'{fixed / 1e6:.1f} M',
    f'{cost.tables / 1e6:.1f} M',
    f'{cost.flops / 1e9:.1f} GFLOP',
    f'{cost.state_bytes / 1e9:.2f} GB',
    f'{cost.table_bytes / 1e9:.2f} GB',
    f'{cost.attention_bytes / 1e6:.0f} MB',
  ]
