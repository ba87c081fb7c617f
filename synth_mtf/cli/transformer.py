"""`synth-mtf transformer`: T5's own main, ready for our layer and tasks.

The flags are those of `t5_mesh_transformer`, and what runs is its main. The
differences: torch is not needed, TensorFlow 2.15 will do, `synth_mtf` and
`synth_mtf.tasks` are imported without a flag, variables are resource variables
(ref variables race on a CPU: updates land while gradients still read them, so
that no two runs agree), PYTHONHASHSEED is 0 unless it is set (Mesh-TF hashes
names into seeds), and a mistake that we know is one message.
"""

import argparse
import importlib
import os
import sys

from synth_mtf import launcher

SUMMARY = "T5's own main: the flags of t5_mesh_transformer, without torch"

# No word is a flag of ours: all of them go to T5's main as they are.
PARSER_OPTIONS = {'add_help': False, 'prefix_chars': '\0'}

_FLAG_MODULES = (
  't5.models.mesh_transformer_main',
  'mesh_tensorflow.transformer.utils',
  'synth_mtf.tasks._settings',
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Takes every word after the command."""
  parser.add_argument('flags', nargs=argparse.REMAINDER)


def run(args: argparse.Namespace) -> int:
  """Runs T5's main on the flags."""
  launcher.fix_hash_seed()
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '1')
  launcher.load_plugin()

  import tensorflow.compat.v1 as tf
  from absl import app, flags
  from t5.models import mesh_transformer_main

  from synth_mtf import host_errors, preflight
  from synth_mtf.tasks import define_flags

  importlib.import_module('t5.data.mixtures')
  importlib.import_module('synth_mtf.checked')
  define_flags()
  if {'--help', '-help', '-h'} & set(args.flags):
    print(f'{SUMMARY}.')
    for module in _FLAG_MODULES:
      print(flags.FLAGS.module_help(module))
    return 0

  tf.disable_v2_behavior()
  tf.enable_resource_variables()
  tf.logging.set_verbosity(tf.logging.INFO)

  def main(argv: list[str]) -> None:
    preflight.check_writable(flags.FLAGS.model_dir)
    with host_errors.explained(flags.FLAGS.model_dir):
      mesh_transformer_main.main(argv)

  try:
    app.run(main, [sys.argv[0], *args.flags])
  except SystemExit as done:  # how app.run returns
    return done.code or 0
  return 0
