"""What the names of variables say."""

import pytest

from synth_mtf.checkpoints import names

PLACE = 'encoder/block_000/layer_000/'
Q = f'{PLACE}SelfAttention/q'
R = f'{PLACE}SyntheticAttention/random/R'
CROSS_PLACE = 'decoder/block_000/layer_001/'
CROSS = f'{CROSS_PLACE}EncDecAttention/q'


@pytest.mark.parametrize(
  'name, parts, candidates, scope, place',
  [
    (
      Q,
      (PLACE, 'SelfAttention', 'q'),
      [Q, f'{PLACE}SyntheticAttention/q', f'{PLACE}Synthesizer/q'],
      f'{PLACE}SelfAttention',
      PLACE,
    ),
    (
      R,
      (PLACE, 'SyntheticAttention', 'random/R'),
      [R, f'{PLACE}SelfAttention/random/R', f'{PLACE}Synthesizer/random/R'],
      f'{PLACE}SyntheticAttention/random',
      PLACE,
    ),
    (
      CROSS,
      (CROSS_PLACE, 'EncDecAttention', 'q'),
      [CROSS, CROSS.replace('EncDec', 'SyntheticEncDec')],
      f'{CROSS_PLACE}EncDecAttention',
      CROSS_PLACE,
    ),
    ('shared/embedding', None, ['shared/embedding'], 'shared', 'shared'),
  ],
)
def test_a_name(name, parts, candidates, scope, place):
  assert names.attention_name(name) == parts
  assert names.candidates(name) == candidates
  assert names.scope(name) == scope
  assert names.layer(name) == place


def test_the_kind_of_a_layer():
  kinds = [
    names.attention_kind(layer)
    for layer in ('SelfAttention', 'EncDecAttention', 'Mine')
  ]
  assert kinds == ['self-attention', 'cross-attention', 'self-attention']


def test_a_bias_that_is_not_used():
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
  assert not name.startswith(Q) or names.slot_owner(name) == Q


@pytest.mark.parametrize(
  'name, embedding',
  [
    ('shared/embedding', True),
    ('encoder/positional_embedding/embedding', False),
    ('embedding_of_something/q', False),
  ],
)
def test_embeddings_have_rows_for_pieces(name, embedding):
  assert names.is_embedding(name) == embedding


@pytest.mark.parametrize(
  'rest, may',
  [
    *((rest, True) for rest in ('random/R', 'alpha', 'q', 'k', *names.BIASES)),
    ('v', False),
    ('o', False),
  ],
)
def test_what_may_start_anew(rest, may):
  assert names.may_start_anew(rest) == may
