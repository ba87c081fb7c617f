"""What packed rows cost the layers that read tables by position.

A table of rows that hold one sequence each is sliced, once for all of them. In
a packed row each token has a position of its own, so that the table is read by
index, once for each row: a product with a one-hot matrix on a TPU.
"""

import copy
from collections.abc import Mapping
from typing import Optional

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer, utils

from synth_mtf import cost
from synth_mtf.core.context import data_is_packed
from synth_mtf.host import model
from synth_mtf.layer.base import AttentionLayer
from synth_mtf.results import labels

_ANY_VOCABULARY = 128  # layers do not depend on it
_WORTH_TELLING = 1.05


def notice(lengths: Mapping[str, int]) -> Optional[str]:
  """What is to be said of the model that gin holds, if packed rows cost it.

  Args:
    lengths: of `inputs` and `targets`.
  """
  if not data_is_packed():
    return None
  times = factor(model.make_transformer(_ANY_VOCABULARY), lengths)
  if times < _WORTH_TELLING:
    return None
  return (
    f'Rows are packed, so that {labels.label()} reads its tables by the '
    'position of each token, for each row anew. On a TPU that makes the '
    f'products of a layer {times:.1f} times those with '
    'mesh_train_dataset_fn.pack = False; elsewhere cells are copied, and each '
    'row has logits of its own.'
  )


def factor(made: model.Transformer, lengths: Mapping[str, int]) -> float:
  """Products of packed layers on a TPU, over those of the same layers unpacked.

  Counted in the graphs of the first self-attention layer of each stack.

  Args:
    made: the host's model.
    lengths: of `inputs` and `targets`.

  Returns:
    At least 1; 1 where no layer reads a table by index.
  """
  packed = unpacked = 0
  for stack in model.stacks(made):
    length = lengths['inputs' if stack.name == 'encoder' else 'targets']
    first = stack.layer_stack.layers[0]
    if isinstance(first, AttentionLayer):
      packed += _products(stack, first, length)
      alone = copy.copy(first)
      alone.packed = False
      unpacked += _products(stack, alone, length)
  return packed / unpacked if unpacked else 1.0


def _products(
  stack: transformer.Unitransformer, layer: AttentionLayer, length: int
) -> int:
  """Multiplications of one call on one row, forward, on a TPU.

  It is that of a later block: the first one also makes what all share.
  """
  graph = mtf.Graph()
  mesh = model.countable_mesh(graph)
  batch, length_dim = mtf.Dimension('batch', 1), mtf.Dimension('length', length)
  order = mtf.range(mesh, length_dim, tf.int32)
  priority = order if stack.autoregressive else None
  context = transformer.Context(
    model=stack,
    mesh=mesh,
    batch_dims=[batch],
    length_dim=length_dim,
    variable_dtype=utils.get_variable_dtype(),
    mode=tf.estimator.ModeKeys.EVAL,
    losses=[],
    sequence_id=mtf.ones(mesh, mtf.Shape([batch, length_dim]), tf.int32),
    position=order,
    position_is_default=True,
    read_priority=priority,
    write_priority=priority,
  )
  shape = mtf.Shape([batch, length_dim, stack.model_dim])
  made = []
  with tf.Graph().as_default():
    x = mtf.zeros(mesh, shape, context.activation_dtype)
    for block in ('first', 'later'):
      with tf.variable_scope(block):
        layer.call(context, x)
      made.append(cost.products(graph))
  first, both = made
  return both - first
