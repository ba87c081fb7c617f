"""T5's auxiliary loss on log Z, Z being the softmax's denominator."""

from typing import Callable, Optional

import mesh_tensorflow as mtf
from mesh_tensorflow.transformer import transformer

# Called with log Z, [batch..., heads, length].
UseLogZ = Callable[[mtf.Tensor], None]


def z_loss(
  context: transformer.Context, coefficient: Optional[float]
) -> Optional[UseLogZ]:
  """Returns what adds the loss to the model's, as the host computes it.

      coefficient * mean(nonpadding * (log Z)^2)

  None outside training or without a coefficient.
  """
  if coefficient is None or not context.train:
    return None

  def add_loss(log_z: mtf.Tensor) -> None:
    loss = mtf.square(log_z)
    if isinstance(context.nonpadding, mtf.Tensor):
      loss *= mtf.cast(context.nonpadding, log_z.dtype)
    loss = mtf.reduce_mean(loss) / (context.num_microbatches or 1)
    mtf.scalar_summary('attention_z_loss', loss)
    context.losses.append(
      mtf.cast(loss * coefficient, context.activation_dtype)
    )

  return add_loss
