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

OURS = 'encoder/block_000/layer_000/SyntheticAttention'
T5 = 'encoder/block_000/layer_000/SelfAttention'


def mapped(path, binding='', more=()):
  """Calls warm_start as the host does, and returns what it maps."""
  gin_files.parse(
    [*model.files('random_vanilla'), 'common/warm_start.gin'],
    [
      *model.TINY,
      f'utils.run.init_checkpoint = {path!r}',
      "utils.run.mesh_shape = ''",
      binding,
    ],
  )
  built = host_model.build(model.VOCAB)
  with built.graph.as_default():
    return {
      name: utils.init_checkpoint_variable_mapping(name)
      for name in [*built.variables, *more]
    }


def test_weights_and_slots_are_found_by_the_class_of_their_layer(t5, tmp_path):
  checkpoint = Checkpoint(t5)
  values = {n: checkpoint[n] for n in checkpoint.kinds}
  values[f'{T5}/v_slot_vr'] = np.ones(24, np.float32)
  path = write(str(tmp_path), 7, values)
  names = mapped(path, more=[f'{OURS}/v_slot_vr'])
  assert names[f'{OURS}/q'] == f'{T5}/q'
  assert names[f'{OURS}/v_slot_vr'] == f'{T5}/v_slot_vr'
  assert names[f'{OURS}/random/R'] == f'{OURS}/random/R'
  assert names['shared/embedding'] == 'shared/embedding'


@pytest.mark.parametrize(
  'binding, message',
  [
    ('num_layers = 1', 'a layer that the model lacks'),
    ('d_ff = 21', 'other shapes or types'),
    (
      "utils.get_variable_dtype.master_dtype = 'bfloat16'",
      'float32.* in the checkpoint, bfloat16.* in the model',
    ),
  ],
)
def test_warm_start_insists(t5, binding, message):
  with pytest.raises(UserError, match=message):
    mapped(t5, binding)


def test_another_max_length_is_refused(tmp_path):
  path = model.write(tmp_path, 'random_vanilla')
  with pytest.raises(UserError, match='checkpoint convert.*--resize'):
    mapped(path, 'Unitransformer.max_length = 20')


def test_without_a_checkpoint_nothing_is_mapped():
  assert all(name == there for name, there in mapped(None).items())
