"""Starting a run from a checkpoint of any T5."""

import numpy as np
import pytest
from mesh_tensorflow.transformer import utils

from synth_mtf.checkpoints.files import Checkpoint, write
from synth_mtf.errors import UserError
from synth_mtf.host import gin_files
from synth_mtf.host import model as host_model
from tests import model

pytestmark = pytest.mark.slow  # builds whole models


def training_names(variant, bindings=(), more=()):
  """Calls warm_start as the host does, and returns what it maps."""
  gin_files.parse(
    [*model.files(variant), 'common/warm_start.gin'],
    [*model.TINY, *bindings, "utils.run.mesh_shape = ''"],
  )
  built = host_model.build(model.VOCAB)
  with built.graph.as_default():
    return {
      name: utils.init_checkpoint_variable_mapping(name)
      for name in [*built.variables, *more]
    }


def test_warm_start_through_gin(t5):
  here = [f"utils.run.init_checkpoint = '{t5}'"]
  names = training_names('random_vanilla', here)
  scope = 'encoder/block_000/layer_000/'
  assert names[scope + 'SyntheticAttention/q'] == scope + 'SelfAttention/q'
  assert (
    names[scope + 'SyntheticAttention/random/R']
    == scope + 'SyntheticAttention/random/R'
  )
  assert names['shared/embedding'] == 'shared/embedding'


@pytest.mark.parametrize(
  'binding, message',
  [
    ('num_layers = 1', 'layers that the model lacks'),
    ('num_layers = 3', "lacks .* of the model's variables"),
    ('d_ff = 21', 'other shapes or types'),
    (
      "utils.get_variable_dtype.master_dtype = 'bfloat16'",
      'float32.* in the checkpoint, bfloat16.* in the model',
    ),
  ],
)
def test_warm_start_insists(t5, binding, message):
  here = [f"utils.run.init_checkpoint = '{t5}'", binding]
  with pytest.raises(UserError, match=message):
    training_names('random_vanilla', here)


def test_warm_start_from_another_max_length_says_how(tmp_path):
  path = model.write(tmp_path, 'random')
  here = [
    f"utils.run.init_checkpoint = '{path}'",
    'Unitransformer.max_length = 20',
  ]
  with pytest.raises(UserError, match='checkpoint convert.*--resize'):
    training_names('random', here)


def test_slots_come_along_from_where_their_weight_is(t5, tmp_path):
  """The optimizer's state is found under the name that the weight has there."""
  checkpoint = Checkpoint(t5)
  values = {n: checkpoint[n] for n in checkpoint.kinds}
  scope = 'encoder/block_000/layer_000/'
  values[f'{scope}SelfAttention/v_slot_vr'] = np.ones(24, np.float32)
  path = write(str(tmp_path), 7, values.items())
  names = training_names(
    'random_vanilla',
    [f"utils.run.init_checkpoint = '{path}'"],
    [f'{scope}SyntheticAttention/v_slot_vr'],
  )
  assert names[f'{scope}SyntheticAttention/v_slot_vr'] == (
    f'{scope}SelfAttention/v_slot_vr'
  )


def test_without_a_checkpoint_nothing_is_mapped():
  names = training_names('random_vanilla')
  assert all(name == there for name, there in names.items())
