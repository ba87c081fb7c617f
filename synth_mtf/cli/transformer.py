"""`synth-mtf transformer`: runs T5's own main with our layer and tasks.

It takes the flags of `t5_mesh_transformer`; `synth_mtf.run.main` lists the
differences. PYTHONHASHSEED defaults to 0, because Mesh-TF derives seeds from
hashes of names.
"""

import argparse
from collections.abc import Sequence

from synth_mtf import cli
from synth_mtf.cli import arguments
from synth_mtf.errors import UserError, nearest
from synth_mtf.run import main, output, process
from synth_mtf.storage import remembered

# Those that are defined only when T5's main runs.
_FLAGS_OF_ABSL = ('flagfile', 'help', 'helpfull', 'helpshort', 'undefok')
_COMPLETED_FLAGS = (
  '--data_dir=',
  '--device=',
  '--gin_param=',
  '--model_dir=',
  '--task_file=',
  '--tpu=',
  '--vocabulary=',
)
# TensorFlow Hub comes with TensorFlow Text for 2.12, and not with newer ones.
_FLAGS_OF_HUB = ('tfhub_cache_dir', 'tfhub_model_load_format')
# All arguments are passed to T5's main unchanged.
PARSER_OPTIONS = {'add_help': False, 'prefix_chars': '\0'}


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Accepts all arguments after the command."""
  parser.add_argument('flags', nargs=argparse.REMAINDER, type=_Words())


class _Words(arguments.Completed):
  """A flag of T5's main, which checks all but the gin files itself."""

  def __call__(self, word: str) -> str:
    return word

  def known(self) -> Sequence[str]:
    files = [f'--gin_file={file}' for file in arguments.GinFile().known()]
    return [*files, *_COMPLETED_FLAGS]


def run(args: argparse.Namespace) -> int:
  """Runs T5's main with the flags."""
  if not {'--help', '-help', '-h'}.isdisjoint(args.flags):
    print(remembered.get('transformer') or flags_help(), end='')
    return 0
  _check_flags(args.flags)
  arguments.check_flags_of_t5(args.flags)
  process.fix_hash_seed()
  return main.run(args.flags)


def _check_flags(words: Sequence[str]) -> None:
  """Refuses a command without flags, and a flag that is nearly another."""
  if not words:
    raise UserError(
      'no flags are given: a run needs at least a folder and gin files. '
      f'Example: synth-mtf transformer {cli.EXAMPLES["transformer"]}\n'
      '`synth-mtf transformer --help` lists all flags.'
    )
  known = remembered.get('flags') or []
  booleans = {
    form
    for name in known
    if f'no{name}' in known
    for form in (name, f'no{name}')
  }
  is_value = False  # whether a word is that of the flag before it
  for word in words:
    name, equals, _ = word.lstrip('-').partition('=')
    if word.startswith('-'):
      _check_flag(name, known, words)
      is_value = not equals and name not in booleans
    elif is_value:
      is_value = False
    else:
      raise UserError(_without_flag(word))


def _check_flag(name: str, known: Sequence[str], words: Sequence[str]) -> None:
  """Refuses a name that is nearly that of a flag.

  T5's main checks all others; modules may define some.
  """
  if not name or name in (*known, *_FLAGS_OF_ABSL, *_FLAGS_OF_HUB):
    return
  similar = nearest(name, known)
  if similar and not any('module_import' in word for word in words):
    raise UserError(f'there is no flag --{name}{similar}')


def _without_flag(word: str) -> str:
  """Explains a word that T5's main would ignore."""
  message = f'{word!r} belongs to no flag'
  if word.endswith('.gin'):
    return f'{message}: give each gin file its own, --gin_file={word}'
  return (
    f'{message}; quote a value that has spaces, such as '
    '--gin_param="utils.run.train_steps = 1000"'
  )


def flag_names() -> list[str]:
  """Returns the names of all flags, and of the negations of booleans.

  They are the same with every TensorFlow.
  """
  with output.kept():
    main.prepare()
  from absl import flags

  names = []
  for name in {*flags.FLAGS} - {*_FLAGS_OF_HUB}:
    names.append(name)
    if flags.FLAGS[name].boolean:
      names.append(f'no{name}')
  return sorted(names)


def flags_help() -> str:
  """Returns the help of all flags, of T5's main and ours."""
  with output.kept():
    main.prepare()
  from absl import flags

  from synth_mtf.run import flags_of_model_api

  ignored = ', '.join(f'--{name}' for name in flags_of_model_api.BINDINGS)
  parts = [
    f'{cli.COMMANDS["transformer"]}.',
    *map(flags.FLAGS.module_help, main.FLAG_MODULES),
    'Only with --use_model_api, and else an error that names the binding of '
    f'gin with the same effect: {ignored}.',
  ]
  return '\n'.join(parts) + '\n'
