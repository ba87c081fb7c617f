"""How Hugging Face's T5 names a model's settings and weights."""

import json
import re
from collections.abc import Mapping
from typing import Any

import gin
import mesh_tensorflow as mtf
import numpy as np
import numpy.typing as npt
from mesh_tensorflow.transformer import transformer

from synth_mtf.errors import UserError
from synth_mtf.host import model as models
from synth_mtf.huggingface.settings_synthesizer import t5_attention
from synth_mtf.layer.synthetic import SyntheticLayer, scopes
from synth_mtf.results import labels
from synth_mtf.synthesizers.dot_product import DotProduct

# The functions of functions_synthesizer.py. The logits of tables do not depend
# on the tokens.
_TABLES = ('Random', 'FactorizedRandom')
_FUNCTIONS = (
  *_TABLES,
  'DotProduct',
  'Dense',
  'FactorizedDense',
  'GatedDense',
  'BottleneckDense',
)
_BLOCKS = {
  'encoder': ['SelfAttention', 'DenseReluDense'],
  'decoder': ['SelfAttention', 'EncDecAttention', 'DenseReluDense'],
}
_KINDS = ('encoder', 'decoder', 'cross')  # of attention
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
# The variables that have a counterpart, and the substitutions that name it.
_KNOWN = re.compile(
  r'shared/embedding|(shared|encoder|decoder)/positional_embedding'
  r'|decoder/logits/kernel'
  r'|(encoder|decoder)/(block_\d+/layer_\d+/\w+|\w+_norm)/[\w/]+'
)
_RENAMES = (
  (r'^shared/positional', 'encoder/positional'),
  (r'positional_embedding$', 'positions/weight'),
  (r'^decoder/logits', 'lm_head'),
  (r'block_0*(\d+)/layer_0*(\d+)', r'block/\1/layer/\2'),
  (r'/\w+_norm/.*(scale|bias)$', r'/layer_norm/\1'),
  (r'^(\w+)/layer_norm', r'\1/final_layer_norm'),
  ('SyntheticEncDec', 'EncDec'),
  ('Synthetic', 'Self'),
  (r'/(q|k|v|kv|o|relative_attention_bias)$', r'/\1/weight'),
  (r'/(embedding|kernel|scale)$', '/weight'),
  # Bottleneck Dense and the function inside it are one there.
  (r'(/bottleneck_dense\w*)/\w+/', r'\1/'),
)
# transformers has these transposed.
_PROJECTION = re.compile(r'/(q|k|v|kv|o|kernel|relative_attention_bias)$')

Array = npt.NDArray[Any]


def name_of(variable: str) -> str:
  """Returns a variable's name in transformers, or ''."""
  if not _KNOWN.fullmatch(variable):
    return ''
  for pattern, replacement in _RENAMES:
    variable = re.sub(pattern, replacement, variable)
  return variable.replace('/', '.')


def weight_of(variable: str, value: Array) -> Array:
  """Converts a variable's value to that of its counterpart, or back."""
  if _PROJECTION.search(variable):
    value = value.T
  return np.ascontiguousarray(value, np.float32)


def shape_of(variable: str, shape: tuple[int, ...]) -> tuple[int, ...]:
  """Returns the shape of `weight_of` for a value of a shape."""
  return shape[::-1] if _PROJECTION.search(variable) else shape


def config(model: models.ConfiguredModel) -> dict[str, Any]:
  """Returns the model's settings for transformers.

  `attention` has those of each kind that is not T5's own.

  Raises:
    UserError: if it computes what Hugging Face's T5, or ours, does not.
  """
  pair = model.transformer
  if not isinstance(pair, transformer.Bitransformer):
    raise _refused('a model of one stack (a language model or an encoder)')
  settings: dict[str, Any] = {}
  for scope, layer in models.layers(pair):
    _merge(settings, _layer(model, scope, layer), scope)
  for stack in (pair.encoder, pair.decoder):
    _merge(settings, _stack(stack), stack.name)
  settings |= _embeddings(model)
  for name, variable in model.variables.items():
    is_split = _PROJECTION.search(name) and variable.shape.ndims > 2
    if is_split or not name_of(name):
      raise _refused(f'the variable {name}, {variable.shape.as_list()},')
  encoder = settings['encoder']
  settings |= {'num_heads': encoder['num_heads'], 'd_kv': encoder['d_kv']}
  settings['attention'] = {}
  sizes = encoder['num_heads'], encoder['d_kv'], settings['dropout_rate']
  for kind in _KINDS:
    attention = settings.pop(kind)
    if attention != t5_attention(kind, *sizes):
      settings['attention'][kind] = attention
  return json.loads(json.dumps(settings))  # tuples become lists


