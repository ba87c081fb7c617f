"""`synth-mtf checkpoint`: works with checkpoints.

It inspects, compares, converts, exports and imports them.
"""

import argparse
import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from synth_mtf import paths
from synth_mtf.cli import arguments, data, early, loading
from synth_mtf.errors import UserError
from synth_mtf.run import process
from synth_mtf.storage import atomic, filesystem

_PATH = 'a checkpoint (<folder>/model.ckpt-1000), or a folder for its latest'
_PARAM = 'overrides a binding of the gin files'
_HF_FOLDER = (
  'a folder with config.json and *.safetensors: an exported model, or any T5'
)

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
  compare.add_argument('first', type=arguments.existing, help=_PATH)
  compare.add_argument('second', type=arguments.existing, help=_PATH)
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
  convert.add_argument('path', type=arguments.existing, help=_PATH)
  convert.add_argument('folder', help='where to write; must hold no checkpoint')
  convert.add_argument(
    '--gin_file',
    action='append',
    required=True,
    type=arguments.GinFile(),
    help='a gin file of the target model; may be repeated',
  )
  convert.add_argument('--gin_param', action='append', default=[], help=_PARAM)
  convert.add_argument(
    '--source_gin_file',
    action='append',
    default=[],
    type=arguments.GinFile(),
    help='a gin file of the source model, which mixtures need; may be repeated '
    '(default: operative_config.gin next to the checkpoint)',
  )
  convert.add_argument(
    '--resize',
    action='store_true',
    help="grow or shrink tables to the target's max_length",
  )
  convert.add_argument(
    '--seed',
    type=arguments.seed,
    default=0,
    help='of the weights that the source does not have (default: 0)',
  )
  data.add_modules(convert)
  convert.set_defaults(action=_convert)

  keep = actions.add_parser(
    'keep',
    help='remove all checkpoints but the last and the best',
    description=(
      'Removes the checkpoints of a run, except the last one and, for each '
      '--best, the evaluated one with the best score.'
    ),
  )
  keep.add_argument(
    'path', type=arguments.existing, help='a model folder that does not train'
  )
  keep.add_argument(
    '--best',
    action='append',
    default=[],
    metavar='COLUMN',
    help="a column of `synth-mtf table`, such as GLUE or 'Log ppl', or a task "
    'and a metric, such as glue_cola_v002/matthews_corrcoef; may be repeated',
  )
  keep.add_argument(
    '--dry_run', action='store_true', help='remove nothing, only say what would'
  )
  data.add_modules(keep)
  keep.set_defaults(action=_keep)

  export = actions.add_parser(
    'export', help="write a model folder for Hugging Face's transformers"
  )
  export.add_argument('--to', choices=['hf'], required=True, dest='form')
  export.add_argument('path', type=arguments.existing, help=_PATH)
  _add_new_folder(export)
  export.add_argument(
    '--vocabulary', type=arguments.vocabulary_file, help="default: the run's"
  )
  data.add_modules(export)
  export.set_defaults(action=_export)

  imported = actions.add_parser(
    'import',
    help="make a checkpoint from a model of Hugging Face's transformers",
  )
  imported.add_argument('--from', choices=['hf'], required=True, dest='form')
  imported.add_argument('path', type=_hf_folder, help=_HF_FOLDER)
  _add_new_folder(imported)
  data.add_modules(imported)
  imported.set_defaults(action=_import)


def _hf_folder(path: str) -> str:
  """Checks that a local folder of Hugging Face's T5 has a configuration."""
  file = os.path.join(path, 'config.json')
  if filesystem.is_bucket(path) or filesystem.exists(file):
    return path
  from synth_mtf.checkpoints import files

  raise UserError(
    f"{file} is missing; expected a folder of Hugging Face's T5, with "
    f'config.json and model.safetensors.{files.instead(path)}'
  )


def _add_new_folder(parser: argparse.ArgumentParser) -> None:
  parser.add_argument('folder', help='where to write; must not exist')
  parser.add_argument(
    '--gin_file',
    action='append',
    default=[],
    type=arguments.GinFile(),
    help='a gin file of the model; may be repeated (default: those that it was '
    'trained with, if known)',
  )
  parser.add_argument('--gin_param', action='append', default=[], help=_PARAM)


def run(args: argparse.Namespace) -> None:
  """Runs an action."""
  args.action(args)


@contextlib.contextmanager
def _gin(modules: Sequence[str] = ()) -> Iterator[None]:
  """Loads the plugin and modules of the user; at the end, gin is as before."""
  process.load(modules)
  from synth_mtf.host import patches

  separate_gin = patches.separate_gin()
  with separate_gin():
    yield


