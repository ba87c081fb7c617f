"""What the layer refuses, and how it says so."""

import pytest

import synth_mtf
from synth_mtf.errors import ConfigurationError

# What every layer of ours refuses of SelfAttention's settings.
REFUSED = [
  (
    {'num_heads': 6, 'num_memory_heads': 4},
    r'SelfAttention\.num_heads = 6 is not divisible by '
    r'SelfAttention\.num_memory_heads = 4',
  ),
  ({'num_heads': 0}, r'SelfAttention\.num_heads = 0'),
  ({'num_memory_heads': -1}, r'num_memory_heads = -1'),
  (
    {'attention_func': 'hybrid'},
    r"SelfAttention\.attention_func = 'hybrid'",
  ),
  ({'use_hyperprompt': True}, r'SelfAttention\.use_hyperprompt'),
  (
    {'hyperprompt_length_encoder': 3},
    r'SelfAttention\.hyperprompt_length_encoder',
  ),
  (
    {'hyperprompt_length_decoder': 3},
    r'SelfAttention\.hyperprompt_length_decoder',
  ),
  (
    {'attention_kwargs': {'extra_logit': 0.0}},
    r"SelfAttention\.attention_kwargs\['extra_logit'\]",
  ),
]


@pytest.mark.parametrize(
  'settings, message',
  [
    *REFUSED,
    (
      {'mixing': 'softmaxx'},
      r"SyntheticAttention\.mixing = 'softmaxx'.*'softmax', 'layer_softmax', "
      r"'sum'.*did you mean 'softmax'",
    ),
    (
      {'index_by': 'rows'},
      r"SyntheticAttention\.index_by = 'rows'.*did you mean 'row'",
    ),
    (
      {'normalize': 'softmx'},
      r"SyntheticAttention\.normalize = 'softmx'.*did you mean 'softmax'",
    ),
    (
      {'relative_attention_type': 'bais'},
      r"Attention\.relative_attention_type = 'bais'.*did you mean 'bias'",
    ),
  ],
  ids=lambda value: '-'.join(value) if isinstance(value, dict) else '',
)
def test_refused_when_the_layer_is_made(settings, message):
  with pytest.raises(ConfigurationError, match=message):
    synth_mtf.SyntheticAttention(**settings)


def test_all_that_is_not_supported_is_named_at_once():
  with pytest.raises(ConfigurationError) as error:
    synth_mtf.SyntheticAttention(attention_func='hybrid', use_hyperprompt=True)
  assert 'attention_func' in str(error.value)
  assert 'use_hyperprompt' in str(error.value)


def test_an_argument_that_nobody_has():
  with pytest.raises(
    ConfigurationError, match=r"nomber_of_heads.*did you mean 'num_heads'"
  ):
    synth_mtf.SyntheticAttention(nomber_of_heads=3)
