"""Makes a checkpoint of a T5 of Hugging Face."""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import gin
import numpy as np
import numpy.typing as npt

from synth_mtf import paths
from synth_mtf.checkpoints import comparison, files, identity
from synth_mtf.checkpoints.folder import Folder
from synth_mtf.errors import UserError
from synth_mtf.host import foreign, model as models
from synth_mtf.huggingface import config_file, layout, stored
from synth_mtf.storage import atomic, json_files

# Old files repeat the embedding, and have a variable that T5 does not use.
_EMBEDDING, _HEAD = 'shared.weight', 'lm_head.weight'
_COPIES = (
  'encoder.embed_tokens.weight',
  'decoder.embed_tokens.weight',
  _HEAD,
)
_UNUSED = (
  'decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight'
)
# Mesh-TensorFlow pads vocabularies to multiples of this.
_ROWS = 128

Array = npt.NDArray[Any]
Named = TypeVar('Named')


def load(folder: str, out: str) -> str:
  """Writes a checkpoint of the model that gin configures; returns its path.

  Args:
    folder: written by `export` or by `save_pretrained` of a T5.
    out: the folder to write; must not exist.
  """
  config = config_file.ConfigFile.read(folder)
  settings = config.settings
  weights = stored.Weights(folder)
  shapes = _with_head(weights.shapes, config)
  _check_kind(folder, settings, shapes)
  with foreign.bounded():
    model = models.build(settings['vocab_size'])
  _require_none(
    folder,
    [
      *_different_settings(settings, layout.config(model)),
      *_different_shapes(shapes, model),
    ],
  )
  theirs = _with_head(weights.read(), config)
  _require_none(folder, _different_copies(theirs, model))
  values = _converted(folder, theirs, model)
  values['global_step'] = np.int64(config.step)
  with atomic.new_folder(out) as new:
    path = files.write(str(new), config.step, values)
    atomic.write(new / paths.OPERATIVE_CONFIG, gin.operative_config_str())
    if config.vocabulary:
      json_files.write(new / identity.VOCABULARY, config.vocabulary)
    identity.record_model(model.transformer, Folder(str(new)))
  return os.path.join(out, os.path.basename(path))


def _with_head(
  weights: Mapping[str, Named], config: config_file.ConfigFile
) -> dict[str, Named]:
  """Returns weights, or their shapes, with those of the logits.

  transformers 5 ties them to the embedding in every model that it makes, also
  in T5 1.1 and mT5, and writes no copy.
  """
  complete = dict(weights)
  if config.head_is_tied and _EMBEDDING in weights:
    complete.setdefault(_HEAD, weights[_EMBEDDING])
  return complete


def _require_none(folder: str, faults: Sequence[str]) -> None:
  """Raises a UserError if a folder has another model than gin."""
  if faults:
    raise UserError(
      f'{folder} does not fit the model: {comparison.listed(faults)}. Give the '
      'gin files of its size and variant as --gin_file. To change the variant, '
      'use `synth-mtf checkpoint convert` afterwards.'
    )


def _check_kind(
  folder: str, config: Mapping[str, Any], names: Collection[str]
) -> None:
  """Raises a UserError if no gin file describes such a model."""
  if not any(name.startswith('decoder.') for name in names):
    raise UserError(
      f'{folder} has only an encoder (T5EncoderModel); expected an '
      'encoder-decoder, such as T5ForConditionalGeneration'
    )
  if config.get('is_encoder_decoder') is False:
    raise UserError(
      f'{folder}: {config_file.CONFIG} has is_encoder_decoder = False, but the '
      'folder has weights of a decoder; set it to what the model is'
    )
  rows = config['vocab_size']
  if type(rows) is not int or rows < 1:
    raise UserError(
      f'{folder}: vocab_size is {rows!r:.80}; expected a number of rows'
    )
  if rows % _ROWS:
    padded = rows + -rows % _ROWS
    raise UserError(
      f'{folder} has a vocabulary of {rows:,} rows, and Mesh-TensorFlow needs '
      f'a multiple of {_ROWS}. Add rows in transformers, with '
      f'model.resize_token_embeddings({padded}) and model.save_pretrained'
    )


