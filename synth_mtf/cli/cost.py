"""`synth-mtf cost`: parameters, FLOPs and bytes of each variant."""

import argparse

from synth_mtf.cli import arguments
from synth_mtf.paths import gin_names
from synth_mtf.results import printing


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags."""
  add = parser.add_argument
  size, variants = map(arguments.gin_name, ('sizes', 'variants'))
  add('--size', type=size, default='base', help='a file of gin/sizes')
  add(
    '--variants',
    type=variants,
    default=','.join(x for x in gin_names('variants') if 'original' not in x),
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
  from synth_mtf.cost import cost_of_files
  from synth_mtf.results import paper

  if args.paper:
    for table in paper.TABLES:
      if 'costs' in table:
        print(paper.costs(table['title']), end='\n\n')
    return
  costs = {
    variant: cost_of_files(
      [
        f'sizes/{args.size}.gin',
        *(f'variants/{name}.gin' for name in variant.split('+')),
      ],
      {'inputs': args.inputs, 'targets': args.targets},
      [
        # A decoder's tables need no more rows than the targets have tokens.
        f'encoder/Unitransformer.max_length = {args.inputs}',
        f'decoder/Unitransformer.max_length = {args.targets}',
        *args.gin_param,
      ],
      mesh_shape=f'model:{args.model_parallelism}',
    )
    for variant in args.variants.split(',')
  }
  cores = args.model_parallelism
  print(
    f'{args.size}, {args.inputs} inputs and {args.targets} targets, '
    f'{cores} core{"s" * (cores > 1)} for one copy; bytes per core'
  )
  heads = [
    *('variant', 'trained', 'fixed', 'tables'),
    *('forward', 'state', "tables' state", 'attention'),
  ]
  rows = [
    [
      variant,
      *(
        f'{n / 1e6:.1f} M'
        for n in (c.trained, c.parameters - c.trained, c.tables)
      ),
      f'{c.flops / 1e9:.1f} GFLOP',
      *(f'{n / 1e9:.2f} GB' for n in (c.state_bytes, c.table_bytes)),
      f'{c.attention_bytes / 1e6:.0f} MB',
    ]
    for variant, c in costs.items()
  ]
  print(printing.plain(heads, rows, 'lrrrrrrr'))
