"""What the names of variables say."""

import pytest

from synth_mtf.checkpoints import names

SCOPE = 'encoder/block_000/layer_000/'
Q = f'{SCOPE}SelfAttention/q'
R = f'{SCOPE}SyntheticAttention/random/R'
CROSS = 'decoder/block_000/layer_001/EncDecAttention/q'


def test_a_name_taken_apart():
  assert names.attention_name(R) == (SCOPE, 'SyntheticAttention', 'random/R')
  assert names.attention_name(Q) == (SCOPE, 'SelfAttention', 'q')
  assert names.attention_name(CROSS) == (
    'decoder/block_000/layer_001/',
    'EncDecAttention',
    'q',
  )
  assert names.attention_name('shared/embedding') is None


def test_a_checkpoint_may_hold_it_under_the_name_of_another_class():
  assert names.candidates(Q) == [
    Q,
    f'{SCOPE}SyntheticAttention/q',
    f'{SCOPE}Synthesizer/q',
  ]
  assert names.candidates(CROSS) == [
    CROSS,
    CROSS.replace('EncDec', 'SyntheticEncDec'),
  ]
  assert names.candidates('shared/embedding') == ['shared/embedding']


def test_the_kind_of_a_layer():
  kinds = [
    names.attention_kind(layer)
    for layer in ('SelfAttention', 'EncDecAttention', 'Mine')
  ]
  assert kinds == ['self-attention', 'cross-attention', 'self-attention']


def test_a_bias_that_is_there_for_nothing():
  bias, own_bias = names.BIASES
  assert not names.is_used('EncDecAttention', bias)
  assert names.is_used('EncDecAttention', own_bias)
  assert names.is_used('SelfAttention', bias)


@pytest.mark.parametrize(
  'name, weight, slot',
  [
    (Q, True, False),
    (f'{Q}_slot_vr', False, True),
    (f'{Q}_slot_v', False, True),
    ('global_step', False, False),
    ('a/global_step', False, False),
    ('a/my_global_step', True, False),
  ],
)
def test_weights_and_slots(name, weight, slot):
  assert names.is_weight(name) == weight
  assert names.is_slot(name) == slot


def test_the_owner_of_a_slot():
  assert names.slot_owner(f'{Q}_slot_vr') == Q
  assert names.slot_owner(Q) == Q


def test_embeddings_have_rows_for_pieces():
  assert names.is_embedding('shared/embedding')
  assert not names.is_embedding('encoder/positional_embedding/embedding')
  assert not names.is_embedding('embedding_of_something/q')


def test_scopes_and_layers():
  assert names.scope(R) == f'{SCOPE}SyntheticAttention/random'
  assert names.layer(R) == SCOPE
  assert names.layer(CROSS) == 'decoder/block_000/layer_001/'
  assert names.layer('shared/embedding') == 'shared'


@pytest.mark.parametrize(
  'rest, may',
  [
    ('random/R', True),
    ('alpha', True),
    *((bias, True) for bias in names.BIASES),
    ('q', True),
    ('k', True),
    ('v', False),
    ('o', False),
  ],
)
def test_what_may_start_anew(rest, may):
  assert names.may_start_anew(rest) == may
