"""Changes to the host."""

import importlib.util
import sys

import gin
import pytest
from mesh_tensorflow.transformer import utils
from t5.models import mesh_transformer_main

from synth_mtf.errors import UserError
from synth_mtf.host import patches

TORCH_IS_HERE = importlib.util.find_spec('torch') is not None


@pytest.mark.skipif(TORCH_IS_HERE, reason='torch is installed')
def test_t5_models_import_without_torch():
  import t5.models

  before = sys.modules['t5.models.hf_model']
  patches.prepare_host()
  assert sys.modules['t5.models.hf_model'] is before
  assert t5.models.HfPyTorchModel is None
  assert callable(t5.models.MtfModel)
  assert 'torch' not in sys.modules


def test_mesh_tensorflow_finds_what_newer_tensorflow_moved():
  from mesh_tensorflow import tpu_variables
  from tensorflow.python.framework import ops

  assert callable(ops.register_tensor_conversion_function)
  assert tpu_variables.ReplicatedVariable


def test_t5s_main_checks_a_run_first_and_nobody_else_does(monkeypatch):
  def refuse(model_dir, tpu):
    raise UserError(f'{model_dir} {tpu}')

  monkeypatch.setattr(mesh_transformer_main, 'utils', utils)
  patches.before_each_run(refuse)
  with pytest.raises(UserError, match='folder None'):
    mesh_transformer_main.utils.run(model_dir='folder', tpu=None)
  assert mesh_transformer_main.utils is not utils
  assert gin.get_bindings(utils.run) == {}, 'it stays the key to its bindings'
