"""`synth-mtf checkpoint`.

It inspects, compares, converts, exports and imports checkpoints.
"""

import argparse
import os
from collections.abc import Sequence

from synth_mtf.cli import arguments
from synth_mtf.errors import UserError

_PATH = 'a checkpoint (<folder>/model.ckpt-1000), or a folder for its latest'
_PARAM = 'overrides a binding of the gin files'
_FOLDER = 'with config.json and *.safetensors: an exported model, or any T5'

_UNPACKED_ROWS_ONLY = (
  ', on rows that hold one sequence each. Warning: it was trained on packed '
  'rows, in which one of the two models reads its tables by the index in the '
  "row (SyntheticAttention.index_by = 'row', as mesh_tensorflow's Synthesizer "
  'always does), the other by the position in the sequence. Give both the same '
  'index_by, or expect the tables to be relearned.'
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the actions."""
  actions = parser.add_subparsers(metavar='action', required=True)

  inspect = actions.add_parser('inspect', help='list what a checkpoint holds')
  inspect.add_argument('path', type=arguments.existing, help=_PATH)
  inspect.set_defaults(action=_inspect)

  compare = actions.add_parser('compare', help='compare two checkpoints')
  for name in ('first', 'second'):
    compare.add_argument(name, type=arguments.existing, help=_PATH)
  compare.set_defaults(action=_compare)

  convert = actions.add_parser(
    'convert',
    help='make a checkpoint of another variant, or of plain T5',
    description=(
      'Converts weights to the model of the gin files. If the target has all '
      'functions of the source, it computes the same: what is new starts at '
      'S(X) = 0. To convert to plain T5, give a size file alone.'
    ),
  )
  add = convert.add_argument
  add('path', type=arguments.existing, help=_PATH)
  add('folder', help='where to write; must hold no checkpoint')
  add('--gin_file', action='append', required=True, help='of the target model')
  add('--gin_param', action='append', default=[], help=_PARAM)
  add(
    '--source_gin_file',
    action='append',
    help='of the source model; needed for mixtures. Default: '
    'operative_config.gin beside the checkpoint',
  )
  add(
    '--resize',
    action='store_true',
    help="grow or shrink tables to the target's max_length",
  )
  convert.set_defaults(action=_convert)

  for name, option, action, path, what in (
    ('export', '--to', _export, _PATH, 'write a model folder for'),
    ('import', '--from', _import, _FOLDER, 'make a checkpoint from a model of'),
  ):
    what += " Hugging Face's transformers"
    other = actions.add_parser(name, help=what)
    add = other.add_argument
    add(option, choices=['hf'], required=True, dest='form')
    add('path', type=arguments.existing, help=path)
    add('folder', help='where to write; must not exist')
    add(
      '--gin_file',
      action='append',
      help='of the model. Default: those it was trained with, if known',
    )
    add('--gin_param', action='append', default=[], help=_PARAM)
    if option == '--to':
      add('--vocabulary', help="Default: the run's")
    other.set_defaults(action=action)


def run(args: argparse.Namespace) -> None:
  """Runs an action."""
  args.action(args)


def _inspect(args: argparse.Namespace) -> None:
  from synth_mtf.checkpoints.files import Checkpoint

  checkpoint = Checkpoint(args.path)
  checkpoint.verify()
  for name in checkpoint.weights:
    dtype, shape = checkpoint.kinds[name]
    print(f'{name}  {list(shape)}  {dtype}')
  print(
    f'{checkpoint.path}: step {checkpoint.step}, {checkpoint.parameters:,} '
    f'parameters in {len(checkpoint.weights)} variables, '
    f'{len(checkpoint.slots)} slots, vocabulary of {checkpoint.vocab_size}'
  )


def _compare(args: argparse.Namespace) -> None:
  import numpy as np

  from synth_mtf.checkpoints import comparison, files

  first, second = (files.Checkpoint(p) for p in (args.first, args.second))
  weights = {name: first.kinds[name] for name in first.weights}
  found = comparison.Comparison(weights, second)
  for name, there in found.loaded.items():
    here, other = first.kinds[name], second.kinds[there]
    if here != other:
      print(f'{name}: {here} in the first, {other} in the second')
    if here.shape != other.shape or 'string' in (here.dtype, other.dtype):
      continue
    a, b = (x.astype(np.float64) for x in (first[name], second[there]))
    if (a != b).any():
      print(f'{name}: differs by up to {np.abs(a - b).max():.3g}')
  for name in found.new:
    print(f'{name}: only in the first')
  for name in found.left_over:
    print(f'{name}: only in the second')
  print(f'{len(found.loaded)} variables in both')


def _convert(args: argparse.Namespace) -> None:
  from synth_mtf.checkpoints import conversion, files, identity
  from synth_mtf.core.context import data_is_packed
  from synth_mtf.host import foreign, gin_files, model

  checkpoint = files.Checkpoint(args.path)
  checkpoint.verify()
  file = os.path.join(os.path.dirname(checkpoint.path), 'operative_config.gin')
  known = _configure(foreign.read(file), file, args.source_gin_file)
  with foreign.bounded():
    packed = data_is_packed()
    source = model.build(checkpoint.vocab_size) if known else None
  gin_files.parse(args.gin_file, args.gin_param)
  target = model.build(checkpoint.vocab_size)
  plan = conversion.Conversion(checkpoint, source, target, args.resize)
  path = files.write(args.folder, checkpoint.step, plan.values)
  identity.record_model(target.transformer, args.folder)
  identity.copy_vocabulary(os.path.dirname(checkpoint.path), args.folder)
  effect = (
    'does not compute what the source computes; it starts from its weights.'
  )
  if plan.exact:
    effect = 'computes what the source computes' + (
      _UNPACKED_ROWS_ONLY if packed and plan.reread else '.'
    )
    if not known:
      effect += (
        ' (That assumes the same activation and normalize, which a checkpoint '
        f'does not hold: there is no {file}.)'
      )
  error, name = plan.rounding
  if error:
    effect += (
      f' Warning: {name} and other values are rounded, by up to {error:.2g}: '
      "bind utils.get_variable_dtype.master_dtype = 'float32' to keep them."
    )
  print(f'{plan.report}\nwrote {path}: at its first step the model {effect}')


def _export(args: argparse.Namespace) -> None:
  from synth_mtf.checkpoints import files
  from synth_mtf.host import foreign
  from synth_mtf.huggingface import export
  from synth_mtf.run import model_dir

  if os.path.isdir(args.path):
    model_dir.require_unlocked(args.path)
  checkpoint = files.Checkpoint(args.path)
  file = os.path.join(os.path.dirname(checkpoint.path), 'operative_config.gin')
  _require(foreign.read(file), file, args)
  export.export(checkpoint, args.folder, args.vocabulary)
  print(f'wrote {args.folder}: step {checkpoint.step} of {args.path}')


def _import(args: argparse.Namespace) -> None:
  from synth_mtf.huggingface import importing, layout

  text = importing.read_config(args.path)['synth_mtf']['gin']
  _require(text, os.path.join(args.path, layout.CONFIG), args)
  print(f'wrote {importing.load(args.path, args.folder)}')


def _configure(
  text: str | None,
  file: str,
  gin_file: Sequence[str] | None,
  bindings: Sequence[str] = (),
) -> bool:
  """Loads the user's gin files, or else those of a run, as data, if known."""
  from synth_mtf.host import foreign, gin_files

  if gin_file:
    # Of a TPU's mesh, a function that is not called here gives the shape.
    gin_files.parse(gin_file, ["utils.run.mesh_shape = ''", *bindings])
  elif text:
    for line in foreign.parse(text, file):
      print(
        f'{file}: skipped `{line}`, which may run arbitrary code. If you '
        'trust it, give the file as --gin_file (of convert: --source_gin_file)'
      )
  return bool(gin_file or text)


def _require(text: str | None, file: str, args: argparse.Namespace) -> None:
  """Configures a model, whose gin files must be known."""
  if not _configure(text, file, args.gin_file, args.gin_param):
    raise UserError(
      f'{file} does not describe the model: give its gin files, such as '
      '--gin_file=sizes/small.gin --gin_file=variants/random.gin'
    )
  if args.gin_param and not args.gin_file:
    raise UserError(
      '--gin_param needs --gin_file: without gin files, the settings in '
      f'{file} are used as they are'
    )