def _merge(
  settings: dict[str, Any], more: Mapping[str, Any], where: str
) -> None:
  """Adds the settings of a layer or stack to those of the others."""
  for key, value in more.items():
    if settings.setdefault(key, value) != value:
      raise _refused(f'{where}, where {key} is not that of other layers,')


def _layer(
  model: models.ConfiguredModel, scope: str, layer: Any
) -> dict[str, Any]:
  """Returns the settings of a layer."""
  kind = _kind(layer)
  if kind == 'DenseReluDense':
    return _feed_forward(scope, layer)
  if kind not in _BLOCKS['decoder']:
    raise _refused(f'{labels.label_of(layer)} ({scope})')
  name = 'cross' if kind == 'EncDecAttention' else scope.split('/')[0]
  settings: dict[str, Any] = {name: _attention(model, scope, layer)}
  if layer.relative_attention_type:
    buckets = layer.relative_attention_num_buckets
    settings['relative_attention_num_buckets'] = buckets
  return settings


def _embeddings(model: models.ConfiguredModel) -> dict[str, Any]:
  """Returns the settings of embeddings and positions."""
  pair = model.transformer
  positions = {}
  for stack in (pair.encoder, pair.decoder):
    if stack.positional_embedding:
      positions[stack.name] = stack.max_length_dim.size
  return {
    'tie_word_embeddings': pair.decoder.shared_embedding_and_softmax_weights,
    'positions': positions,
    'shared_positions': 'shared/positional_embedding' in model.shapes,
  }


def _stack(stack: transformer.Unitransformer) -> dict[str, Any]:
  """Returns the settings of a stack."""
  own, block = stack.layer_stack, _BLOCKS[stack.name]
  name = type(own).__name__
  if name not in _STACKS:
    raise _refused(f'{stack.name} with {name}')
  count = len(own.layers) // len(block)
  if [_kind(layer) for layer in own.layers] != count * block:
    raise _refused(f'{stack.name} with layers in another order')
  sublayers = models.sublayers(stack)
  if not _SUBLAYERS.fullmatch(sublayers):
    raise _refused(f'{stack.name} with the sublayers `{sublayers}`')
  if stack.sinusoid_positional_embedding:
    raise _refused(f'{stack.name} with sinusoids')
  if stack.ensemble_dim:
    raise _refused(f'{stack.name} with an ensemble')
  scaled = 'scale_variable_like_classifier_weights'
  if gin.get_bindings(transformer.VocabEmbedding).get(scaled):
    raise _refused(f'{stack.name} with {scaled}')
  if mtf.layers.unit_scaling_convention():
    raise _refused(f'{stack.name} with unit scaling')
  norm = sublayers.split()[1]
  dropout = gin.get_bindings(transformer.sublayer_dropout)
  depth = 'num_layers' if stack.name == 'encoder' else 'num_decoder_layers'
  return {
    depth: count,
    'd_model': stack.model_dim.size,
    'vocab_size': stack.input_vocab_dim.size,
    'dropout_rate': dropout.get(
      'dropout_rate', getattr(own, 'dropout_rate', 0.0)
    ),
    'layer_norm_epsilon': gin.get_bindings(f'sublayer_{norm}').get(
      'epsilon', 1e-6
    ),
    'true_layer_norm': norm == 'true_layer_norm',
  }


