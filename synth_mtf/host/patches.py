"""Makes the host stack importable: t5 without torch, Mesh-TF on TF >= 2.14.

The host was last released before TensorFlow 2.14, and imports torch for a model
class that Mesh-TF training never touches. Both are mended here and nowhere
else, without changing any file of the host.
"""

import importlib.util
import sys
import types

_HF_MODEL = 't5.models.hf_model'


def prepare_host() -> None:
  """Readies the process for `import mesh_tensorflow` and `import t5.models`.

  Does nothing on TensorFlow < 2.14 with torch installed. Call it before either
  module is imported; calling it again is harmless.
  """
  _stand_in_for_torch_model()
  _restore_conversion_registry()


def _stand_in_for_torch_model() -> None:
  """Lets `import t5.models` pass without torch.

  `t5.models` imports `HfPyTorchModel` unconditionally, and with it torch and
  transformers.
  """
  if _HF_MODEL in sys.modules or importlib.util.find_spec('torch'):
    return
  stand_in = types.ModuleType(_HF_MODEL, 'Stands in where torch is absent.')
  vars(stand_in)['HfPyTorchModel'] = None
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
