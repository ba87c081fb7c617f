"""What a model's layers compute where no variable's shape tells it.

The rows of alpha follow the order of the synthesizing functions, and `mixing`,
`normalize` and `index_by` leave no trace in a checkpoint: a run with others
would resume from it without complaint and compute something else. `model.json`,
written beside the checkpoints when training starts, tells.
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
# How a table is read in packed rows: a run may start from weights and read them
# in another way, but not go on in it.
_FREE_AT_START = ('index_by',)

Layer = Mapping[str, Any]


def describe(model: models.Transformer) -> dict[str, dict[str, Any]]:
  """Returns what each layer of a model computes, by its scope."""
  return {
    scope: meaning
    for scope, layer in models.layers(model)
    if (meaning := _meaning(layer))
  }


def record(model: models.Transformer, model_dir: str) -> None:
  """Writes `model.json` into a model folder."""
  layers: dict[str, list[str]] = collections.defaultdict(list)
  meanings = {}
  for scope, meaning in describe(model).items():
    layers[repr(meaning)].append(scope)
    meanings[repr(meaning)] = meaning
  content = [{'layers': layers[key], **meanings[key]} for key in meanings]
  records.write(model_dir, FILE, content)


def check_resumed(model: models.Transformer, checkpoint: str) -> None:
  """Checks that a model computes what a checkpoint of it was trained for.

  Args:
    model: of the run.
    checkpoint: that the run goes on from or measures; one of a folder without
      `model.json` passes.

  Raises:
    UserError: a layer computes something else.
  """
  _check(model, checkpoint, _differences)


def check_started(model: models.Transformer, checkpoint: str) -> None:
  """Checks that a model understands the weights that it starts from.

  Another variant may start from a checkpoint: what counts are layers that have
  the same functions.

  Args:
    model: of the run.
    checkpoint: its `init_checkpoint`.

  Raises:
    UserError: a layer has the same functions, but would mix or order them in
      another way.
  """
  _check(model, checkpoint, _differences_of_same_functions)


def _check(
  model: models.Transformer,
  checkpoint: str,
  compare: Callable[[Layer, Layer], list[str]],
) -> None:
  folder = os.path.dirname(checkpoint)
  there = _read(folder)
  faults: dict[str, list[str]] = collections.defaultdict(list)
  for scope, layer in describe(model).items():
    for difference in compare(layer, there.get(scope, layer)):
      faults[difference].append(scope)
  if not faults:
    return
  shown = '; '.join(
    f'{difference} ({scopes[0]}'
    + (f' and {len(scopes) - 1} more)' if len(scopes) > 1 else ')')
    for difference, scopes in faults.items()
  )
  raise UserError(
    f'the checkpoint {checkpoint} was made by another model of the same '
    f'shapes: {shown}. {os.path.join(folder, FILE)} tells them apart. Use what '
    'it was trained with, or `synth-mtf checkpoint convert` to make one for '
    'this model.'
  )


def _meaning(layer: transformer.TransformerLayer) -> dict[str, Any]:
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
  """A setting as JSON gives it back."""
  if isinstance(value, (list, tuple)):
    return [_plain(item) for item in value]
  is_plain = value is None or isinstance(value, (bool, int, float, str))
  return value if is_plain else getattr(value, '__name__', type(value).__name__)


def _read(folder: str) -> dict[str, Layer]:
  what = 'the model'
  content = records.read(folder, FILE, what)
  try:
    return {
      scope: {name: value for name, value in group.items() if name != 'layers'}
      for group in content or []
      for scope in group['layers']
    }
  except (KeyError, TypeError, AttributeError) as error:
    raise records.damaged(os.path.join(folder, FILE), what, error) from error


def _differences(here: Layer, there: Layer) -> list[str]:
  return [
    f'{name} is {there[name]!r} in the checkpoint, {here[name]!r} in the model'
    for name in here
    if name in there and here[name] != there[name]
  ]


def _differences_of_same_functions(here: Layer, there: Layer) -> list[str]:
  functions = [sorted(layer.get('synthesizers', [])) for layer in (here, there)]
  if not functions[0] or functions[0] != functions[1]:
    return []
  kept = {n: v for n, v in here.items() if n not in _FREE_AT_START}
  return _differences(kept, there)
