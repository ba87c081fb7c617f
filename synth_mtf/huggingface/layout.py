"""What a model is called in Hugging Face's T5: its settings and its weights."""

import json
import re
from collections.abc import Iterator
from typing import Any

import gin
import mesh_tensorflow as mtf
import numpy as np
import numpy.typing as npt
from mesh_tensorflow.transformer import transformer

from synth_mtf.errors import UserError
from synth_mtf.host import model as models
from synth_mtf.layer.synthetic import SyntheticLayer, scopes
from synth_mtf.results import labels
from synth_mtf.synthesizers.dot_product import DotProduct

# The functions of modeling_synthesizer.py, and what it asks beside shapes.
_FUNCTIONS = (
  'DotProduct',
  'Random',
  'FactorizedRandom',
  'Dense',
  'FactorizedDense',
  'GatedDense',
  'BottleneckDense',
)
_ARGUMENTS = ('max_length', 'memory_max_length', 'tile_length', 'trainable')
_BLOCKS = {
  'encoder': ['SelfAttention', 'DenseReluDense'],
  'decoder': ['SelfAttention', 'EncDecAttention', 'DenseReluDense'],
}
_FEED_FORWARD = {
  'relu': 'relu',
  'gelu': 'gelu_new',
  'gelu linear': 'gated-gelu',
  'relu linear': 'gated-relu',
  'swish linear': 'gated-silu',
}
_STACKS = ('LayerStack', 'ReplacingLayerStack')
_SUBLAYERS = re.compile(
  'dropout; (rms_norm|true_layer_norm) call_layer dropout residual; '
  r'\1 dropout'
)
_NAME = re.compile(r'(encoder|decoder)((?:/\w+_\d+){2})?/(\w+)/([\w/]+)')
_OTHERS = {
  'shared/embedding': 'shared.weight',
  'shared/positional_embedding': 'encoder.positions.weight',
  'encoder/positional_embedding': 'encoder.positions.weight',
  'decoder/positional_embedding': 'decoder.positions.weight',
  'decoder/logits/kernel': 'lm_head.weight',
}
# Projections map from their columns there.
_PROJECTION = re.compile(r'/(q|k|v|kv|o|kernel|relative_attention_bias)$')

Array = npt.NDArray[Any]


def name_of(variable: str) -> str:
  """Returns the name of a variable there, or '' if it has no counterpart."""
  match = _NAME.fullmatch(variable)
  if variable in _OTHERS or not match:
    return _OTHERS.get(variable, '')
  stack, place, layer, rest = match.groups()
  parts = [stack]
  for word, number in re.findall(r'([a-z]+)_(\d+)', place or ''):
    parts += [word, str(int(number))]
  if layer.endswith('norm'):
    parts.append('layer_norm' if place else 'final_layer_norm')
    return '.'.join([*parts, 'bias' if rest.endswith('bias') else 'weight'])
  rest = _PROJECTION.sub(r'/\1/weight', f'/{rest}').replace('/kernel', '')
  return '.'.join([*parts, _kind(layer)]) + rest.replace('/', '.')


def weight_of(variable: str, value: Array) -> Array:
  """Returns the value of a variable's counterpart."""
  if _PROJECTION.search(variable):
    rows = value.shape[-1:] if variable.endswith(('/o', '_bias')) else ()
    value = value.reshape(-1, *rows) if rows else value.reshape(len(value), -1)
    value = value.T
  return np.ascontiguousarray(value, np.float32)


def value_of(variable: str, weight: Array, shape: Any) -> Array:
  """Returns a variable's value, the inverse of `weight_of`."""
  return (weight.T if _PROJECTION.search(variable) else weight).reshape(shape)


def config(model: models.ConfiguredModel) -> dict[str, Any]:
  """Returns the model's settings there.

  Raises:
    UserError: if it computes what Hugging Face's T5, or ours, does not.
  """
  if not isinstance(model.transformer, transformer.Bitransformer):
    raise _refused('a model of one stack (a language model or an encoder)')
  found: dict[str, Any] = {}
  for where, settings in _settings(model):
    for key, value in settings.items():
      if found.setdefault(key, value) != value:
        raise _refused(f'{where}, where {key} is not that of other layers,')
  for variable in model.variables:
    if not name_of(variable):
      raise _refused(f'the variable {variable}')
  attention = {k: found.pop(k) for k in ('encoder', 'decoder', 'cross')}
  first = attention['encoder']
  shared = {
    'd_kv': first['d_kv'],
    'num_heads': first['num_heads'],
    'shared_positions': 'shared/positional_embedding' in model.shapes,
    'attention': attention,
  }
  return json.loads(json.dumps({**found, **shared}))  # tuples become lists


def is_plain(settings: dict[str, Any]) -> bool:
  """Whether `transformers`' own T5 has these settings."""
  heads = {'num_heads': settings['num_heads'], 'd_kv': settings['d_kv']}
  usual = {
    'synthesizers': [_function({}, 'dot_product', DotProduct())],
    'projections': ['q', 'k', 'v', 'o'],
    'query_scale': 1.0,
    'alpha_shape': None,
    **heads,
  }
  relative = {'encoder': 'bias_shared', 'decoder': 'bias_shared', 'cross': None}
  return not any(
    settings[name] for name in ('positions', 'use_bias', 'true_layer_norm')
  ) and all(
    {**layer, **usual, 'relative_attention': relative[kind]} == layer
    for kind, layer in settings['attention'].items()
  )


