"""`synth-mtf cost`: parameters, FLOPs and memory of each variant."""

import argparse
import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from synth_mtf import paths
from synth_mtf.cli import arguments, data, early
from synth_mtf.cli.findings import counted
from synth_mtf.errors import UserError
from synth_mtf.results import printing
from synth_mtf.run import output, process
from synth_mtf.storage import remembered

if TYPE_CHECKING:
  from synth_mtf.cost import Cost

# Slices of TPUs, which need not exist: keys of `pjrt.compiler.SLICES`.
_SLICES = ('v2-8', 'v3-8', 'v4-8', 'v5litepod-8', 'v5p-8', 'v6e-8')
_ALIASES = {'v5e-8': 'v5litepod-8'}
_DEVICES = ('cpu', 'gpu', 'tpu', *_SLICES, *_ALIASES)
_FIT_HEADERS = (
  'variant',
  'GFLOP',
  'accessed',
  'kept',
  'temporary',
  'needed',
  'there',
  'fits',
)
_MICROBATCHES = (
  'utils.serialize_num_microbatches.tokens_per_microbatch_per_replica'
)
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
  ours = [
    name for name in paths.gin_names('variants') if 'original' not in name
  ]
  add(
    '--size',
    type=arguments.GinNames('sizes'),
    default='base',
    help='a file of gin/sizes',
  )
  add(
    '--variants',
    type=arguments.Variants(),
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
  add(
    '--device',
    choices=_DEVICES,
    help='what a training step takes and whether it fits, by the compiler: on '
    'the devices of this machine (cpu, gpu, tpu), or on a TPU slice, which '
    'need not exist',
  )
  add(
    '--batch_size',
    type=count,
    default=128,
    help='sequences of a step, with --device',
  )
  add(
    '--gin_file',
    action='append',
    type=arguments.GinFile(),
    default=[],
    help='further gin files, such as runs/finetune_en_mix.gin',
  )
  add('--gin_param', action='append', default=[], help='further bindings')
  data.add_modules(parser)
  add(
    '--paper',
    action='store_true',
    help='compare with Tables 2 and 4 of the paper and with arXiv 2102.11972 '
    'instead',
  )


def run(args: argparse.Namespace) -> None:
  """Prints a table, or the published counts next to our own."""
  early.check_gin(args.gin_file, args.gin_param, args.module_import)
  if args.module_import:
    process.load(args.module_import)
  if args.paper:
    _print_published()
  elif args.device:
    _print_fit(args)
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
        title, lambda row: console.update(f'count {row} ...'), _counted
      )
      console.clear()
      print(counts, end='\n\n', flush=True)


def _print_variants(args: argparse.Namespace) -> None:
  console = output.Console()
  variants = args.variants.split(',')
  rows = []
  console.start('count', f'the cost of {counted(len(variants), "variant")} ...')
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
  counted = _counted(
    _files(variant, args),
    _lengths(args),
    _bindings(args),
    args.module_import,
    mesh_shape=f'model:{args.model_parallelism}',
  )
  fixed = counted.parameters - counted.trained
  return [
    variant,
    f'{counted.trained / 1e6:.1f} M',
    f'{fixed / 1e6:.1f} M',
    f'{counted.tables / 1e6:.1f} M',
    f'{counted.flops / 1e9:.1f} GFLOP',
    f'{counted.state_bytes / 1e9:.2f} GB',
    f'{counted.table_bytes / 1e9:.2f} GB',
    f'{counted.attention_bytes / 1e6:.0f} MB',
  ]


def _files(variant: str, args: argparse.Namespace) -> list[str]:
  variants = [f'variants/{name}.gin' for name in variant.split('+')]
  return [f'sizes/{args.size}.gin', *variants, *args.gin_file]


def _bindings(args: argparse.Namespace) -> list[str]:
  # The file of a run may require one, whose weights change no cost.
  of_run = ['utils.run.init_checkpoint = None'] if args.gin_file else []
  return [
    *of_run,
    # A decoder's tables need no more rows than the targets have tokens.
    f'encoder/Unitransformer.max_length = {args.inputs}',
    f'decoder/Unitransformer.max_length = {args.targets}',
    *args.gin_param,
  ]


