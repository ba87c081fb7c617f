"""What layers ask the host: its Context, the cache in it, gin's packing."""

from collections.abc import Callable

import gin
import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer

DECODING = 'first_part', 'incremental'
# PREDICT is the mode of a decoder's encoder.
_NEVER_PACKED = tf.estimator.ModeKeys.PREDICT, *DECODING


def cached(
  context: transformer.Context, name: str, make: Callable[[], mtf.Tensor]
) -> mtf.Tensor:
  """Returns `make()`, computed once and cached for all layers of a stack.

  Nothing is cached if the host recomputes layers in the backward pass.
  """
  if recomputes_layers(context):
    return make()
  key = ('synth_mtf', name)
  if key not in context.cache:
    context.cache[key] = make()
  return context.cache[key]


def recomputes_layers(context: transformer.Context) -> bool:
  """Whether the host recomputes each layer in the backward pass."""
  stack = getattr(context.model, 'layer_stack', None)
  if isinstance(stack, transformer.ReversibleLayerStack):
    return True
  return getattr(stack, '_recompute_grads', False)


def row_sequence_id(context: transformer.Context) -> mtf.Tensor | None:
  """Returns the segment ids, [batch..., length], or None if there are none."""
  for ids in (context.subsequence_id, context.sequence_id):
    if isinstance(ids, mtf.Tensor) and context.length_dim in ids.shape.dims:
      return ids
  return None


def rows_are_packed(context: transformer.Context, data_packed: bool) -> bool:
  """Whether the rows of a call may hold several sequences.

  `data_packed` says whether those of training and evaluation may.
  """
  return (
    data_packed
    and context.mode not in _NEVER_PACKED
    and row_sequence_id(context) is not None
  )


def data_is_packed() -> bool:
  """Whether gin configures packed data for training or evaluation.

  A layer cannot tell packed rows from unpacked ones. T5 packs training data
  unless `mesh_train_dataset_fn.pack = False`, and evaluation data only if
  `mesh_eval_dataset_fn.pack = True`.
  """
  try:
    train = gin.get_bindings('mesh_train_dataset_fn')
    evaluation = gin.get_bindings('mesh_eval_dataset_fn')
  except ValueError:  # t5, which defines both, is not imported
    return True
  return bool(train.get('pack', True) or evaluation.get('pack', False))