def _opened(path: str) -> Any:
  """Opens a checkpoint, with TensorFlow only if it is in a bucket."""
  loading.for_paths(path)
  from synth_mtf.checkpoints.files import Checkpoint

  return Checkpoint(path)


def _inspect(args: argparse.Namespace) -> None:
  checkpoint = _opened(args.path)
  checkpoint.verify()
  for name in checkpoint.weights:
    dtype, shape = checkpoint.variables[name]
    print(f'{name}  {list(shape)}  {dtype}')
  print(
    f'{checkpoint.path}: step {checkpoint.step}, {checkpoint.parameters:,} '
    f'parameters in {len(checkpoint.weights)} variables, '
    f'{len(checkpoint.slots)} slots, vocabulary of {checkpoint.vocab_size}'
  )


def _keep(args: argparse.Namespace) -> None:
  loading.for_paths(args.path)
  from synth_mtf.checkpoints.folder import Folder

  if not filesystem.is_folder(args.path):
    raise UserError(f'{args.path} is not a folder: give a model folder')
  atomic.check_writable(args.path, 'the folder')
  if not Folder(args.path).latest():
    raise UserError(f'{args.path} holds no checkpoint.')
  best = _best(args.path, args.best, args.module_import)
  with _gin():
    from synth_mtf.run import model_dir

    with model_dir.locked(args.path):
      _keep_in(args, best)


def _keep_in(args: argparse.Namespace, names: Mapping[str, str]) -> None:
  """Keeps checkpoints in a folder that is locked.

  Args:
    args: those of the action.
    names: of the best checkpoint, by column.
  """
  from synth_mtf.checkpoints import keeping
  from synth_mtf.checkpoints.folder import Folder

  folder = Folder(args.path)
  best: dict[str, list[str]] = {}
  for column, name in names.items():
    if name not in folder.checkpoints:
      raise UserError(
        f'--best={column}: {name} is the best, but {args.path} does not hold '
        f'it any more.{folder.summary()} Nothing was removed.'
      )
    best.setdefault(name, []).append(f'best {column}')
  choice = keeping.Choice(folder, best)
  for name, reasons in choice.kept.items():
    print(f'keep    {name} ({", ".join(reasons)})')
  for name in choice.left_alone:
    print(f'leave   {name} (unfinished)')
  if args.dry_run:
    for name in choice.removed:
      print(f'remove  {name}')
    return
  choice.check_unchanged()
  folder.point_at(choice.last)  # T5's list would name removed checkpoints
  size = 0
  for name in choice.removed:
    size += folder.remove(name)
    print(f'removed {name}')
  print(f'{len(choice.removed)} checkpoints removed, {size / 1e6:,.0f} MB.')


def _best(
  path: str, columns: Sequence[str], modules: Sequence[str]
) -> dict[str, str]:
  """Returns the name of a run's best checkpoint in each column."""
  if not columns:
    return {}
  from synth_mtf.results import choosing, runs

  run = runs.only(path)
  loading.describe([run], modules)
  return {
    column: f'model.ckpt-{choosing.best_step(run, column)}'
    for column in columns
  }


def _compare(args: argparse.Namespace) -> None:
  first = _opened(args.first)
  second = _opened(args.second)
  with _gin():
    _print_differences(first, second)


def _print_differences(first: Any, second: Any) -> None:
  import numpy as np

  from synth_mtf.checkpoints import comparison

  weights = {name: first.variables[name] for name in first.weights}
  compared = comparison.Comparison(weights, second)
  for name, other_name in compared.loaded.items():
    spec, other_spec = first.variables[name], second.variables[other_name]
    if spec != other_spec:
      print(f'{name}: {spec} in the first, {other_spec} in the second')
    is_text = 'string' in (spec.dtype, other_spec.dtype)
    if spec.shape != other_spec.shape or is_text:
      continue
    value = first[name].astype(np.float64)
    other_value = second[other_name].astype(np.float64)
    if (value != other_value).any():
      difference = np.abs(value - other_value).max()
      print(f'{name}: differs by up to {difference:.3g}')
  for name in compared.new:
    print(f'{name}: only in the first')
  for name in compared.left_over:
    print(f'{name}: only in the second')
  print(f'{len(compared.loaded)} variables in both')


def _convert(args: argparse.Namespace) -> None:
  loading.for_paths(args.folder)
  atomic.check_writable(args.folder, 'the new folder')
  early.check_gin(args.gin_file, args.gin_param, args.module_import)
  early.check_gin(args.source_gin_file, modules=args.module_import)
  checkpoint = _opened(args.path)
  checkpoint.verify()
  with _gin(args.module_import):
    _convert_opened(checkpoint, args)


