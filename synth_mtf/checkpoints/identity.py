"""Records settings that checkpoints do not hold, and checks them in later runs.

`vocabulary.json`: the shape of the embedding reveals a vocabulary of another
size, but not a different vocabulary of the same size.

`model.json`: the rows of alpha follow the order of the synthesizing functions,
and `mixing`, `normalize` and `index_by` leave no trace in a checkpoint. A run
with other settings would therefore resume and compute something else.
"""

import json
import os
from collections.abc import Mapping
from typing import Any

import gin
from mesh_tensorflow.transformer import transformer, transformer_layers

from synth_mtf.checkpoints import comparison, files
from synth_mtf.checkpoints.folder import Folder
from synth_mtf.errors import UserError
from synth_mtf.host import model as models
from synth_mtf.host.run_config import FEATURES, both_sides
from synth_mtf.layer.synthetic import SyntheticLayer
from synth_mtf.storage import filesystem, json_files
from synth_mtf.synthesizers.base import description_of
from synth_mtf.tasks import vocabulary as vocabularies

VOCABULARY, MODEL = 'vocabulary.json', 'model.json'
_ADVICE = (
  'Set --vocabulary (SYNTH_MTF_VOCABULARY, '
  'synth_mtf.tasks.settings.vocabulary) to the one that the checkpoint was '
  'trained with; the operative_config.gin next to it may name it.'
)
# Layer settings that change the computation but no variable's shape.
_SETTINGS: tuple[tuple[type, tuple[str, ...]], ...] = (
  (SyntheticLayer, ('mixing', 'normalize', 'index_by')),
  (
    transformer_layers.SelfAttention,
    ('num_heads', 'relative_attention_type', 'fold_scaling_into_initializer'),
  ),
  (transformer_layers.Synthesizer, ('synthesize_mode',)),
  (transformer_layers.DenseReluDense, ('activation',)),
)


def record_vocabulary(vocabulary: Any, folder: Folder) -> None:
  """Writes `vocabulary.json`."""
  _write(folder, VOCABULARY, describe_vocabulary(vocabulary))


def recorded_vocabulary(model_dir: str) -> str | None:
  """Returns the SentencePiece path or the class of the inputs' vocabulary."""
  recorded = _read_vocabularies(model_dir)
  return recorded['inputs']['name'] if recorded else None


def copy_vocabulary(source: str, folder: str) -> None:
  """Copies the `vocabulary.json` of a folder, if it has one."""
  recorded = _read_vocabularies(source)
  if recorded:
    _write(Folder(folder), VOCABULARY, recorded)


