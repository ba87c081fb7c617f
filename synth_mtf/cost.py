"""Counts the parameters, floating-point operations and bytes of a model.

All are counted in the Mesh-TensorFlow graph of the model that gin describes;
nothing is executed or estimated from formulas. The host is imported when
something is counted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from synth_mtf.errors import UserError
from synth_mtf.host import gin_files

if TYPE_CHECKING:
  import mesh_tensorflow as mtf

_BYTES = 4  # weights and gradients are float32
_POSITIONS = {'length', 'memory_length'}


@dataclasses.dataclass(frozen=True)
class Cost:
  """What a model costs on a mesh."""

  parameters: int  # all weights, also those that keep their values (Fix)
  trained: int  # trainable weights
  tables: int  # weights indexed by position
  # For a forward pass over one pair of sequences; a multiply-add counts as two.
  # A training step takes three times as many.
  flops: int
  state_bytes: int  # per core: weights, gradients and Adafactor's slots
  table_bytes: int  # the tables' share of state_bytes
  # Per core: the largest tensor with a key dimension (logits, weights).
  attention_bytes: int


def cost(
  vocab_size: int, lengths: Mapping[str, int], mesh_shape: str = ''
) -> Cost:
  """Counts the cost of the configured model for a batch of one sequence.

  Args:
    vocab_size: the number of embeddings.
    lengths: lengths of `inputs` and `targets`.
    mesh_shape: as in `utils.run.mesh_shape`; the layout rules are gin's.

  Raises:
    UserError: the mesh does not divide a dimension other than the batch.
  """
  import mesh_tensorflow as mtf

  from synth_mtf.host import model
  from synth_mtf.host.run_config import RunConfig

  mesh = mtf.convert_to_shape(mesh_shape)
  layout = RunConfig().layout
  graph = model.build(vocab_size, lengths=lengths, countable=True).mtf_graph

  def per_core(shape: mtf.Shape) -> int:
    size = shape.size
    for dim in shape:
      if dim.name == 'batch':
        continue
      cores = mtf.tensor_dim_to_mesh_dim_size(layout, mesh, dim)
      if dim.size % cores:
        raise UserError(
          f'{cores} cores cannot share one copy of the model: {dim.name} = '
          f'{dim.size} is not a multiple of {cores}. Give another '
          '--model_parallelism, or another size.'
        )
      size //= cores
    return size

  def state(variable: mtf.Variable) -> int:
    """Returns the bytes per core of a weight, its gradient and its slots."""
    shape = variable.shape
    if not variable.trainable:
      return _BYTES * per_core(shape)
    slots = per_core(shape)
    if shape.ndims >= 2:  # Adafactor stores row and column means
      row, column = sorted(shape.dims, key=lambda d: d.size)[-2:]
      slots = per_core(shape - row) + per_core(shape - column)
    return _BYTES * (2 * per_core(shape) + slots)

  variables = graph.all_variables
  tables = [
    v for v in variables if not _POSITIONS.isdisjoint(v.shape.dimension_names)
  ]
  attention_bytes = 0  # stays 0 if all layers are convolutions
  for operation in graph.operations:
    if isinstance(operation, mtf.Variable):
      continue
    for tensor in operation.outputs:
      if 'memory_length' in tensor.shape.dimension_names:
        size = per_core(tensor.shape) * tensor.dtype.size
        attention_bytes = max(attention_bytes, size)
  return Cost(
    parameters=sum(v.shape.size for v in variables),
    trained=sum(v.shape.size for v in variables if v.trainable),
    tables=sum(v.shape.size for v in tables),
    flops=2 * products(graph),
    state_bytes=sum(map(state, variables)),
    table_bytes=sum(map(state, tables)),
    attention_bytes=attention_bytes,
  )


def cost_of_files(
  files: Sequence[str],
  lengths: Mapping[str, int],
  bindings: Sequence[str] = (),
  vocab_size: int = 32128,
  mesh_shape: str = '',
) -> Cost:
  """Counts the cost of gin files."""
  gin_files.parse(
    files,
    [
      f'Unitransformer.max_length = {lengths["inputs"]}',
      'mesh_train_dataset_fn.pack = False',
      *bindings,
    ],
  )
  return cost(vocab_size, lengths, mesh_shape)


def products(graph: mtf.Graph) -> int:
  """Counts the multiplications in a graph's einsums."""
  import mesh_tensorflow as mtf

  total = 0
  for operation in graph.operations:
    if isinstance(operation, mtf.EinsumOperation):
      dims = {dim for factor in operation.inputs for dim in factor.shape}
      total += mtf.Shape(list(dims)).size
  return total