def _convert_opened(checkpoint: Any, args: argparse.Namespace) -> None:
  from synth_mtf.checkpoints import conversion, files, identity, original
  from synth_mtf.checkpoints.folder import Folder
  from synth_mtf.core.context import data_is_packed
  from synth_mtf.host import foreign, gin_files, model

  folder = os.path.dirname(checkpoint.path)
  file = os.path.join(folder, paths.OPERATIVE_CONFIG)
  text = filesystem.text(file)
  with _configured(text, file, args.source_gin_file) as is_known:
    packed = data_is_packed()
    source = None
    if is_known:
      with foreign.bounded():
        source = model.build(checkpoint.vocab_size)
  gin_files.parse(args.gin_file, args.gin_param)
  target = model.build(checkpoint.vocab_size, seed=args.seed)
  if original.is_in(target):
    gin_files.parse(
      [*args.gin_file, original.GIN_FILE], [*args.gin_param, original.BINDING]
    )
    ours = model.build(checkpoint.vocab_size, seed=args.seed)
    plan = conversion.Conversion(checkpoint, source, ours, args.resize)
    values = original.renamed(plan.values, target)
  else:
    plan = conversion.Conversion(checkpoint, source, target, args.resize)
    values = plan.values
  path = files.write(args.folder, checkpoint.step, values)
  identity.record_model(target.transformer, Folder(args.folder))
  identity.copy_vocabulary(folder, args.folder)
  if not plan.exact:
    effect = (
      'does not compute what the source computes; it starts from its weights.'
    )
  elif packed and plan.reread:
    effect = f'computes what the source computes{_UNPACKED_ROWS_ONLY}'
  else:
    effect = 'computes what the source computes.'
  if plan.exact and not is_known:
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
  atomic.check_new_folder(args.folder)
  checkpoint = _opened(args.path)
  file = os.path.join(os.path.dirname(checkpoint.path), paths.OPERATIVE_CONFIG)
  text = filesystem.text(file)
  _check_model(text, file, args)
  with _gin(args.module_import):
    from synth_mtf.huggingface import export
    from synth_mtf.run import model_dir

    if os.path.isdir(args.path):
      model_dir.require_unlocked(args.path)
    with _configured(text, file, args.gin_file, args.gin_param):
      export.export(checkpoint, args.folder, args.vocabulary)
  print(f'wrote {args.folder}: step {checkpoint.step} of {args.path}')


def _import(args: argparse.Namespace) -> None:
  atomic.check_new_folder(args.folder)
  early.check_gin(args.gin_file, args.gin_param, args.module_import)
  with _gin(args.module_import):
    from synth_mtf.attention import opening
    from synth_mtf.huggingface import config_file, importing

    text = config_file.ConfigFile.read(args.path).gin
    file = os.path.join(args.path, config_file.CONFIG)
    _check_model(text, file, args)
    with _configured(text, file, args.gin_file, args.gin_param):
      path = importing.load(args.path, args.folder)
    opening.keep_vocabulary(args.path, args.folder)
  print(f'wrote {path}')


@contextlib.contextmanager
def _configured(
  text: str | None,
  file: str,
  gin_file: Sequence[str],
  bindings: Sequence[str] = (),
) -> Iterator[bool]:
  """Gives gin the user's gin files, or else the configuration of a run.

  Yields whether there is either.
  """
  from synth_mtf.host import gin_files
  from synth_mtf.host.described import described

  if gin_file:
    # Files for TPUs leave the mesh to a function that needs a TPU.
    gin_files.parse(gin_file, ["utils.run.mesh_shape = ''", *bindings])
    yield True
  elif text:
    with described(text, file) as model:
      for line in model.skipped:
        print(
          f'{file}: skipped `{line}`, which may run arbitrary code. If you '
          'trust it, give the file as --gin_file (of convert: '
          '--source_gin_file)'
        )
      yield True
  else:
    yield False


def _check_model(text: str | None, file: str, args: argparse.Namespace) -> None:
  """Checks that the gin files of a model, or its configuration, are there."""
  early.check_gin(args.gin_file, args.gin_param, args.module_import)
  if not text and not args.gin_file:
    raise UserError(
      f'{file} does not describe the model: give its gin files, such as '
      '--gin_file=sizes/small.gin --gin_file=variants/random.gin'
    )
  if args.gin_param and not args.gin_file:
    raise UserError(
      '--gin_param needs --gin_file: without gin files, the settings in '
      f'{file} are used as they are'
    )
