"""Records the attention of T5's own layers beside that of ours.

The host has no hook for it, so the function by which its layers attend is
wrapped while something records.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Optional

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import attention, transformer_layers

from synth_mtf.layer import recording

# A smaller bias hides a pair: the host adds -1e9 for each mask.
_HIDDEN = -1e8


@contextlib.contextmanager
def recorded_by(recorder: recording.Recorder) -> Iterator[None]:
  """Passes what our layers and the host's attend to on to a recorder.

  The host's are `SelfAttention` and `EncDecAttention` with the usual softmax.
  Their logits lack the relative position bias where a mask hides the pair.
  """
  classes = (
    transformer_layers.SelfAttention,
    transformer_layers.EncDecAttention,
  )
  originals = [layer_class.attention_fn for layer_class in classes]
  for layer_class, original in zip(classes, originals):
    layer_class.attention_fn = property(_recorded(original.fget, recorder))
  try:
    with recording.recorded_by(recorder):
      yield
  finally:
    for layer_class, original in zip(classes, originals):
      layer_class.attention_fn = original


def _recorded(
  attention_fn: Callable[[Any], Any], recorder: recording.Recorder
) -> Callable[[Any], Any]:
  """Wraps the getter of a layer's `attention_fn`."""

  def get(layer: Any) -> Any:
    attend = attention_fn(layer)
    if attend is not attention.attention:
      return attend

    def record_and_attend(
      q: mtf.Tensor,
      k: mtf.Tensor,
      v: mtf.Tensor,
      memory_length_dim: mtf.Dimension,
      key_dim: mtf.Dimension,
      value_dim: mtf.Dimension,
      bias: Optional[mtf.Tensor] = None,
      **kwargs: Any,
    ) -> mtf.Tensor:
      context = kwargs['context']
      queries = [*context.batch_dims, context.length_dim]
      heads = (q.shape - key_dim).dims
      shape = mtf.Shape(
        [
          *context.batch_dims,
          *(dim for dim in heads if dim not in queries),
          context.length_dim,
          memory_length_dim,
        ]
      )
      operands = [mtf.cast(x, tf.float32) for x in (q, k)]
      logits = masked = mtf.einsum(operands, shape)
      if bias is not None:
        bias = mtf.cast(bias, tf.float32)
        masked += bias
        logits += bias * mtf.cast(mtf.greater(bias, _HIDDEN), tf.float32)
      weights = mtf.softmax(masked, memory_length_dim)
      recorder(recording.Alignment(layer, context, logits, weights))
      return attend(
        q, k, v, memory_length_dim, key_dim, value_dim, bias, **kwargs
      )

    return record_and_attend

  return get
