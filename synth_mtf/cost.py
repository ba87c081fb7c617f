"""Parameters, floating-point operations and bytes of a model.

Everything is counted in the Mesh-TensorFlow graph of the model that gin
describes; nothing is estimated from formulas, and nothing is executed.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping

import gin
import mesh_tensorflow as mtf
from mesh_tensorflow.transformer import utils

from synth_mtf.host import model

# Of weights and of their gradients: both are float32.
_BYTES = 4
_POSITIONS = ('length', 'memory_length')


@dataclasses.dataclass(frozen=True)
class Cost:
  """What a model costs on a mesh.

  Attributes:
    parameters: number of weights, trained or not.
    trained: how many of them training changes.
    tables: how many of them are indexed by positions.
    flops: those of a forward pass over one pair of sequences. Two for each
      multiplication with its addition; a training step has three times as many.
    state_bytes: weights, gradients and Adafactor's slots on each core.
    table_bytes: the part of them that tables take.
    attention_bytes: on each core, the largest tensor with a dimension of keys
      (logits, weights) in a forward pass over one pair of sequences.
  """

  parameters: int
  trained: int
  tables: int
  flops: int
  state_bytes: int
  table_bytes: int
  attention_bytes: int

  @property
  def kept(self) -> int:
    """Weights that stay as initialized, and in the checkpoint (Fix)."""
    return self.parameters - self.trained


def cost(
  vocab_size: int,
  lengths: Mapping[str, int],
  mesh_shape: str = '',
) -> Cost:
  """Counts what the model that gin holds costs.

  Args:
    vocab_size: number of embeddings.
    lengths: lengths of `inputs` and `targets`.
    mesh_shape: as in `utils.run.mesh_shape`; T5's layout rules are gin's.

  Returns:
    Its cost. The batch is one sequence, whatever the mesh is.
  """
  mesh = mtf.convert_to_shape(mesh_shape)
  layout = mtf.convert_to_layout_rules(
    gin.get_bindings(utils.run, resolve_references=False)['layout_rules']
  )
  graph = model.build(vocab_size, lengths=lengths, countable=True).mtf_graph

  def per_core(shape: mtf.Shape) -> int:
    split = math.prod(
      mtf.tensor_dim_to_mesh_dim_size(layout, mesh, dim)
      for dim in shape
      if dim.name != 'batch'
    )
    return math.ceil(shape.size / split)

  variables = graph.all_variables
  tables = [v for v in variables if _is_table(v.shape)]
  return Cost(
    parameters=sum(v.shape.size for v in variables),
    trained=sum(v.shape.size for v in variables if v.trainable),
    tables=sum(v.shape.size for v in tables),
    flops=2 * products(graph),
    state_bytes=sum(_state(v, per_core) for v in variables),
    table_bytes=sum(_state(v, per_core) for v in tables),
    attention_bytes=max(
      per_core(tensor.shape) * tensor.dtype.size
      for op in graph.operations
      for tensor in op.outputs
      if not isinstance(op, mtf.Variable) and _has_keys(tensor.shape)
    ),
  )


def _is_table(shape: mtf.Shape) -> bool:
  return any(dim.name in _POSITIONS for dim in shape)


def _has_keys(shape: mtf.Shape) -> bool:
  return any(dim.name == 'memory_length' for dim in shape)


def products(graph: mtf.Graph) -> int:
  """Multiplications in the einsums of a graph: of each, all its dimensions."""
  return sum(
    mtf.Shape(list({d for x in op.inputs for d in x.shape})).size
    for op in graph.operations
    if isinstance(op, mtf.EinsumOperation)
  )


def _state(variable: mtf.Variable, per_core: Callable[[mtf.Shape], int]) -> int:
  """Bytes of a weight, its gradient and its slots on each core."""
  shape = variable.shape
  if not variable.trainable:
    return _BYTES * per_core(shape)
  slots = per_core(shape)
  if shape.ndims >= 2:  # Adafactor keeps the means of rows and of columns
    row, column = sorted(shape.dims, key=lambda d: d.size)[-2:]
    slots = per_core(shape - row) + per_core(shape - column)
  return _BYTES * (2 * per_core(shape) + slots)
