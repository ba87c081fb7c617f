"""What the host's own layers tell of their attention: the reference's V."""

import functools

import numpy as np
import pytest
from mesh_tensorflow.transformer import transformer_layers

from synth_mtf.attention import recording
from tests import family
from tests.family import D_KV, HEADS
from tests.harness import DECODER, ENCODER
from tests.layer import alignments

PADDED = np.array([[1] * 7, [1, 1, 1, 1, 0, 0, 0], [1, 1, 0, 0, 0, 0, 0]])
INPUTS = np.array([[1] * 5 + [0] * 4, [1] * 9, [1] * 2 + [0] * 7])


@pytest.mark.parametrize('stack', [ENCODER, DECODER], ids=lambda s: s.name)
def test_layers_of_the_host(stack):
  """SelfAttention is the reference's V."""
  make = functools.partial(
    transformer_layers.SelfAttention,
    num_heads=HEADS,
    key_value_size=D_KV,
    relative_attention_type='bias',
  )
  alignments.compare(
    make,
    family.V.reference(relative='bias'),
    PADDED,
    stack,
    by=recording.recorded_by,
  )


def test_cross_attention_of_the_host():
  make = functools.partial(
    transformer_layers.EncDecAttention, num_heads=HEADS, key_value_size=D_KV
  )
  alignments.compare(
    make,
    family.V.reference(),
    PADDED,
    DECODER,
    family.encoded(INPUTS),
    by=recording.recorded_by,
  )


def test_layers_of_the_host_are_left_as_they_were():
  before = transformer_layers.SelfAttention.attention_fn
  with pytest.raises(ValueError), recording.recorded_by(print):
    int('no number')
  assert transformer_layers.SelfAttention.attention_fn is before
