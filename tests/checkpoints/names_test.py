"""What the names of variables say."""

import pytest

from synth_mtf.checkpoints import names

PLACE = 'encoder/block_000/layer_000'
Q = f'{PLACE}/SelfAttention/q'
CROSS_PLACE = 'decoder/block_000/layer_001'
CROSS = f'{CROSS_PLACE}/EncDecAttention/q'


@pytest.mark.parametrize(
  'name, parts, candidates, place',
  [
    (
      Q,
      (PLACE, 'SelfAttention', 'q'),
      [Q, f'{PLACE}/SyntheticAttention/q', f'{PLACE}/Synthesizer/q'],
      PLACE,
    ),
    (
      f'{PLACE}/SyntheticAttention/random/R',
      (PLACE, 'SyntheticAttention', 'random/R'),
      [
        f'{PLACE}/{layer}/random/R'
        for layer in ('SyntheticAttention', 'SelfAttention', 'Synthesizer')
      ],
      PLACE,
    ),
    (
      CROSS,
      (CROSS_PLACE, 'EncDecAttention', 'q'),
      [CROSS, CROSS.replace('EncDec', 'SyntheticEncDec')],
      CROSS_PLACE,
    ),
    ('shared/embedding', None, ['shared/embedding'], 'shared'),
  ],
)
def test_a_name(name, parts, candidates, place):
  assert names.attention_name(name) == parts
  assert names.candidates(name) == candidates
  assert names.scope(name) == name[: name.rindex('/')]
  assert names.place(name) == place


@pytest.mark.parametrize(
  'name, weight, owner',
  [
    (Q, True, ''),
    (f'{Q}_slot_vr', False, Q),
    (f'{Q}_slot_v', False, Q),
    ('global_step', False, ''),
    ('a/global_step', False, ''),
    ('a/my_global_step', True, ''),
  ],
)
def test_weights_and_slots(name, weight, owner):
  assert names.is_weight(name) == weight
  assert names.slot_owner(name) == owner
