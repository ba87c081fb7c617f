"""`synth-mtf transformer`: runs T5's own main with our layer and tasks.

It takes the flags of `t5_mesh_transformer`; `synth_mtf.run.main` lists the
differences. PYTHONHASHSEED defaults to 0, because Mesh-TF derives seeds from
hashes of names.
"""

import argparse

from synth_mtf import cli
from synth_mtf.cli import arguments, shipped
from synth_mtf.run import main, output, process

# All arguments are passed to T5's main unchanged.
PARSER_OPTIONS = {'add_help': False, 'prefix_chars': '\0'}


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Accepts all arguments after the command."""
  parser.add_argument('flags', nargs=argparse.REMAINDER)


def run(args: argparse.Namespace) -> int:
  """Runs T5's main with the flags."""
  if not {'--help', '-help', '-h'}.isdisjoint(args.flags):
    print(shipped.text('transformer') or flags_help(), end='')
    return 0
  arguments.check_flags_of_t5(args.flags)
  process.fix_hash_seed()
  return main.run(args.flags)


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