def _feed_forward(scope: str, layer: Any) -> dict[str, Any]:
  """Returns the settings of a feed-forward layer."""
  activation = layer.activation
  words = activation if isinstance(activation, list) else [activation]
  name = _FEED_FORWARD.get(' '.join(map(str, words)))
  if not name:
    raise _refused(f'{scope} with activation = {activation!r}')
  return {
    'd_ff': layer.hidden_size,
    'feed_forward_proj': name,
    'use_bias': layer.use_bias,
  }


def _attention(
  model: models.ConfiguredModel, scope: str, layer: Any
) -> dict[str, Any]:
  """Returns the settings of an attention layer."""
  functions: list[Any] = [DotProduct()]
  if isinstance(layer, SyntheticLayer):
    functions = layer.synthesizers
    if layer.normalize is None:
      raise _refused(f'{scope} with {labels.label_of(layer)}')
    if layer.value_bias:
      raise _refused(f'{scope} with {type(layer).__name__}.value_bias')
    if layer.frozen:  # PyTorch would train its queries and keys
      raise _refused(f'{scope} with DotProduct.trainable = False')
  names = {type(function).__name__ for function in functions}
  names |= {type(_inner(function)).__name__ for function in functions}
  for name in sorted(names - {*_FUNCTIONS}):
    raise _refused(f'{scope} with the function {name}')
  _check_heads(scope, layer)
  shapes = {
    name.removeprefix(f'{scope}/'): shape.to_integer_list
    for name, shape in model.shapes.items()
    if name.startswith(f'{scope}/')
  }
  is_folded = layer.fold_scaling_into_initializer
  return {
    'synthesizers': [
      _function(shapes, name, function)
      for name, function in zip(scopes(functions), functions, strict=True)
    ],
    'batch_shared': names <= {*_TABLES},
    'num_heads': layer.num_heads,
    'd_kv': layer.key_value_size,
    'dropout_rate': layer.dropout_rate,
    'projections': [x for x in ('q', 'k', 'v', 'kv', 'o') if x in shapes],
    'query_scale': 1.0 if is_folded else layer.key_value_size**-0.5,
    'alpha_shape': shapes.get('alpha'),
    'relative_attention': layer.relative_attention_type,
  }


def _check_heads(scope: str, layer: Any) -> None:
  """Refuses heads and relative positions that T5 does not have."""
  relative = layer.relative_attention_type
  if relative == 'contextual' or (relative and 'EncDec' in scope):
    raise _refused(f'{scope} with relative_attention_type = {relative!r}')
  if layer.num_heads < 2:
    raise _refused(f'{scope} with num_heads = {layer.num_heads}')
  if layer.num_memory_heads not in (0, layer.num_heads):
    raise _refused(f'{scope} with num_memory_heads = {layer.num_memory_heads}')


def _inner(function: Any) -> Any:
  """Returns the function that gets a Bottleneck Dense's X, or the function."""
  return getattr(function, 'inner', function)


def _function(
  shapes: Mapping[str, list[int]], scope: str, function: Any
) -> dict[str, Any]:
  """Returns the settings of a function, given the shapes of its layer."""
  name = type(function).__name__
  settings: dict[str, Any] = {'function': name, 'scope': scope}
  if isinstance(function, DotProduct):
    return settings
  table = _inner(function)
  is_tiled = table.tile_length < table.memory_max_length
  settings |= {
    'max_length': table.max_length if name in _TABLES else None,
    'memory_max_length': table.memory_max_length,
    'tile_length': table.tile_length if is_tiled else None,
    'trainable': getattr(function, 'trainable', True),
    'parameters': {
      parameter.rpartition('/')[2]: shape
      for parameter, shape in shapes.items()
      if parameter.startswith(f'{scope}/')
    },
  }
  if name == 'Random':
    settings['stddev'] = function.stddev
    settings['uniform'] = function.uniform
  return settings


def _kind(layer: Any) -> str:
  """Returns the name of the layer's class in T5."""
  name = type(layer).__name__
  return name.replace('SyntheticEncDec', 'EncDec').replace('Synthetic', 'Self')


def _refused(what: str) -> UserError:
  return UserError(f"{what} cannot be exported to Hugging Face's T5")
