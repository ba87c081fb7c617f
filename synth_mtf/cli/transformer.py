"""`synth-mtf transformer`: runs T5's own main with our layer and tasks.

It takes the flags of `t5_mesh_transformer`; `synth_mtf.run.main` lists the
differences. PYTHONHASHSEED defaults to 0, because Mesh-TF derives seeds from
hashes of names.
"""

import argparse

from synth_mtf import cli
from synth_mtf.cli import arguments
from synth_mtf.run import main, output, process

# All arguments are passed to T5's main unchanged.
PARSER_OPTIONS = {'add_help': False, 'prefix_chars': '\0'}


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Accepts all arguments after the command."""
  parser.add_argument('flags', nargs=argparse.REMAINDER)


def run(args: argparse.Namespace) -> int:
  """Runs T5's main with the flags."""
  arguments.check_flags_of_t5(args.flags)
  process.fix_hash_seed()
  if not {'--help', '-help', '-h'} & set(args.flags):
    return main.run(args.flags)
  with output.kept():
    main.prepare()
  from absl import flags

  from synth_mtf.run import flags_of_model_api

  print(f'{cli.COMMANDS["transformer"]}.')
  for module in main.FLAG_MODULES:
    print(flags.FLAGS.module_help(module))
  ignored = ', '.join(f'--{name}' for name in flags_of_model_api.BINDINGS)
  print(
    'Only with --use_model_api, and else an error that names the binding of '
    f'gin with the same effect: {ignored}.'
  )
  return 0
