"""What the host's own layers tell of their attention: the reference's V."""

import functools

import pytest
from mesh_tensorflow.transformer import transformer_layers

from synth_mtf.attention import recording
from tests import checks, family
from tests.family import D_KV, HEADS, PADDED
from tests.harness import DECODER, ENCODER


@pytest.mark.parametrize('stack', [ENCODER, DECODER], ids=lambda s: s.name)
def test_layers_of_the_host(stack):
  """SelfAttention is the reference's V."""
  make = functools.partial(
    transformer_layers.SelfAttention,
    num_heads=HEADS,
    key_value_size=D_KV,
    relative_attention_type='bias',
  )
  member = family.V.but(relative_attention_type='bias')
  checks.alignment(member, PADDED, stack, make, recording.recorded_by)


def test_cross_attention_of_the_host():
  make = functools.partial(
    transformer_layers.EncDecAttention, num_heads=HEADS, key_value_size=D_KV
  )
  member = family.CROSS['cross_vanilla']
  checks.alignment(member, PADDED, DECODER, make, recording.recorded_by)


def test_layers_of_the_host_are_left_as_they_were():
  before = transformer_layers.SelfAttention.attention_fn
  with pytest.raises(ValueError), recording.recorded_by(print):
    int('no number')
  assert transformer_layers.SelfAttention.attention_fn is before
