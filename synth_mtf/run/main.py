"""T5's own main, ready for our layer and tasks.

What runs is the main of `t5_mesh_transformer` with its flags. The differences:
torch is not needed, TensorFlow 2.15 will do, `synth_mtf` and `synth_mtf.tasks`
are imported without a flag, variables are resource variables (ref variables
race on a CPU: updates arrive while gradients still read them, so that no two
runs agree), and a known mistake ends in one message.
"""

import contextlib
import importlib
import os
import sys
from collections.abc import Sequence

from synth_mtf.host import imports
from synth_mtf.run import output, process

# Modules whose flags a user may want to know about.
FLAG_MODULES = (
  't5.models.mesh_transformer_main',
  'mesh_tensorflow.transformer.utils',
  'synth_mtf.tasks.data_settings',
  __name__,
)
# Where gin names no other: what can be watched, stopped and repeated.
_TRAINING = """
import synth_mtf.progress
utils.run.train_model_fn = @synth_mtf.train_with_progress
"""


def prepare() -> None:
  """Imports what a run needs, and defines all flags."""
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '1')
  process.load_plugin()
  with imports.quick():
    for module in (
      't5.models.mesh_transformer_main',
      't5.data.mixtures',
      'synth_mtf.checked',
      'synth_mtf.recorded',
    ):
      importlib.import_module(module)

    from synth_mtf import tasks
  tasks.define_flags()
  _define_flags()


def _define_flags() -> None:
  from absl import flags

  if 'verbose' not in flags.FLAGS:
    flags.DEFINE_bool(
      'verbose',
      False,
      "Shows all that TensorFlow says, instead of writing it to the run's log.",
      module_name=__name__,
    )


def run(words: Sequence[str]) -> int:
  """Runs T5's main.

  Args:
    words: its flags.

  Returns:
    The exit status.

  Raises:
    UserError: a known mistake.
  """
  with contextlib.nullcontext() if '--verbose' in words else output.kept():
    prepare()

    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    tf.enable_resource_variables()
    tf.logging.set_verbosity(tf.logging.INFO)

  import gin
  from absl import app, flags
  from t5.models import mesh_transformer_main

  from synth_mtf.checkpoints import restore_errors
  from synth_mtf.host import errors
  from synth_mtf.run import in_brief, lock
  from synth_mtf.run import model_dir as model_dirs

  def main(argv: Sequence[str]) -> None:
    model_dir = flags.FLAGS.model_dir
    model_dirs.check_name(model_dir)
    model_dirs.check_folder(model_dir)
    if not flags.FLAGS.tpu:
      gin.parse_config(_TRAINING)
    # A folder that can only be read, from which one may decode, takes no log.
    verbose = flags.FLAGS.verbose or not model_dirs.is_writable(model_dir)
    brief = contextlib.nullcontext() if verbose else in_brief.shown(model_dir)
    with (
      brief,
      errors.explained(
        restore_errors.explainer(model_dir), model_dirs.explainer(model_dir)
      ),
    ):
      mesh_transformer_main.main(argv)

  try:
    app.run(main, [sys.argv[0], *words])
  except SystemExit as done:  # so app.run returns, and a run that was stopped
    return int(done.code or 0)
  finally:
    lock.release_all()
  return 0
