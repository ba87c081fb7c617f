"""Makes the host stack importable: t5 without torch, Mesh-TF on TF >= 2.14.

The host was last released before TensorFlow 2.14 and imports torch for a model
class that Mesh-TF training never touches. Both are mended here and nowhere
else, without changing a file of the host.
"""

import importlib
import importlib.util
import os
import pathlib
import sys
import types

from synth_mtf.errors import UserError

_HF_MODEL = 't5.models.hf_model'


def is_command() -> bool:
  """Whether this process is the `synth-mtf` console script.

  There `--help` has to answer at once and `doctor` has to run on a broken
  installation: `import synth_mtf` then leaves TensorFlow alone, and the
  subcommands that need the plugin call `load_plugin`.
  """
  return bool(sys.argv) and pathlib.Path(sys.argv[0]).stem == 'synth-mtf'


def prepare_host() -> None:
  """Readies the process for `import mesh_tensorflow` and `import t5.models`.

  Does nothing on TensorFlow < 2.14 with torch installed. Call it before either
  module is imported; calling it again is harmless.
  """
  _stand_in_for_torch_model()
  _restore_conversion_registry()


def load_plugin() -> None:
  """Does in a `synth-mtf` process what `import synth_mtf` does elsewhere.

  Raises:
    UserError: the host stack cannot be imported.
  """
  package = importlib.import_module('synth_mtf')
  try:
    prepare_host()
    public = importlib.import_module('synth_mtf._public')
  except ImportError as error:
    raise UserError(
      f'the host stack cannot be imported: {error}. '
      '`synth-mtf doctor` says what is wrong with this installation.'
    ) from error
  for name in public.__all__:
    setattr(package, name, getattr(public, name))


def fix_hash_seed() -> None:
  """Starts this command again with PYTHONHASHSEED=0, unless it has a value.

  Mesh-TF hashes names into the seeds of its operations: without it, no run
  repeats. Python reads the variable only when it starts.
  """
  if is_command() and 'PYTHONHASHSEED' not in os.environ:
    os.environ['PYTHONHASHSEED'] = '0'
    words = getattr(sys, 'orig_argv', ['', *sys.argv])  # Python 3.10
    os.execv(sys.executable, [sys.executable, *words[1:]])


def _stand_in_for_torch_model() -> None:
  """Lets `import t5.models` pass without torch.

  `t5.models` imports `HfPyTorchModel` unconditionally, and with it torch and
  transformers.
  """
  if _HF_MODEL in sys.modules or importlib.util.find_spec('torch'):
    return
  stand_in = types.ModuleType(_HF_MODEL, 'Stands in where torch is absent.')
  stand_in.HfPyTorchModel = None
  sys.modules[_HF_MODEL] = stand_in


def _restore_conversion_registry() -> None:
  """Puts a function back where mesh_tensorflow looks for it.

  TensorFlow 2.14 moved it from `ops` to `tensor_conversion_registry`
  (github.com/tensorflow/mesh, issue 396).
  """
  from tensorflow.python.framework import ops, tensor_conversion_registry

  name = 'register_tensor_conversion_function'
  if not hasattr(ops, name):
    setattr(ops, name, getattr(tensor_conversion_registry, name))
