"""What the host's Context says of a call, and what it keeps for a stack."""

from collections.abc import Callable
from typing import Any, Optional

import gin
import mesh_tensorflow as mtf
from mesh_tensorflow.transformer import transformer


def cached(
  context: transformer.Context, name: str, make: Callable[[], mtf.Tensor]
) -> mtf.Tensor:
  """What `make` returns, made once for all layers of a stack.

  Layers that are recomputed for their gradients have nothing to share.
  """
  if recomputes_layers(context):
    return make()
  key = ('synth_mtf', name)
  if key not in context.cache:
    context.cache[key] = make()
  return context.cache[key]


def recomputes_layers(context: transformer.Context) -> bool:
  """Whether the host computes each layer once more for its gradient."""
  stack = getattr(context.model, 'layer_stack', None)
  return isinstance(stack, transformer.ReversibleLayerStack) or getattr(
    stack, '_recompute_grads', False
  )


def row_sequence_id(context: transformer.Context) -> Optional[mtf.Tensor]:
  """The segment id of each token, [batch..., length], where there are any."""
  for ids in (context.subsequence_id, context.sequence_id):
    if isinstance(ids, mtf.Tensor) and context.length_dim in ids.shape.dims:
      return ids
  return None


def data_is_packed() -> bool:
  """Whether gin packs the data of training or evaluation.

  Packed and unpacked rows look alike to a layer. T5 packs training data unless
  `mesh_train_dataset_fn.pack = False`, and evaluation data only if
  `mesh_eval_dataset_fn.pack = True`.
  """
  defaults = {'mesh_train_dataset_fn': True, 'mesh_eval_dataset_fn': False}
  try:
    packed: list[Any] = [
      gin.get_bindings(name).get('pack', default)
      for name, default in defaults.items()
    ]
  except ValueError:  # t5 is not imported: there are no data
    return True
  return any(packed)
