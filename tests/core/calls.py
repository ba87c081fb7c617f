"""A layer call to try the parts of a layer on."""

from typing import Any

import mesh_tensorflow as mtf
import numpy as np
import numpy.typing as npt
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer_layers

from synth_mtf.core.layer_call import LayerCall
from synth_mtf.core.memory import own_sequence
from synth_mtf.core.positions import TableIndex
from synth_mtf.core.projections import Projections
from tests import harness

BATCH, HEADS, D_KV, LENGTH, D_MODEL = 2, 3, 5, 4, 7


def make(
  mesh_object: mtf.Mesh,
  sequence_id: npt.NDArray[Any] | None = None,
  stack: harness.Stack = harness.ENCODER,
  layer: transformer_layers.SelfAttention | None = None,
  **settings: Any,
) -> LayerCall:
  """A call on whole rows, [batch, length], with weights drawn by their names.

  `layer` is the host's; it defines heads and projections.
  """
  length = LENGTH if sequence_id is None else sequence_id.shape[1]
  shape = (BATCH, length, D_MODEL)
  context = harness.host_context(
    mesh_object, shape, sequence_id, stack, **settings
  )
  layer = layer or transformer_layers.SelfAttention(
    num_heads=HEADS, key_value_size=D_KV
  )
  x = harness.draw('x', shape)
  for dim in context.model.ensemble_dims:
    x = np.stack([x] * dim.size)
  x_in = harness.constant(
    mesh_object,
    x,
    context.model.ensemble_dims
    + context.batch_dims
    + [context.length_dim, context.model.model_dim],
  )
  memory_length = layer.memory_length(context)
  return LayerCall(
    context,
    x_in,
    Projections(layer, context),
    TableIndex(mesh_object, context.length_dim, memory_length),
    own_sequence(context, x_in, memory_length),
    memory_length,
    layer.kv_dim,
    tf.float32,
  )
