"""Converts checkpoints to mesh_tensorflow's own Synthesizer.

`ReplacingLayerStack` has the same parameters in our layer. A checkpoint is
therefore converted to a model with that stack, and its variables are renamed
here. The other direction is in `attention_layers`.
"""

from collections.abc import Mapping

from mesh_tensorflow.transformer import transformer_layers

from synth_mtf.checkpoints import names
from synth_mtf.checkpoints.attention_layers import Array
from synth_mtf.host.model import ConfiguredModel

_ORIGINAL, _OURS = 'Synthesizer', 'SyntheticAttention'
# Puts our layer in the place of the original, and reads tables as it does.
GIN_FILE = 'common/replace_synthesizer.gin'
BINDING = "SyntheticAttention.index_by = 'row'"


def is_in(model: ConfiguredModel) -> bool:
  """Whether a model has the original layer."""
  layers = model.attention.values()
  return any(isinstance(x, transformer_layers.Synthesizer) for x in layers)


def renamed(
  values: Mapping[str, Array], target: ConfiguredModel
) -> dict[str, Array]:
  """Renames the contents of a checkpoint of the model with our layers.

  R becomes [length, heads, memory_length], and its slots are left out.

  Args:
    values: by name.
    target: the same model with the original layers.
  """
  ours = {_name_of_ours(name): name for name in target.variables}
  contents = {}
  for name, value in values.items():
    owner = names.slot_owner(name)
    weight = ours.get(owner or name, '')
    is_r = weight.endswith(f'/{_ORIGINAL}/R')
    if not weight:
      contents[name] = value
    elif not owner:
      is_per_head = is_r and value.ndim > 2
      contents[weight] = value.swapaxes(0, 1) if is_per_head else value
    elif not is_r:
      contents[weight + name.removeprefix(owner)] = value
  return contents


def _name_of_ours(name: str) -> str:
  """Returns what a variable of the original is called in our layer."""
  place, layer, rest = names.split(name)
  if layer != _ORIGINAL:
    return name
  return f'{place}/{_OURS}/{names.OF_ORIGINAL.get(rest, rest)}'
