"""The settings of a model: T5's, those of a variant, and how a file has them.

Needs neither PyTorch nor transformers.
"""

import math
from collections.abc import Collection, Mapping
from typing import Any

# In a file, `feed_forward` has the activation of the feed-forward layers, and
# T5's own name for it has this: T5's own classes would load the weights that
# they know, and leave the others out; so they find an error instead.
NOT_T5 = (
  'T5-cannot load this model: use AutoModelForSeq2SeqLM with '
  'trust_remote_code=True'
)


def to_file(settings: Mapping[str, Any]) -> dict[str, Any]:
  """Returns settings as they are in a file, where T5's classes refuse them."""
  return {
    **settings,
    'feed_forward': settings['feed_forward_proj'],
    'feed_forward_proj': NOT_T5,
  }


def from_file(settings: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the settings that `to_file` was given, or those of a plain T5."""
  known = dict(settings)
  if 'feed_forward' in known:
    known['feed_forward_proj'] = known.pop('feed_forward')
  return known


def t5_attention(
  kind: str, num_heads: int, d_kv: int, dropout_rate: float
) -> dict[str, Any]:
  """Returns the settings of T5's own attention of a kind."""
  return {
    'synthesizers': [{'function': 'DotProduct', 'scope': 'dot_product'}],
    'projections': ['q', 'k', 'v', 'o'],
    'query_scale': 1.0,
    'alpha_shape': None,
    'batch_shared': False,
    'num_heads': num_heads,
    'd_kv': d_kv,
    'dropout_rate': dropout_rate,
    'relative_attention': None if kind == 'cross' else 'bias_shared',
  }


def attention_settings(config: Any, kind: str) -> dict[str, Any]:
  """Returns T5's settings with the changes of `config.attention`."""
  sizes = config.num_heads, config.d_kv, config.dropout_rate
  return {**t5_attention(kind, *sizes), **config.attention.get(kind, {})}


# The functions of the gin files of these names.
VARIANTS = {
  'vanilla': ('DotProduct',),
  'fixed_random': ('FixedRandom',),
  'random': ('Random',),
  'factorized_random': ('FactorizedRandom',),
  'dense': ('Dense',),
  'factorized_dense': ('FactorizedDense',),
  'random_dense': ('Random', 'Dense'),
  'dense_vanilla': ('Dense', 'DotProduct'),
  'random_vanilla': ('Random', 'DotProduct'),
  'random_dense_vanilla': ('Random', 'Dense', 'DotProduct'),
  'factorized_random_vanilla': ('FactorizedRandom', 'DotProduct'),
  'factorized_random_dense': ('FactorizedRandom', 'Dense'),
  'glu': ('GatedDense',),
  'bottleneck_dense': ('BottleneckDense',),
}
MIXINGS = ('softmax', 'layer_softmax', 'layer_sigmoid', 'sum')
RANK = 8  # k of Factorized Random


def check_choice(setting: str, value: Any, choices: Collection[str]) -> Any:
  """Returns a value, or raises a ValueError if it is not one of `choices`."""
  if value not in choices:
    raise ValueError(
      f'{setting}={value!r}, expected one of {", ".join(sorted(choices))}'
    )
  return value


def variant_settings(config: Any, kind: str, variant: str) -> dict[str, Any]:
  """Returns the settings of attention of a variant."""
  names = VARIANTS[check_choice('variant', variant, VARIANTS)]
  count = len(names)
  if config.mixing == 'layer_sigmoid' and count != 2:
    raise ValueError(
      f"mixing='layer_sigmoid' weighs two functions, and {variant} has {count}"
    )
  shapes = {
    'softmax': [count, config.num_heads],
    'layer_softmax': [count],
    'layer_sigmoid': [1],
    'sum': None,
  }
  is_dot_product = 'DotProduct' in names
  tables = {'Random', 'FixedRandom', 'FactorizedRandom'}
  return {
    **attention_settings(config, kind),
    'synthesizers': [function_settings(config, name) for name in names],
    'projections': ['q', 'k', 'v', 'o'] if is_dot_product else ['v', 'o'],
    'alpha_shape': shapes[config.mixing] if count > 1 else None,
    'batch_shared': tables.issuperset(names),
  }


def function_settings(config: Any, name: str) -> dict[str, Any]:
  """Returns the settings of a function S(X) of a variant."""
  if name == 'DotProduct':
    return {'function': name, 'scope': 'dot_product'}
  n = config.max_position_embeddings or 512
  d, heads, d_kv = config.d_model, config.num_heads, config.d_kv
  w1, w2 = {'W1': [d, heads, d_kv]}, {'W2': [heads, d_kv, n]}
  a = next(a for a in range(math.isqrt(n), 0, -1) if n % a == 0)
  parameters: dict[str, dict[str, list[int]]] = {
    'Random': {'R': [heads, n, n]},
    'FixedRandom': {'R': [heads, n, n]},
    'FactorizedRandom': {'R1': [heads, n, RANK], 'R2': [heads, n, RANK]},
    'Dense': w1 | w2,
    'FactorizedDense': w1
    | {'WA': [heads, d_kv, a], 'WB': [heads, d_kv, n // a]},
    'GatedDense': w1 | w2 | {'Wg': [d, heads, d_kv]},
    'BottleneckDense': w1 | w2 | {'D': [d, d // 4], 'U': [d // 4, d]},
  }
  scopes = {
    'Random': 'random',
    'FactorizedRandom': 'factorized_random',
    'Dense': 'dense',
    'FactorizedDense': 'factorized_dense',
    'GatedDense': 'gated_dense',
    'BottleneckDense': 'bottleneck_dense',
  }
  function = 'Random' if name == 'FixedRandom' else name
  settings = {
    'function': function,
    'scope': scopes[function],
    'max_length': n if function in ('Random', 'FactorizedRandom') else None,
    'memory_max_length': n,
    'tile_length': None,
    'trainable': name != 'FixedRandom',
    'parameters': parameters[name],
  }
  if function == 'Random':
    settings |= {'stddev': 1.0, 'uniform': False}
  return settings
