"""What all layers of a stack share, made by the first that asks for it."""

from collections.abc import Callable

import mesh_tensorflow as mtf
from mesh_tensorflow.transformer import transformer


def once(
  context: transformer.Context, name: str, make: Callable[[], mtf.Tensor]
) -> mtf.Tensor:
  """What `make` returned to the first layer of the stack that asked for it.

  Where layers are computed again for their gradients, each on its own, there is
  nothing to share.
  """
  if layers_are_made_again(context):
    return make()
  key = ('synth_mtf', name)
  if key not in context.cache:
    context.cache[key] = make()
  return context.cache[key]


def layers_are_made_again(context: transformer.Context) -> bool:
  """Whether the host computes each layer once more for its gradient."""
  stack = getattr(context.model, 'layer_stack', None)
  return isinstance(stack, transformer.ReversibleLayerStack) or getattr(
    stack, '_recompute_grads', False
  )
