"""Which of the host's products a processor multiplies in another way."""

from collections.abc import Callable, Sequence

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf

from synth_mtf.core.dimensions import is_tpu
from synth_mtf.cpu import single_rows, token_rows


def faster(
  make: Callable[[], mtf.Tensor],
  mesh: mtf.Mesh,
  masks: Sequence[mtf.Tensor] = (),
) -> mtf.Tensor:
  """What `make` returns, the products on the way multiplied in our ways.

  Those of a single row are read in pieces (`cpu.single_rows`), those of tokens
  and weights leave padding out (`cpu.token_rows`). What else `make` computes,
  the host's layers included, stays as it is. All of it does on a TPU, and where
  there is a GPU, which multiplies by all of its cores anyway.

  Args:
    make: makes a tensor.
    mesh: of that tensor.
    masks: of `token_rows.mask`, for the rows that products have.
  """
  if is_tpu(mesh) or tf.config.list_physical_devices('GPU'):
    return make()
  y, operations = mesh.graph.capture_operations(make)
  for operation in operations:
    if type(operation) is mtf.EinsumOperation:
      single_rows.read_in_pieces(operation)
    if type(operation) is mtf.EinsumOperation:
      token_rows.leave_out_padding(operation, masks)
  return y