def _different_settings(
  theirs: Mapping[str, Any], ours: Mapping[str, Any]
) -> list[str]:
  """Says which settings are not the model's.

  Dropout is not among them: it does not change what a trained model computes,
  and is the gin files' to choose.
  """
  ours = {
    **ours,
    'feed_forward_proj': config_file.activation(ours['feed_forward_proj']),
    'relative_attention_max_distance': 128,
  }
  different = []
  for name in sorted(ours.keys() - {'dropout_rate'}):
    given = dict(_leaves(name, theirs[name]))
    expected = dict(_leaves(name, ours[name]))
    for leaf in sorted(given.keys() | expected.keys()):
      if given.get(leaf) != expected.get(leaf):
        different.append(
          f'{leaf} is {given.get(leaf)!r:.80} in it, '
          f'{expected.get(leaf)!r:.80} in the model'
        )
  return different


def _leaves(name: str, setting: Any) -> Iterator[tuple[str, Any]]:
  """Yields the values in a setting by name, without those of initial values."""
  if isinstance(setting, dict):
    for key in sorted(setting.keys() - {'stddev', 'uniform'}):
      yield from _leaves(f'{name}.{key}', setting[key])
  elif isinstance(setting, list):
    for index, value in enumerate(setting):
      yield from _leaves(f'{name}[{index}]', value)
  else:
    yield name, setting


def _different_shapes(
  shapes: Mapping[str, tuple[int, ...]], model: models.ConfiguredModel
) -> list[str]:
  """Says which weights are missing, of another shape, or too many."""
  missing, misshapen = [], []
  names = {name: layout.name_of(name) for name in model.variables}
  for name, theirs in names.items():
    if theirs not in shapes:
      missing.append(f'it lacks {theirs} ({name})')
      continue
    shape = layout.shape_of(name, shapes[theirs])
    expected = model.variables[name].shape
    if [*shape] != expected.as_list():
      misshapen.append(f'{name} is {shape} in it, {expected} in the model')
  known = {*names.values(), _UNUSED}
  if _EMBEDDING in shapes:
    for copy in _COPIES:
      if shapes.get(copy) == shapes[_EMBEDDING]:
        known.add(copy)
  unknown = sorted(shapes.keys() - known)
  return [
    *missing,
    *misshapen,
    *(f'{theirs} is not in the model' for theirs in unknown),
  ]


def _different_copies(
  weights: Mapping[str, Array], model: models.ConfiguredModel
) -> list[str]:
  """Says which copies of the embedding have other values."""
  used = {layout.name_of(name) for name in model.variables}
  faults = []
  for copy in _COPIES:
    if copy in used or copy not in weights:
      continue
    if not np.array_equal(weights[copy], weights[_EMBEDDING]):
      faults.append(f'{copy} is not in the model, and is not {_EMBEDDING}')
  return faults


def _converted(
  folder: str, weights: Mapping[str, Array], model: models.ConfiguredModel
) -> dict[str, Any]:
  """Returns the values of the model's variables.

  Raises:
    UserError: if one is NaN or infinite, as after an overflow in float16.
  """
  values: dict[str, Any] = {}
  for name, variable in model.variables.items():
    theirs = layout.name_of(name)
    value = layout.weight_of(name, weights[theirs])
    broken = int(np.sum(~np.isfinite(value)))
    if broken:
      raise UserError(
        f'{folder}: {broken:,} of {value.size:,} values of {theirs} are NaN or '
        'infinite, as after an overflow in float16: export the model again, '
        'from its weights in float32'
      )
    values[name] = value.astype(variable.dtype.base_dtype.as_numpy_dtype)
  return values