def _print_fit(args: argparse.Namespace) -> None:
  """Prints what a training step does and takes on each core, by variant."""
  process.load(args.module_import)
  from synth_mtf.host import xla_flags
  from synth_mtf.pjrt import compiler, devices, fitting

  xla_flags.check(xla_flags.OF_XLA)
  name = _ALIASES.get(args.device, args.device)
  if name in compiler.SLICES:
    fitting.check_compiler()
    present = []
    cores = compiler.SLICES[name].cores
    platform = 'tpu'
  else:
    present = devices.find(name)
    cores = len(present)
    platform = present[0].platform
  mesh = _mesh(args, cores)
  devices.check_tensorflow(f'--device={args.device}')
  console = output.Console()
  variants = args.variants.split(',')
  fits = {}
  for number, variant in enumerate(variants, 1):
    step = f'{variant} ({number} of {len(variants)})'
    with console.passing(f'compile {step} ...'):
      lowered = _lowered(variant, args, mesh, platform)
      if present:
        fits[variant] = fitting.on_devices(lowered, present)
      else:
        fits[variant] = fitting.on_slice(lowered, name)
  print(
    f'{args.size}, a step of {args.batch_size} sequences of {args.inputs} '
    f'inputs and {args.targets} targets on {name} ({mesh}); GFLOP and GB per '
    "core, by XLA's compiler"
  )
  rows = [_fit_row(*each) for each in fits.items()]
  print(printing.columns(_FIT_HEADERS, rows))
  _print_loop(args)


def _print_loop(args: argparse.Namespace) -> None:
  """Says what the compiler counts once although a step repeats it."""
  from synth_mtf.pjrt import lowering

  parts = lowering.microbatches(args.batch_size, _lengths(args))
  if parts > 1:
    print(
      f'The step has {parts} microbatches. GFLOP and accessed count one of '
      f'them; to count all: --gin_param="{_MICROBATCHES} = None"'
    )


def _mesh(args: argparse.Namespace, cores: int) -> str:
  copies, rest = divmod(cores, args.model_parallelism)
  if rest:
    raise UserError(
      f'--model_parallelism={args.model_parallelism} does not divide the '
      f'{cores} cores of --device={args.device}'
    )
  return f'batch:{copies},model:{args.model_parallelism}'


def _lengths(args: argparse.Namespace) -> dict[str, int]:
  return {'inputs': args.inputs, 'targets': args.targets}


def _lowered(
  variant: str, args: argparse.Namespace, mesh: str, platform: str
) -> Any:
  import gin

  from synth_mtf.host import gin_files
  from synth_mtf.pjrt import lowering

  gin_files.parse(
    _files(variant, args),
    [
      f'utils.run.mesh_shape = {mesh!r}',
      'mesh_train_dataset_fn.pack = False',
      *_bindings(args),
    ],
  )
  step = lowering.step_of_run(
    args.batch_size,
    _lengths(args),
    packed=gin.query_parameter('mesh_train_dataset_fn.pack'),
    platform=platform,
  )
  return step.lower()


def _fit_row(variant: str, fit: Any) -> list[str]:
  flops, accessed = fit.cost or (None, None)
  kept, temporary = fit.memory or (None, None)
  return [
    variant,
    '?' if flops is None else f'{flops / 1e9:.1f}',
    *map(_gigabytes, (accessed, kept, temporary, fit.needed, fit.there)),
    'yes' if fit.fits else 'no',
  ]


def _gigabytes(number: float | None) -> str:
  return '?' if number is None else f'{number / 1e9:.2f}'


def _counted(
  files: Sequence[str],
  lengths: Mapping[str, int],
  bindings: Sequence[str],
  modules: Sequence[str] = (),
  **options: Any,
) -> 'Cost':
  """Returns `cost_of_files`, which is remembered for our own files."""
  question = ['cost', list(files), dict(lengths), list(bindings), options]
  # The working folder comes first in gin's search path.
  ours = os.listdir(paths.gin_path())
  are_ours = (
    not modules
    and not any(map(os.path.lexists, ours))
    and all(map(_is_ours, files))
    and not any(re.search(r'\b(include|import)\b', text) for text in bindings)
  )
  known = remembered.get(question) if are_ours else None
  if known:
    from synth_mtf.cost import Cost

    return Cost(**known)
  process.load_quietly()
  from synth_mtf import cost

  counted = cost.cost_of_files(files, lengths, bindings, **options)
  if are_ours:
    remembered.put(question, dataclasses.asdict(counted))
  return counted


def _is_ours(file: str) -> bool:
  """Whether a gin file is in our folder, by a name below it."""
  return file[0] not in './' and os.path.exists(
    os.path.join(paths.gin_path(), file)
  )