def check_vocabulary(vocabulary: Any, checkpoint: str) -> None:
  """Raises a UserError if a checkpoint was trained with another vocabulary.

  `vocabulary` is a seqio vocabulary, or a pair of them for inputs and targets.
  """
  given = describe_vocabulary(vocabulary)
  # The host rounds the size up.
  divisor = gin.get_bindings(transformer.Unitransformer).get(
    'vocab_divisor', 128
  )
  expected = [-(-side['size'] // divisor) * divisor for side in given.values()]
  for name, rows in files.Checkpoint(checkpoint).embeddings.items():
    if rows not in expected:
      raise UserError(
        f'{name} of {checkpoint} has {rows} rows; the vocabulary '
        f'{_shown(given["inputs"])} needs {expected[0]}, the next multiple of '
        f'{divisor}. {_ADVICE}'
      )
  folder = os.path.dirname(checkpoint)
  recorded = _read_vocabularies(folder) or {}
  for side, known in recorded.items():
    if known['sha256'] != given[side]['sha256']:
      raise UserError(
        f'{checkpoint} was trained with the vocabulary {_shown(known)}, '
        f'according to {os.path.join(folder, VOCABULARY)}; this run has '
        f'{_shown(given[side])}, which has other pieces. {_ADVICE}'
      )


def _shown(vocabulary: Mapping[str, Any]) -> str:
  return f'{vocabulary["name"]!r} of {vocabulary["size"]} pieces'


def record_model(model: models.Transformer, folder: Folder) -> None:
  """Writes `model.json`, which groups layers that have the same settings."""
  groups: dict[str, dict[str, Any]] = {}
  for scope, settings in describe(model).items():
    group = groups.setdefault(repr(settings), {'layers': [], **settings})
    group['layers'].append(scope)
  _write(folder, MODEL, list(groups.values()))


def check_model(
  model: models.Transformer, checkpoint: str, starts: bool = False
) -> None:
  """Raises a UserError if a model would misread a checkpoint.

  A checkpoint in a folder without `model.json` passes. If the model only
  `starts` from the checkpoint, their variants may differ: only layers with the
  same functions are compared, and their `index_by` may differ.
  """
  folder = os.path.dirname(checkpoint)
  recorded = json_files.read(folder, MODEL, _by_scope) or {}
  faults = []
  for scope, settings in describe(model).items():
    trained_with = recorded.get(scope, {})
    if starts:
      functions = _sorted_functions(settings)
      if not functions or functions != _sorted_functions(trained_with):
        continue
      del settings['index_by']
    for name, value in settings.items():
      before = trained_with.get(name, value)
      if before != value:
        faults.append(
          f'{name} is {before!r} in the checkpoint, {value!r} in the model '
          f'({scope})'
        )
  if faults:
    raise UserError(
      f'the checkpoint {checkpoint} was made by another model of the same '
      f'shapes: {comparison.listed(faults)}, according to '
      f'{os.path.join(folder, MODEL)}. Use the settings it was trained with, '
      'or make a checkpoint for this model with `synth-mtf checkpoint convert`.'
    )


def describe(model: models.Transformer) -> dict[str, dict[str, Any]]:
  """Returns the settings of each layer of a model, by its scope."""
  layers = {}
  for scope, layer in models.layers(model):
    settings = _settings(layer)
    if settings:
      layers[scope] = settings
  # As in `model.json`, which stores functions by name.
  return json.loads(json.dumps(layers, default=_name_of))


def _settings(layer: transformer.TransformerLayer) -> dict[str, Any]:
  settings: dict[str, Any] = {}
  if isinstance(layer, SyntheticLayer):
    settings['synthesizers'] = [description_of(f) for f in layer.synthesizers]
  for layer_class, names in _SETTINGS:
    if isinstance(layer, layer_class):
      for name in names:
        settings[name] = getattr(layer, name)
  if len(settings.get('synthesizers', [])) == 1:
    del settings['mixing']  # one function is not mixed
  return settings


def _name_of(value: Any) -> str:
  """Returns the name of a function or a class, or else of the value's class."""
  return getattr(value, '__name__', type(value).__name__)


def _by_scope(groups: Any) -> dict[str, dict[str, Any]]:
  """Returns the settings of each layer, as read from `model.json`."""
  layers = {}
  for group in groups:
    _sorted_functions(group)  # raises an error if the file is damaged
    for scope in group['layers']:
      layers[scope] = group
  return layers


def _sorted_functions(settings: dict[str, Any]) -> list[str]:
  return sorted(settings.get('synthesizers', []))


def _read_vocabularies(folder: str) -> Any:
  """Returns the recorded name, size and digest of each side's vocabulary."""

  def read(record: Any) -> Any:
    return {
      side: {key: str(record[side][key]) for key in ('name', 'size', 'sha256')}
      for side in FEATURES
    }

  return json_files.read(folder, VOCABULARY, read)


def describe_vocabulary(vocabulary: Any) -> dict[str, dict[str, Any]]:
  """Returns name, size and digest of the inputs' and targets' vocabularies."""
  return {
    side: vocabularies.describe(known)
    for side, known in zip(FEATURES, both_sides(vocabulary), strict=True)
  }


def _write(folder: Folder, file: str, content: Any) -> None:
  """Writes JSON, unless the file already describes the folder's checkpoints."""
  path = os.path.join(folder.path, file)
  # A record without checkpoints is left over from a run that never saved any.
  if not filesystem.exists(path) or not folder.checkpoints:
    json_files.write(path, content)
