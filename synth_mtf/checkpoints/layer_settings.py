"""Checks what layers compute where the shapes of variables do not show it.

The rows of alpha follow the order of the synthesizing functions, and `mixing`,
`normalize` and `index_by` leave no trace in a checkpoint: a run with other
settings would resume from it without complaint and compute something else.
`model.json`, written beside the checkpoints when training starts, records them.
"""

import collections
import os
from collections.abc import Callable, Mapping
from typing import Any

from mesh_tensorflow.transformer import transformer, transformer_layers

from synth_mtf.checkpoints import records
from synth_mtf.errors import UserError
from synth_mtf.host import model as models
from synth_mtf.layer.synthetic import SyntheticLayer
from synth_mtf.synthesizers.base import described

FILE = 'model.json'
# Settings of layers that change what they compute, but no variable's shape.
_SETTINGS: tuple[tuple[type, tuple[str, ...]], ...] = (
  (SyntheticLayer, ('mixing', 'normalize', 'index_by')),
  (
    transformer_layers.SelfAttention,
    ('relative_attention_type', 'fold_scaling_into_initializer'),
  ),
  (transformer_layers.Synthesizer, ('synthesize_mode',)),
  (transformer_layers.DenseReluDense, ('activation',)),
)

Layer = Mapping[str, Any]


def describe(model: models.Transformer) -> dict[str, dict[str, Any]]:
  """Returns the settings of each layer of a model, by its scope."""
  return {
    scope: settings
    for scope, layer in models.layers(model)
    if (settings := _settings(layer))
  }


def record(model: models.Transformer, model_dir: str) -> None:
  """Writes `model.json` into a model folder."""
  groups: dict[str, dict[str, Any]] = {}
  for scope, settings in describe(model).items():
    group = groups.setdefault(repr(settings), {'layers': [], **settings})
    group['layers'].append(scope)
  records.write(model_dir, FILE, list(groups.values()))


def check_resumed(model: models.Transformer, checkpoint: str) -> None:
  """Refuses (UserError) a checkpoint that was trained to compute another thing.

  A checkpoint of a folder without `model.json` passes.
  """
  _check(model, checkpoint, _differences)


def check_started(model: models.Transformer, checkpoint: str) -> None:
  """Refuses (UserError) an `init_checkpoint` that a model would misread.

  Another variant may start from a checkpoint: only layers of the same functions
  are compared, which must mix and order them alike. They may read their tables
  by another index in packed rows.
  """

  def differences(here: Layer, there: Layer) -> list[str]:
    ours, theirs = (
      sorted(layer.get('synthesizers', [])) for layer in (here, there)
    )
    if not ours or ours != theirs:
      return []
    return _differences({**here, 'index_by': there.get('index_by')}, there)

  _check(model, checkpoint, differences)


def _check(
  model: models.Transformer,
  checkpoint: str,
  differences: Callable[[Layer, Layer], list[str]],
) -> None:
  folder = os.path.dirname(checkpoint)
  there = records.read(folder, FILE, 'the model', _by_layer)
  found: dict[str, list[str]] = collections.defaultdict(list)
  for scope, layer in describe(model).items():
    for difference in differences(layer, there.get(scope, layer)):
      found[difference].append(scope)
  if found:
    shown = '; '.join(
      f'{difference} ({scopes[0]}'
      + (f' and {len(scopes) - 1} more)' if len(scopes) > 1 else ')')
      for difference, scopes in found.items()
    )
    raise UserError(
      f'the checkpoint {checkpoint} was made by another model of the same '
      f'shapes: {shown}, according to {os.path.join(folder, FILE)}. Use the '
      'settings it was trained with, or make a checkpoint for this model with '
      '`synth-mtf checkpoint convert`.'
    )


def _settings(layer: transformer.TransformerLayer) -> dict[str, Any]:
  found: dict[str, Any] = {}
  if isinstance(layer, SyntheticLayer):
    found['synthesizers'] = [described(f) for f in layer.synthesizers]
  for kind, names in _SETTINGS:
    if isinstance(layer, kind):
      found.update({name: _plain(getattr(layer, name)) for name in names})
  if len(found.get('synthesizers', [])) == 1:
    del found['mixing']  # one function is not mixed
  return found


def _plain(value: Any) -> Any:
  """A setting as JSON returns it."""
  if isinstance(value, (list, tuple)):
    return [_plain(item) for item in value]
  is_plain = value is None or isinstance(value, (bool, int, float, str))
  return value if is_plain else getattr(value, '__name__', type(value).__name__)


def _by_layer(content: Any) -> dict[str, Layer]:
  return {
    scope: {name: value for name, value in group.items() if name != 'layers'}
    for group in content
    for scope in group['layers']
  }


def _differences(here: Layer, there: Layer) -> list[str]:
  return [
    f'{name} is {there[name]!r} in the checkpoint, {here[name]!r} in the model'
    for name in here
    if name in there and here[name] != there[name]
  ]
