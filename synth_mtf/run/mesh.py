"""Whether a mesh divides a model and its batch.

The layout rules lay dimensions of tensors on dimensions of the mesh ("heads on
model"); each size must be divisible. Mesh-TensorFlow finds the first fault when
it lowers the graph, which for a large model takes minutes; this finds all of
them before.
"""

from collections.abc import Sequence
from typing import Any, Union

import mesh_tensorflow as mtf
from mesh_tensorflow.transformer import utils

from synth_mtf.errors import UserError
from synth_mtf.host.model import ConfiguredModel


def check(
  model: ConfiguredModel,
  mesh_shape: Union[str, mtf.Shape],
  layout_rules: str,
  batch_size: Union[int, Sequence[Any]],
  sequence_length: dict[str, int],
) -> None:
  """Checks that a mesh fits.

  Args:
    model: the model to be laid on the mesh.
    mesh_shape: as in `utils.run.mesh_shape`.
    layout_rules: as in `utils.run.layout_rules`.
    batch_size: as in `utils.run.batch_size`.
    sequence_length: as in `utils.run.sequence_length`.

  Raises:
    UserError: a size is not divisible; all such sizes are listed, with the
      sizes of the mesh that would work.
  """
  mesh = mtf.convert_to_shape(mesh_shape)
  layout = mtf.convert_to_layout_rules(layout_rules)
  sizes = {('batch', _examples(batch_size, sequence_length, mesh, layout))}
  sizes |= {('heads', layer.num_heads) for layer in model.attention.values()}
  # Where heads and d_kv are a single dimension, the number of heads decides.
  sizes |= {
    (dim.name, dim.size)
    for shape in model.shapes.values()
    for dim in shape
    if dim.name != 'heads'
  }
  faults = []
  for name, size in sorted(sizes):
    axis = layout.tensor_dimension_to_mesh_axis(mtf.Dimension(name, size), mesh)
    if axis is not None and size % mesh[axis].size:
      fitting = [n for n in range(1, size + 1) if size % n == 0]
      faults.append(
        f'{name} = {size} is laid on {mesh[axis].name} = {mesh[axis].size}; a '
        f'size that divides it works: {_shown(fitting)}'
      )
  if faults:
    raise UserError(
      f'the mesh {mesh.to_string} does not divide the model: '
      + '. '.join(faults)
      + '. Change utils.run.mesh_shape or utils.tpu_mesh_shape '
      '(layouts/*.gin), or the size itself.'
    )


def _examples(
  batch_size: Union[int, Sequence[Any]],
  sequence_length: dict[str, int],
  mesh: mtf.Shape,
  layout: mtf.LayoutRules,
) -> int:
  """The examples of a batch, whose size may be said in tokens."""
  if isinstance(batch_size, int):
    return batch_size
  try:
    return utils.compute_batch_size(sequence_length, mesh, layout, batch_size)
  except ValueError as error:
    raise UserError(
      f'utils.run.batch_size = {tuple(batch_size)}: {error}, the number of '
      'tokens by the length of a sequence'
    ) from error


def _shown(numbers: Sequence[int]) -> str:
  few = [str(n) for n in numbers[:8]]
  return ', '.join(few) + (', ...' if len(numbers) > len(few) else '')