def _settings(
  model: models.ConfiguredModel,
) -> Iterator[tuple[str, dict[str, Any]]]:
  """Yields the settings of each layer and stack, with its name."""
  pair = model.transformer
  for scope, layer in models.layers(pair):
    stack, *places = scope.split('/')[:-1]
    number = int(places[-1][-3:])
    kind = _kind(type(layer).__name__)
    if len(places) != 2 or kind not in _BLOCKS[stack][number : number + 1]:
      raise _refused(f'{labels.label_of(layer)} ({scope})')
    if kind == 'DenseReluDense':
      activation = layer.activation
      if not isinstance(activation, str):
        activation = ' '.join(map(str, activation))
      if activation not in _FEED_FORWARD:
        raise _refused(f'{scope} with activation = {layer.activation!r}')
      settings = {
        'd_ff': layer.hidden_size,
        'feed_forward_proj': _FEED_FORWARD[activation],
        'use_bias': layer.use_bias,
      }
      yield scope, settings
      continue
    own = 'cross' if kind == 'EncDecAttention' else stack
    settings = _attention(model, scope, layer)
    yield scope, {own: settings}
    if settings['relative_attention']:
      buckets = layer.relative_attention_num_buckets
      yield scope, {'relative_attention_num_buckets': buckets}
  lengths = {}
  counts = ('num_layers', 'num_decoder_layers')
  for stack, count in zip((pair.encoder, pair.decoder), counts):
    own, sublayers = stack.layer_stack, models.sublayers(stack)
    match = _SUBLAYERS.fullmatch(sublayers)
    scaled = 'scale_variable_like_classifier_weights'
    for what, has in (
      (type(own).__name__, type(own).__name__ not in _STACKS),
      (f'the sublayers `{sublayers}`', not match),
      ('sinusoids', stack.sinusoid_positional_embedding),
      ('an ensemble', stack.ensemble_dim),
      (scaled, gin.get_bindings(transformer.VocabEmbedding).get(scaled)),
      ('unit scaling', mtf.layers.unit_scaling_convention()),
    ):
      if has:
        raise _refused(f'{stack.name} with {what}')
    if stack.positional_embedding:
      lengths[stack.name] = stack.max_length_dim.size
    norm = match[1] if match else ''
    bound = gin.get_bindings(f'sublayer_{norm}')
    dropout = gin.get_bindings(transformer.sublayer_dropout)
    legacy = getattr(own, 'dropout_rate', 0.0)
    settings = {
      count: len(own.layers) // len(_BLOCKS[stack.name]),
      'd_model': stack.model_dim.size,
      'vocab_size': stack.input_vocab_dim.size,
      'dropout_rate': dropout.get('dropout_rate', legacy),
      'layer_norm_epsilon': bound.get('epsilon', 1e-6),
      'true_layer_norm': norm == 'true_layer_norm',
    }
    yield stack.name, settings
  tied = pair.decoder.shared_embedding_and_softmax_weights
  yield 'decoder', {'tie_word_embeddings': tied, 'positions': lengths or None}


def _attention(
  model: models.ConfiguredModel, scope: str, layer: Any
) -> dict[str, Any]:
  is_ours = isinstance(layer, SyntheticLayer)
  functions = layer.synthesizers if is_ours else [DotProduct()]
  relative = layer.relative_attention_type
  if is_ours and layer.normalize is None:
    raise _refused(f'{layer.label} ({scope})')
  if relative == 'contextual' or ('EncDec' in scope and relative):
    raise _refused(f'{scope} with relative_attention_type = {relative!r}')
  if layer.num_heads < 2 or layer.num_memory_heads not in (0, layer.num_heads):
    raise _refused(
      f'{scope} with num_heads = {layer.num_heads} and num_memory_heads = '
      f'{layer.num_memory_heads}'
    )
  folded = layer.fold_scaling_into_initializer
  shapes = {
    name[len(scope) + 1 :]: shape.to_integer_list
    for name, shape in model.shapes.items()
    if name.startswith(f'{scope}/')
  }
  return {
    'synthesizers': [
      _function(shapes, name, function)
      for name, function in zip(scopes(functions), functions)
    ],
    'num_heads': layer.num_heads,
    'd_kv': layer.key_value_size,
    'dropout_rate': layer.dropout_rate,
    'projections': [x for x in ('q', 'k', 'v', 'kv', 'o') if x in shapes],
    'query_scale': 1.0 if folded else layer.key_value_size**-0.5,
    'alpha_shape': shapes.get('alpha'),
    'relative_attention': relative,
  }


def _function(
  shapes: dict[str, list[int]], scope: str, function: Any
) -> dict[str, Any]:
  """Returns the settings of a function, given the shapes of its layer."""
  name = type(function).__name__
  if name not in _FUNCTIONS:
    raise _refused(f'the synthesizing function {name}')
  found = {a: getattr(function, a) for a in _ARGUMENTS if hasattr(function, a)}
  own = {
    name[len(scope) + 1 :]: shape
    for name, shape in shapes.items()
    if name.startswith(f'{scope}/')
  }
  found['parameters'] = {k: v for k, v in own.items() if '/' not in k}
  inner = getattr(function, 'inner', None)
  if inner:
    found['inner'] = _function(own, inner.scope, inner)
  return {'function': name, 'scope': scope, **found}


def _kind(layer: str) -> str:
  """Returns the name of the layer's class in T5."""
  return {
    'SyntheticAttention': 'SelfAttention',
    'SyntheticEncDecAttention': 'EncDecAttention',
  }.get(layer, layer)


def _refused(what: str) -> UserError:
  hint = ''
  if what.startswith('mtf '):  # mesh_tensorflow's Synthesizer
    mode = what.split()[1]
    hint = (
      '. Convert it first: synth-mtf checkpoint convert ... '
      f'--gin_file=variants/as_original_{mode}.gin'
    )
  return UserError(f"{what} cannot be exported to Hugging Face's T5{hint}")
