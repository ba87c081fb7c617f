"""How Hugging Face's T5 names a model's settings and weights."""

import json
import re
from collections.abc import Iterator, Mapping
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

# The functions of modeling_synthesizer.py. Logits of the first two do not
# depend on the tokens.
_FUNCTIONS = (
  'Random',
  'FactorizedRandom',
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
# T5's relative position bias by kind of attention, and its other settings.
_T5_BIAS = {'encoder': 'bias_shared', 'decoder': 'bias_shared', 'cross': None}
_T5 = {
  'synthesizers': [{'function': 'DotProduct', 'scope': 'dot_product'}],
  'projections': ['q', 'k', 'v', 'o'],
  'query_scale': 1.0,
  'alpha_shape': None,
  'batch_shared': False,
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
  for pattern, there in _RENAMES:
    variable = re.sub(pattern, there, variable)
  return variable.replace('/', '.')


def weight_of(variable: str, value: Array) -> Array:
  """Converts a variable's value to that of its counterpart, or back."""
  if _PROJECTION.search(variable):
    value = value.T
  return np.ascontiguousarray(value, np.float32)


def config(model: models.ConfiguredModel) -> dict[str, Any]:
  """Returns the model's settings for transformers.

  `attention` has those of each kind that is not T5's own.

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
  for name, variable in model.variables.items():
    if not name_of(name) or (
      _PROJECTION.search(name) and variable.shape.ndims > 2
    ):
      raise _refused(f'the variable {name}, {variable.shape.as_list()},')
  attention = {kind: found.pop(kind) for kind in _T5_BIAS}
  found |= {name: attention['encoder'][name] for name in ('num_heads', 'd_kv')}
  usual = {name: found[name] for name in ('num_heads', 'd_kv', 'dropout_rate')}
  found['attention'] = {
    kind: settings
    for kind, settings in attention.items()
    if settings != {**_T5, **usual, 'relative_attention': _T5_BIAS[kind]}
  }
  return json.loads(json.dumps(found))  # tuples become lists


def is_plain(settings: Mapping[str, Any]) -> bool:
  """Whether `transformers`' own T5 has these settings."""
  names = ('attention', 'positions', 'use_bias', 'true_layer_norm')
  return not any(settings[name] for name in names)


def _settings(
  model: models.ConfiguredModel,
) -> Iterator[tuple[str, dict[str, Any]]]:
  """Yields the settings of each layer and stack, with its name."""
  pair = model.transformer
  for scope, layer in models.layers(pair):
    kind = _kind(type(layer).__name__)
    if kind not in _BLOCKS['decoder']:
      raise _refused(f'{labels.label_of(layer)} ({scope})')
    if kind == 'DenseReluDense':
      yield scope, _feed_forward(scope, layer)
    else:
      yield scope, _attention(model, scope, layer)
  stacks = pair.encoder, pair.decoder
  for stack in stacks:
    yield stack.name, _stack(stack)
  yield (
    pair.decoder.name,
    {
      'tie_word_embeddings': pair.decoder.shared_embedding_and_softmax_weights,
      'positions': {
        stack.name: stack.max_length_dim.size
        for stack in stacks
        if stack.positional_embedding
      },
      'shared_positions': 'shared/positional_embedding' in model.shapes,
    },
  )


def _stack(stack: transformer.Unitransformer) -> dict[str, Any]:
  own, block = stack.layer_stack, _BLOCKS[stack.name]
  count = len(own.layers) // len(block)
  sublayers = models.sublayers(stack) if type(own).__name__ in _STACKS else ''
  scaled = 'scale_variable_like_classifier_weights'
  _refuse(
    stack.name,
    {
      type(own).__name__: type(own).__name__ not in _STACKS,
      'layers in another order': count * block
      != [_kind(type(layer).__name__) for layer in own.layers],
      f'the sublayers `{sublayers}`': not _SUBLAYERS.fullmatch(sublayers),
      'sinusoids': stack.sinusoid_positional_embedding,
      'an ensemble': stack.ensemble_dim,
      scaled: gin.get_bindings(transformer.VocabEmbedding).get(scaled),
      'unit scaling': mtf.layers.unit_scaling_convention(),
    },
  )
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
  activation = layer.activation
  words = activation if isinstance(activation, list) else [activation]
  name = _FEED_FORWARD.get(' '.join(map(str, words)))
  _refuse(scope, {f'activation = {activation!r}': not name})
  return {
    'd_ff': layer.hidden_size,
    'feed_forward_proj': name,
    'use_bias': layer.use_bias,
  }


def _attention(
  model: models.ConfiguredModel, scope: str, layer: Any
) -> dict[str, Any]:
  is_ours = isinstance(layer, SyntheticLayer)
  functions = layer.synthesizers if is_ours else [DotProduct()]
  names = [
    type(one).__name__
    for function in functions
    for one in (function, getattr(function, 'inner', function))
  ]
  relative, cross = layer.relative_attention_type, 'EncDec' in scope
  heads, memory_heads = layer.num_heads, layer.num_memory_heads
  _refuse(
    scope,
    {
      labels.label_of(layer): is_ours and layer.normalize is None,
      f'relative_attention_type = {relative!r}': relative
      and (cross or relative == 'contextual'),
      f'num_heads = {heads}': heads < 2,
      f'num_memory_heads = {memory_heads}': memory_heads not in (0, heads),
      **{f'the function {name}': name not in _FUNCTIONS for name in names},
    },
  )
  shapes = {
    name[len(scope) + 1 :]: shape.to_integer_list
    for name, shape in model.shapes.items()
    if name.startswith(f'{scope}/')
  }
  settings = {
    'synthesizers': [
      _function(shapes, name, function)
      for name, function in zip(scopes(functions), functions, strict=True)
    ],
    'batch_shared': {*names} <= {*_FUNCTIONS[:2]},
    'num_heads': heads,
    'd_kv': layer.key_value_size,
    'dropout_rate': layer.dropout_rate,
    'projections': [x for x in ('q', 'k', 'v', 'kv', 'o') if x in shapes],
    'query_scale': 1.0
    if layer.fold_scaling_into_initializer
    else layer.key_value_size**-0.5,
    'alpha_shape': shapes.get('alpha'),
    'relative_attention': relative,
  }
  found: dict[str, Any] = {'cross' if cross else scope.split('/')[0]: settings}
  if relative:
    buckets = layer.relative_attention_num_buckets
    found['relative_attention_num_buckets'] = buckets
  return found


def _function(
  shapes: Mapping[str, list[int]], scope: str, function: Any
) -> dict[str, Any]:
  """Returns the settings of a function, given the shapes of its layer."""
  found = {'function': type(function).__name__, 'scope': scope}
  if isinstance(function, DotProduct):
    return found
  table = getattr(function, 'inner', function)
  is_table = found['function'] in _FUNCTIONS[:2]
  return {
    **found,
    'max_length': table.max_length if is_table else None,
    'memory_max_length': table.memory_max_length,
    'tile_length': table.tile_length
    if table.tile_length < table.memory_max_length
    else None,
    'trainable': getattr(function, 'trainable', True),
    'parameters': {
      name.rpartition('/')[2]: shape
      for name, shape in shapes.items()
      if name.startswith(f'{scope}/')
    },
  }


def _kind(layer: str) -> str:
  """Returns the name of the layer's class in T5."""
  return layer.replace('SyntheticEncDec', 'EncDec').replace('Synthetic', 'Self')


def _refuse(where: str, faults: Mapping[str, Any]) -> None:
  """Raises a UserError if one of the faults is there."""
  for fault, is_there in faults.items():
    if is_there:
      raise _refused(f'{where} with {fault}')


def _refused(what: str) -> UserError:
  return UserError(f"{what} cannot be exported to Hugging Face's T5")
