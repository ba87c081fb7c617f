"""What packed rows cost the layers that read tables by position.

Rows of one sequence each share one slice of a table. In a packed row each token
has a position of its own, so the table is read by index, once for each row: a
product with a one-hot matrix on a TPU.
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
_NEGLIGIBLE = 1.05


def notice(lengths: Mapping[str, int]) -> Optional[str]:
  """A sentence for the start of a run, if packed rows make its model slower.

  Args:
    lengths: of `inputs` and `targets`.
  """
  if not data_is_packed():
    return None
  times = factor(model.make_transformer(_ANY_VOCABULARY), lengths)
  if times < _NEGLIGIBLE:
    return None
  return (
    f'Rows are packed, so that {labels.label()} reads its tables by the '
    'position of each token, separately for each row. On a TPU, a layer then '
    f'has {times:.1f} times the products that it has with '
    'mesh_train_dataset_fn.pack = False; elsewhere, table cells are copied, '
    'and each row has its own logits.'
  )


def factor(made: model.Transformer, lengths: Mapping[str, int]) -> float:
  """How many times the products of unpacked layers packed ones have on a TPU.

  Counted in the graphs of the first self-attention layer of each stack; 1 where
  no layer reads a table by index.
  """
  packed = unpacked = 0
  for stack in model.stacks(made):
    length = lengths['inputs' if stack.name == 'encoder' else 'targets']
    layer = stack.layer_stack.layers[0]
    if isinstance(layer, AttentionLayer):
      packed += _products(stack, layer, length)
      layer = copy.copy(layer)
      layer.packed = False
      unpacked += _products(stack, layer, length)
  return packed / unpacked if unpacked else 1.0


def _products(
  stack: transformer.Unitransformer, layer: AttentionLayer, length: int
) -> int:
  """Multiplications of a forward call on one row, on a TPU.

  The layer is called twice: the first block also makes what all share.
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
    sequence_id=mtf.ones(mesh, mtf.Shape([batch, length_dim]), tf.int32),
    position=order,
    position_is_default=True,
    read_priority=priority,
    write_priority=priority,
  )
  shape = mtf.Shape([batch, length_dim, stack.model_dim])
  counts = []
  with tf.Graph().as_default():
    x = mtf.zeros(mesh, shape, context.activation_dtype)
    for block in ('first', 'later'):
      with tf.variable_scope(block):
        layer.call(context, x)
      counts.append(cost.products(graph))
  first, both = counts
  return both - first
