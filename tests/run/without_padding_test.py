"""Runs whose products leave padding out train as those that do not."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.cpu import padding
from tests import harness

pytestmark = pytest.mark.slow  # trains


@pytest.mark.parametrize(
  'more',
  [
    '--gin_param=utils.serialize_num_microbatches'
    '.tokens_per_microbatch_per_replica = 64',
    '--gin_param=transformer.LayerStack.recompute_grads = True',
  ],
  ids=['in a loop', 'layers made again'],
)
def test_the_same_variables_come_out(run, tmp_path, monkeypatch, more):
  variables = []
  for name, least in (('without', 0), ('with', 2**60)):
    monkeypatch.setattr(padding, '_LEAST', least)
    repeatable = '--gin_file=runs/repeatable.gin'
    assert run(tmp_path / name, repeatable, more) == 0
    reader = tf.train.load_checkpoint(str(tmp_path / name))
    names = reader.get_variable_to_shape_map()
    variables.append({n: np.array(reader.get_tensor(n)) for n in names})
  found, expected = variables
  harness.assert_close(found, expected, 'variable', 1e-3)
