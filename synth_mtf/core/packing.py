"""Whether a row of the batch may hold several sequences.

Packed and unpacked rows look alike to a layer. T5's own setting of the data
pipeline tells them apart; the layers read it here.
"""

import gin
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer

from synth_mtf.core.visibility import row_sequence_id

_DECODING = (
  tf.estimator.ModeKeys.PREDICT,  # the encoder
  'first_part',
  'incremental',
)


def data_is_packed() -> bool:
  """Whether gin says that the data of training or evaluation are packed.

  T5 packs training data unless `mesh_train_dataset_fn.pack = False`, and does
  not pack evaluation data unless `mesh_eval_dataset_fn.pack = True`.
  """
  return _binding('mesh_train_dataset_fn', True) or _binding(
    'mesh_eval_dataset_fn', False
  )


def rows_are_packed(context: transformer.Context, data_packed: bool) -> bool:
  """Whether the rows of a call may be packed; decoding never packs."""
  return (
    data_packed
    and context.mode not in _DECODING
    and row_sequence_id(context) is not None
  )


def _binding(dataset_fn: str, default: bool) -> bool:
  try:
    return gin.get_bindings(dataset_fn).get('pack', default)
  except ValueError:  # t5 is not imported: there are no data
    return default
