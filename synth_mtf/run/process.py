"""Startup of the `synth-mtf` command.

`synth-mtf --help` must be fast, and `doctor` must run on a broken installation.
In the command, `import synth_mtf` therefore does not import TensorFlow;
`load_plugin` does, for the subcommands that need it.
"""

import importlib
import os
import sys
from collections.abc import Sequence

from synth_mtf.errors import UserError
from synth_mtf.host import patches, user_modules, xla_flags
from synth_mtf.paths import is_command
from synth_mtf.run import output


def load_plugin() -> None:
  """Does for the command what `import synth_mtf` does for other programs."""
  xla_flags.check(xla_flags.OF_TENSORFLOW)
  package = importlib.import_module('synth_mtf')
  try:
    patches.prepare_host()
    public = importlib.import_module('synth_mtf._public')
  except ImportError as error:
    raise UserError(
      f'the host stack cannot be imported: {error}. '
      'Run `synth-mtf doctor` to see what is wrong with this installation.'
    ) from error
  for name in public.__all__:
    setattr(package, name, getattr(public, name))


def load(modules: Sequence[str] = ()) -> None:
  """Loads the plugin quietly, and says so meanwhile.

  Args:
    modules: of the user, which are imported next.
  """
  with output.Console().passing('load TensorFlow ...'):
    load_quietly()
  user_modules.import_all(modules)


def load_quietly() -> None:
  """Loads the plugin, and limits TensorFlow's output to errors."""
  with output.kept():
    load_plugin()
    import tensorflow.compat.v1 as tf
    from absl import logging

    tf.disable_v2_behavior()
    tf.enable_resource_variables()
    tf.logging.set_verbosity(tf.logging.ERROR)
    logging.set_verbosity(logging.ERROR)


def fix_hash_seed() -> None:
  """Restarts this command with PYTHONHASHSEED=0, unless the variable is set.

  Mesh-TF seeds operations with hashes of their names, which otherwise differ in
  each process. Python reads the variable only at startup.
  """
  if is_command() and 'PYTHONHASHSEED' not in os.environ:
    os.environ['PYTHONHASHSEED'] = '0'
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def require_hash_seed() -> None:
  """Restarts this command with PYTHONHASHSEED=0, whatever the variable is."""
  if sys.flags.hash_randomization:
    os.environ.pop('PYTHONHASHSEED', None)
    fix_hash_seed()
