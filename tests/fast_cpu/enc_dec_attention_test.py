"""T5's cross-attention by our layer: the host's variables and numbers."""

import functools

import numpy as np
import pytest
from mesh_tensorflow.transformer import transformer_layers

from synth_mtf import DotProductEncDecAttention
from tests import family, harness
from tests.harness import DECODER

ROWS = np.ones([2, 5], int)
INPUTS = np.array([[1] * 9, [1] * 4 + [0] * 5])
SIZES = {'num_heads': 3, 'key_value_size': 5}


def made(layer, **settings):
  return harness.parallel(
    functools.partial(layer, **SIZES, **settings),
    family.tokens(ROWS),
    ROWS,
    DECODER,
    encoded=family.encoded(INPUTS),
  )


@pytest.mark.parametrize('settings', [{}, {'shared_kv': True}], ids=['', 'kv'])
def test_the_hosts_output_variables_and_gradients(settings):
  host = made(transformer_layers.EncDecAttention, **settings)
  ours = made(DotProductEncDecAttention, **settings)
  shapes = [{n: w.shape for n, w in r.weights.items()} for r in (host, ours)]
  assert shapes[0] == shapes[1]
  harness.assert_close(ours.output, host.output, 'output')
  harness.assert_close(ours.gradients, host.gradients, 'gradients')


def test_it_has_the_hosts_name_and_adds_none_to_tables():
  layer = DotProductEncDecAttention()
  # The host makes the scope of a layer's variables of the name of its class.
  assert type(layer).__name__ == transformer_layers.EncDecAttention.__name__
  assert layer.label == ''
