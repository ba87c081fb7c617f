"""What the two ways to the weighted sum have in common."""

from typing import Callable, Optional

import mesh_tensorflow as mtf

from synth_mtf.core import kernels
from synth_mtf.core.layer_call import LayerCall

# Is called with log Z, [batch..., heads, length].
UseLogZ = Callable[[mtf.Tensor], None]


def product(
  call: LayerCall, weights: mtf.Tensor, values: mtf.Tensor
) -> mtf.Tensor:
  """W G(X), [batch..., length, heads, d_kv]."""
  return kernels.product(
    mtf.cast(weights, values.dtype),
    values,
    mtf.Shape(call.batch + call.length + call.heads + values.shape.dims[-1:]),
  )


def at(tokens: Optional[mtf.Tensor], x: mtf.Tensor) -> mtf.Tensor:
  """Zero where `tokens`, or pairs of them, are; None hides nothing."""
  return x if tokens is None else x * mtf.cast(tokens, x.dtype)
