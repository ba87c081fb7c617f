"""Makes a checkpoint of a T5 of Hugging Face."""

import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import gin
import numpy as np
import tensorflow.compat.v1 as tf

from synth_mtf import atomic, json_files, paths
from synth_mtf.checkpoints import comparison, files, identity
from synth_mtf.errors import UserError
from synth_mtf.host import foreign, model as models
from synth_mtf.huggingface import extra, layout

# What shapes do not show, and what transformers assumes unless it is given.
_DEFAULTS = {
  'num_heads': 8,
  'd_kv': 64,
  'feed_forward_proj': 'relu',
  'vocab_size': 32128,
  'tie_word_embeddings': True,
  'layer_norm_epsilon': 1e-6,
  'relative_attention_max_distance': 128,
  'attention': {},
}
# Old files repeat the embedding, and have a variable that T5 does not use.
_COPIES = (
  'encoder.embed_tokens.weight',
  'decoder.embed_tokens.weight',
  'lm_head.weight',
)
_UNUSED = (
  'decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight'
)
_DTYPES = {
  'F64': np.float64,
  'F32': np.float32,
  'F16': np.float16,
  'BF16': tf.bfloat16.as_numpy_dtype,
}
# Mesh-TensorFlow pads vocabularies to multiples of this.
_ROWS = 128


def read_config(folder: str) -> dict[str, Any]:
  """Returns config.json; its `synth_mtf` is what `export` recorded, if any."""
  path = os.path.join(folder, layout.CONFIG)
  paths.check_entries(folder)
  text = foreign.read(path) or 'there is none'
  try:
    config = json.loads(text)
    recorded = {'gin': '', 'step': 0, **config.get('synth_mtf', {})}
    config['synth_mtf'] = {
      **recorded,
      'gin': str(recorded['gin']),
      'step': np.int64(recorded['step']),
    }
  except Exception as error:  # depends on what is there instead
    raise UserError(
      f'{path} is missing or damaged ({error}); expected a folder of '
      "Hugging Face's T5, with config.json and *.safetensors"
    ) from error
  return config


def load(folder: str, out: str) -> str:
  """Writes a checkpoint of the model that gin configures; returns its path.

  Args:
    folder: written by `export` or by `save_pretrained` of a T5.
    out: the folder to write; must not exist.
  """
  config = _complete(read_config(folder))
  weights = _weights(folder)
  _check_kind(folder, config, weights)
  with foreign.bounded():
    model = models.build(config['vocab_size'])
  faults = [
    *_different_settings(config, layout.config(model)),
    *_different_weights(weights, model),
  ]
  if faults:
    raise UserError(
      f'{folder} does not fit the model: {comparison.listed(faults)}. Give the '
      'gin files of its size and variant as --gin_file. To change the variant, '
      'use `synth-mtf checkpoint convert` afterwards.'
    )
  step = config['synth_mtf']['step']
  values: dict[str, Any] = {'global_step': step}
  for name, variable in model.variables.items():
    value = layout.weight_of(name, weights[layout.name_of(name)])
    dtype = variable.dtype.base_dtype.as_numpy_dtype
    values[name] = value.astype(dtype)
  with atomic.new_folder(out) as new:
    path = files.write(str(new), int(step), values)
    atomic.write(new / 'operative_config.gin', gin.operative_config_str())
    vocabulary = config['synth_mtf'].get('vocabulary')
    if vocabulary:
      json_files.write(new / identity.VOCABULARY, vocabulary)
    identity.record_model(model.transformer, str(new))
  return os.path.join(out, os.path.basename(path))


def _complete(config: Mapping[str, Any]) -> dict[str, Any]:
  """Returns a configuration with all settings, under T5's names."""
  complete = {**_DEFAULTS, **config}
  if 'feed_forward' in config:  # of our class
    complete['feed_forward_proj'] = config['feed_forward']
  # `tie_word_embeddings` is true of all that transformers saves.
  tied = complete['tie_word_embeddings']
  complete['tie_word_embeddings'] = complete.get('scale_decoder_outputs', tied)
  return complete


def _check_kind(
  folder: str, config: Mapping[str, Any], weights: Mapping[str, Any]
) -> None:
  """Raises a UserError if no gin file describes such a model."""
  if not any(name.startswith('decoder.') for name in weights):
    raise UserError(
      f'{folder} is an encoder alone (T5EncoderModel); expected an '
      'encoder-decoder, such as T5ForConditionalGeneration'
    )
  rows = config['vocab_size']
  if isinstance(rows, int) and rows % _ROWS:
    padded = rows + -rows % _ROWS
    raise UserError(
      f'{folder} has a vocabulary of {rows:,} rows, and Mesh-TensorFlow needs '
      f'a multiple of {_ROWS}. Add rows in transformers, with '
      f'model.resize_token_embeddings({padded}) and model.save_pretrained'
    )


def _different_settings(
  config: Mapping[str, Any], ours: Mapping[str, Any]
) -> list[str]:
  """Says which settings are not the model's."""
  ours = {**ours, 'relative_attention_max_distance': 128}
  different = []
  for name in _DEFAULTS:
    theirs, expected = config[name], ours[name]
    if name == 'attention':
      same = _computation(theirs) == _computation(expected)
    else:
      same = theirs == expected
    if not same:
      different.append(
        f'{name} is {theirs!r:.80} in it, {expected!r:.80} in the model'
      )
  return different


def _computation(attention: Any) -> Any:
  """Returns settings of attention without those of initial values."""
  if isinstance(attention, dict):
    return {
      name: _computation(value)
      for name, value in attention.items()
      if name != 'stddev'
    }
  if isinstance(attention, list):
    return [_computation(value) for value in attention]
  return attention


def _different_weights(
  weights: Mapping[str, Any], model: models.ConfiguredModel
) -> list[str]:
  """Says which weights are missing, of another shape, or too many."""
  missing, misshapen = [], []
  names = {name: layout.name_of(name) for name in model.variables}
  for name, theirs in names.items():
    if theirs not in weights:
      missing.append(f'it lacks {theirs} ({name})')
      continue
    shape = layout.weight_of(name, weights[theirs]).shape
    expected = model.variables[name].shape
    if [*shape] != expected.as_list():
      misshapen.append(f'{name} is {shape} in it, {expected} in the model')
  embedding = weights.get('shared.weight')
  extra_weights = []
  for theirs in weights.keys() - names.values():
    is_copy = (
      theirs in _COPIES
      and embedding is not None
      and np.array_equal(weights[theirs], embedding)
    )
    if theirs != _UNUSED and not is_copy:
      extra_weights.append(f'{theirs} is not in the model')
  return [*missing, *misshapen, *sorted(extra_weights)]


def _weights(folder: str) -> dict[str, Any]:
  """Reads all weights; NumPy's reader in safetensors lacks bfloat16."""
  weights = {}
  parts = sorted(pathlib.Path(folder).glob('*.safetensors'))
  if not parts:
    raise UserError(
      f'{folder} has no *.safetensors. Other files, such as pytorch_model.bin, '
      'run code when they are read: load them in transformers, and call '
      'save_pretrained'
    )
  for part in parts:
    try:
      for name, tensor in extra.safetensors().deserialize(part.read_bytes()):
        value = np.frombuffer(tensor['data'], _DTYPES[tensor['dtype']])
        weights[name] = value.reshape(tensor['shape'])
    except Exception as error:  # the library has its own
      raise UserError(f'{part} cannot be read: {error}') from error
  return weights
