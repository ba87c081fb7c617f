"""The order of named dimensions."""

from collections.abc import Sequence

import mesh_tensorflow as mtf


def arrange(x: mtf.Tensor, shape: mtf.Shape) -> mtf.Tensor:
  """Gives x exactly these dimensions, in this order."""
  if set(x.shape.dims) != set(shape.dims):
    x = mtf.broadcast(x, shape)
  return mtf.transpose(x, shape)


def put_first(dims: Sequence[mtf.Dimension], x: mtf.Tensor) -> mtf.Tensor:
  """Puts these dimensions of x first."""
  others = [d for d in x.shape.dims if d not in dims]
  return mtf.transpose(x, mtf.Shape([*dims, *others]))
