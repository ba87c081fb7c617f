"""Checks what layers compute where the shapes of variables do not show it.

The rows of alpha follow the order of the synthesizing functions, and `mixing`,
`normalize` and `index_by` leave no trace in a checkpoint: a run with other
settings would resume from it without complaint and compute something else.
`model.json`, written beside the checkpoints when training starts, records them.
"""

import collections
import json
import os
from typing import Any

from mesh_tensorflow.transformer import transformer, transformer_layers

from synth_mtf.checkpoints import folder as folders
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
  folders.write_record(model_dir, FILE, list(groups.values()))


def check(
  model: models.Transformer, checkpoint: str, starts: bool = False
) -> None:
  """Refuses (UserError) a checkpoint that a model would misread.

  A checkpoint of a folder without `model.json` passes. If the model only starts
  from it, it may be another variant's: layers of the same functions must mix
  and order them alike, and may read their tables by another index in packed
  rows.
  """
  folder = os.path.dirname(checkpoint)
  groups = folders.read_record(folder, FILE) or []
  there = {scope: group for group in groups for scope in group['layers']}
  found: dict[str, list[str]] = collections.defaultdict(list)
  for scope, here in describe(model).items():
    known = there.get(scope, {})
    if starts:
      functions = [sorted(x.get('synthesizers', [])) for x in (here, known)]
      if not functions[0] or functions[0] != functions[1]:
        continue
      del here['index_by']
    for name in here:
      if name in known and here[name] != known[name]:
        found[
          f'{name} is {known[name]!r} in the checkpoint, {here[name]!r} in the '
          'model'
        ].append(scope)
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
      found.update({name: getattr(layer, name) for name in names})
  if len(found.get('synthesizers', [])) == 1:
    del found['mixing']  # one function is not mixed
  # As `model.json` holds them: a function by its name.
  text = json.dumps(
    found, default=lambda x: getattr(x, '__name__', type(x).__name__)
  )
  return json.loads(text)
