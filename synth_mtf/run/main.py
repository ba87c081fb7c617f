"""T5's own main, ready for our layer and tasks.

What runs is the main of `t5_mesh_transformer` with its flags. The differences:
torch is not needed, TensorFlow 2.15 will do, `synth_mtf` and `synth_mtf.tasks`
are imported without a flag, variables are resource variables (ref variables
race on a CPU: updates arrive while gradients still read them, so that no two
runs agree), and a known mistake ends in one message.
"""

import importlib
import os
import sys
from collections.abc import Sequence

from synth_mtf.run import process

# Modules whose flags a user may want to know about.
FLAG_MODULES = (
  't5.models.mesh_transformer_main',
  'mesh_tensorflow.transformer.utils',
  'synth_mtf.tasks.data_settings',
)


def prepare() -> None:
  """Imports what a run needs, and defines all flags."""
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '1')
  process.load_plugin()

  from synth_mtf import tasks

  for module in (
    't5.models.mesh_transformer_main',
    't5.data.mixtures',
    'synth_mtf.checked',
  ):
    importlib.import_module(module)
  tasks.define_flags()


def run(words: Sequence[str]) -> int:
  """Runs T5's main.

  Args:
    words: its flags.

  Returns:
    The exit status.

  Raises:
    UserError: a known mistake.
  """
  prepare()

  import tensorflow.compat.v1 as tf
  from absl import app, flags
  from t5.models import mesh_transformer_main

  from synth_mtf.checkpoints import restore_errors
  from synth_mtf.host import errors
  from synth_mtf.run import preflight

  tf.disable_v2_behavior()
  tf.enable_resource_variables()
  tf.logging.set_verbosity(tf.logging.INFO)

  def main(argv: Sequence[str]) -> None:
    model_dir = flags.FLAGS.model_dir
    preflight.check_writable(model_dir)
    with errors.explained(restore_errors.explainer(model_dir)):
      mesh_transformer_main.main(argv)

  try:
    app.run(main, [sys.argv[0], *words])
  except SystemExit as done:  # this is how app.run returns
    return int(done.code or 0)
  return 0
