"""Rejects settings that our layers do not support."""

from collections.abc import Collection
from typing import Any

import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer, transformer_layers

from synth_mtf.core.context import rows_are_packed
from synth_mtf.core.dimensions import parts
from synth_mtf.errors import ConfigurationError, nearest

_UNSUPPORTED = (
  'attention_func',
  'keep_query_heads_dims',
  'use_hyperprompt',
  'hyperprompt_length_encoder',
  'hyperprompt_length_decoder',
)
_ATTENTION_KWARGS = {'dropout_broadcast_dims', 'float32_logits'}


def check_option(
  owner: str, argument: str, value: Any, options: Collection[Any]
) -> None:
  """Rejects a value that is not an option and suggests the nearest one."""
  if value not in options:
    raise ConfigurationError(
      f'{owner}.{argument} = {value!r}: expected one of {list(options)}'
      + nearest(value, options)
    )


def check_settings(
  layer: transformer_layers.SelfAttention,
  relative_attention_types: Collection[str | None],
) -> None:
  """Rejects settings of SelfAttention that our layers do not support."""
  owner = type(layer).__name__
  unknown = sorted(set(layer.attention_kwargs) - _ATTENTION_KWARGS)
  faults = [f'attention_kwargs[{name!r}]' for name in unknown]
  for name in _UNSUPPORTED:
    value = getattr(layer, name)
    if value:
      faults.append(f'{name} = {value!r}')
  if faults:
    raise ConfigurationError(
      f'{owner} does not support SelfAttention.'
      + ', SelfAttention.'.join(faults)
      + '; remove the binding'
    )
  heads, memory_heads = layer.num_heads, layer.num_memory_heads
  if heads < 1 or memory_heads < 0 or (memory_heads and heads % memory_heads):
    raise ConfigurationError(
      f'SelfAttention.num_heads = {heads}, SelfAttention.num_memory_heads = '
      f'{memory_heads}: expected at least one head, and 0 or a divisor of '
      'num_heads as num_memory_heads'
    )
  check_option(
    owner,
    'relative_attention_type',
    layer.relative_attention_type,
    relative_attention_types,
  )


def check_types(
  layer: transformer_layers.SelfAttention, context: transformer.Context
) -> None:
  """Rejects float16, whose largest number exponentials soon exceed."""
  if context.activation_dtype == tf.float16:
    raise ConfigurationError(
      "utils.get_variable_dtype.activation_dtype = 'float16': "
      f"{type(layer).__name__} needs the range of 'bfloat16' or 'float32'; set "
      'one of these'
    )


def check_unpacked(
  owner: str, context: transformer.Context, data_packed: bool
) -> None:
  """Rejects packed rows for a layer that mixes all tokens of a row."""
  if rows_are_packed(context, data_packed):
    raise ConfigurationError(
      f'{owner} would mix the sequences of a packed row; set '
      'mesh_train_dataset_fn.pack = False and mesh_eval_dataset_fn.pack = False'
    )


def check_projections(layer: Any) -> None:
  """Rejects settings of keys or values alone, if both are one projection."""
  if not layer.shared_kv:
    return
  if layer.value_bias:
    setting = f'{type(layer).__name__}.value_bias'
  elif layer.frozen:
    setting = 'DotProduct.trainable = False'
  else:
    return
  raise ConfigurationError(
    f'{setting} needs separate keys and values; remove SelfAttention.shared_kv'
  )


def check_mesh(
  layer: transformer_layers.SelfAttention, model: transformer.Unitransformer
) -> None:
  """Rejects a mesh that splits the channels of a head."""
  if parts(layer.kv_dim, model) > 1:
    raise ConfigurationError(
      f'utils.run.layout_rules split {layer.kv_dim.name}, which '
      f'{type(layer).__name__} cannot; split heads instead (heads:model)'
    )
