"""What the layers refuse, and their messages; the lists that they accept."""

import functools

import gin
import pytest

import synth_mtf
from synth_mtf.errors import ConfigurationError

# SelfAttention's settings that every layer of ours refuses.
REFUSED = [
  (
    {'num_heads': 6, 'num_memory_heads': 4},
    r'num_heads = 6, SelfAttention\.num_memory_heads = 4: .*divisor',
  ),
  ({'num_heads': 0}, r'SelfAttention\.num_heads = 0'),
  ({'num_memory_heads': -1}, r'num_memory_heads = -1'),
  ({'attention_func': 'hybrid'}, r"SelfAttention\.attention_func = 'hybrid'"),
  ({'use_hyperprompt': True}, r'SelfAttention\.use_hyperprompt'),
  (
    {'keep_query_heads_dims': True},
    r'SelfAttention\.keep_query_heads_dims = True; remove',
  ),
  *(
    ({setting: 3}, rf'SelfAttention\.{setting}')
    for setting in ('hyperprompt_length_encoder', 'hyperprompt_length_decoder')
  ),
  (
    {'attention_kwargs': {'extra_logit': 0.0}},
    r"SelfAttention\.attention_kwargs\['extra_logit'\]",
  ),
]
FROZEN = functools.partial(synth_mtf.DotProduct, trainable=False)
SELF_ATTENTION = [
  *REFUSED,
  (
    {'mixing': 'softmaxx'},
    r"SyntheticAttention\.mixing = 'softmaxx'.*'softmax', 'layer_softmax', "
    r"'layer_sigmoid', 'sum'.*did you mean 'softmax'",
  ),
  *(
    (
      {setting: value},
      rf"SyntheticAttention\.{setting} = '{value}'.*did you mean '{meant}'",
    )
    for setting, value, meant in (
      ('index_by', 'rows', 'row'),
      ('normalize', 'softmx', 'softmax'),
      ('relative_attention_type', 'bais', 'bias'),
    )
  ),
  # All faults at once.
  (
    {'attention_func': 'hybrid', 'use_hyperprompt': True},
    'attention_func.*use_hyperprompt',
  ),
  *(
    ({'synthesizers': makers}, rf'SyntheticAttention\.synthesizers {message}')
    for makers, message in (
      ([], r'= \[\].*at least one'),
      ([synth_mtf.DotProduct, 'Random'], r"= \[.*, 'Random'\].*function"),
      (synth_mtf.DotProduct(), '= .*expected a list'),
      ([dict], r"= \[<class 'dict'>\].*function"),
    )
  ),
  (
    {'shared_kv': True, 'value_bias': True},
    r'SyntheticAttention\.value_bias needs .*remove SelfAttention\.shared_kv',
  ),
  (
    {'shared_kv': True, 'synthesizers': [FROZEN]},
    r'DotProduct\.trainable = False needs .*remove SelfAttention\.shared_kv',
  ),
  (
    {'synthesizers': [FROZEN, synth_mtf.DotProduct]},
    'with and without DotProduct.trainable',
  ),
]
CROSS_ATTENTION = [
  ({'synthesizers': [synth_mtf.FixedPatterns]}, 'FixedPatterns is for self-'),
  (
    {'relative_attention_type': 'contextual'},
    r"SyntheticEncDecAttention\.relative_attention_type = 'contextual'",
  ),
]


@pytest.mark.parametrize(
  'layer, settings, message',
  [
    *((synth_mtf.SyntheticAttention, *row) for row in SELF_ATTENTION),
    *((synth_mtf.SyntheticEncDecAttention, *row) for row in CROSS_ATTENTION),
    *((synth_mtf.Linformer, *row) for row in REFUSED),
  ],
)
def test_refused(layer, settings, message):
  with pytest.raises(ConfigurationError, match=message):
    layer(**settings)


def test_each_layer_makes_its_own_functions():
  gin.parse_config("""
      SyntheticAttention.synthesizers = [@synth_mtf.Random, @synth_mtf.Dense]
      synth_mtf.Random.max_length = 13
      Unitransformer.max_length = 17
  """)
  one, other = (synth_mtf.SyntheticAttention().synthesizers for _ in range(2))
  assert [vars(f)['max_length'] for f in one] == [13, 17]
  assert not {*one} & {*other}


def test_classes_and_callables_make_functions():
  makers = (
    synth_mtf.DotProduct,
    functools.partial(synth_mtf.Random, max_length=13),
    lambda: synth_mtf.FactorizedRandom(rank=3),
  )
  layer = synth_mtf.SyntheticAttention(synthesizers=makers)
  names = [type(f).__name__ for f in layer.synthesizers]
  assert names == ['DotProduct', 'Random', 'FactorizedRandom']
