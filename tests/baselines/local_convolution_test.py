"""The host's convolutions, as our variants call them."""

import functools

import gin
import numpy as np
import pytest
from mesh_tensorflow.transformer import transformer_layers

import synth_mtf
from synth_mtf.errors import ConfigurationError
from synth_mtf.host import gin_files
from tests import harness, model
from tests.harness import DECODER, ENCODER

HOST = transformer_layers.LocalConvAttnBlock
OURS = functools.partial(synth_mtf.LocalConvolution, packed=False)
KINDS = ['lightweight_conv', 'dynamic_conv']
D_MODEL = 6
X = harness.draw('x', [3, 7, D_MODEL])
SEGMENTS = np.array([[1, 1, 2, 2, 0]], np.int32)
# The last row ends within a window of 4 of what is given.
STARTS = [None, np.array([2, 1, 5])]
starts = pytest.mark.parametrize('start', STARTS, ids=['all', 'the rest'])


def both(block, kind, start=None):
  """What a decoder computes at once, and what it computes by tokens."""

  def make():
    return block(
      min_relative_pos=-3,
      max_relative_pos=0,
      output_size=D_MODEL,
      attention_type=kind,
    )

  at_once = harness.parallel(make, X, stack=DECODER, mode='eval').output
  by_tokens, _ = harness.decode(make, X, start)
  decoded = ~np.isnan(by_tokens)
  assert decoded.all() == (start is None)
  return at_once[decoded], by_tokens[decoded]


@pytest.mark.sampled
@starts
@pytest.mark.parametrize('kind', KINDS)
def test_decoding_computes_what_training_computes(kind, start):
  at_once, by_tokens = both(OURS, kind, start)
  harness.assert_close(by_tokens, at_once, 'decoded')


@pytest.mark.sampled
@starts
@pytest.mark.parametrize('kind', KINDS)
def test_the_hosts_own_layer_decodes_otherwise(kind, start):
  at_once, by_tokens = both(HOST, kind, start)
  assert abs(by_tokens - at_once).max() > 0.01


@pytest.mark.parametrize('kind', KINDS)
def test_training_is_the_hosts(kind):
  ours, hosts = (both(block, kind)[0] for block in (OURS, HOST))
  np.testing.assert_array_equal(ours, hosts)
  # The class is in the names of the variables.
  assert synth_mtf.LocalConvolution.__name__ == HOST.__name__


@pytest.mark.parametrize('stack', [ENCODER, DECODER], ids=lambda s: s.name)
@pytest.mark.parametrize('variant', ['lightconv', 'dyconv'])
def test_refuses_packed_rows(variant, stack):
  pack = 'mesh_train_dataset_fn.pack = True'
  gin_files.parse(model.files(variant), [*model.TINY, pack])
  x = harness.draw('x', [*SEGMENTS.shape, 24])
  with (
    gin.config_scope(stack.name),
    pytest.raises(
      ConfigurationError,
      match='LocalConvolution would mix .*mesh_eval_dataset_fn.pack = False',
    ),
  ):
    harness.variables(
      synth_mtf.self_attention, x, sequence_id=SEGMENTS, stack=stack
    )
