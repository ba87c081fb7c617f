"""What the host's own layers of attention attend to.

The host offers no hook for it: the function that its layers call, with queries,
keys and a bias in which the masks are, is wrapped, and does what it did.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Optional

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import attention, transformer_layers

from synth_mtf.layer import recording

# Below it, a bias hides: the host adds -1e9 for each mask.
_HIDES = -1e8


@contextlib.contextmanager
def recorded_by(recorder: recording.Recorder) -> Iterator[None]:
  """Has our layers and the host's tell what they attend to.

  The host's are `SelfAttention` and `EncDecAttention` with the usual softmax.
  Their logits lack the relative position bias where a mask hides the pair.

  Args:
    recorder: is handed what each layer that is called meanwhile attends to.
  """
  classes = (
    transformer_layers.SelfAttention,
    transformer_layers.EncDecAttention,
  )
  originals = [kind.attention_fn for kind in classes]
  for kind, original in zip(classes, originals):
    kind.attention_fn = property(_told(original.fget, recorder))
  try:
    with recording.recorded_by(recorder):
      yield
  finally:
    for kind, original in zip(classes, originals):
      kind.attention_fn = original


def _told(
  attention_fn: Callable[[Any], Any], recorder: recording.Recorder
) -> Callable[[Any], Any]:
  """A layer's `attention_fn` that tells the recorder first."""

  def told(layer: Any) -> Any:
    attend = attention_fn(layer)
    if attend is not attention.attention:
      return attend

    def attend_and_tell(
      q: mtf.Tensor,
      k: mtf.Tensor,
      v: mtf.Tensor,
      memory_length_dim: mtf.Dimension,
      key_dim: mtf.Dimension,
      value_dim: mtf.Dimension,
      bias: Optional[mtf.Tensor] = None,
      **kwargs: Any,
    ) -> mtf.Tensor:
      q32, k32 = (mtf.cast(x, tf.float32) for x in (q, k))
      shape = q.shape - key_dim + memory_length_dim
      logits = masked = _in_order(mtf.einsum([q32, k32], shape), kwargs)
      if bias is not None:
        bias = mtf.cast(bias, tf.float32)
        masked = logits + bias
        shown = mtf.cast(mtf.greater(bias, _HIDES), tf.float32)
        logits += bias * shown
      weights = mtf.softmax(masked, memory_length_dim)
      recorder(
        recording.Alignment(
          layer,
          kwargs['context'],
          _in_order(logits, kwargs),
          _in_order(weights, kwargs),
        )
      )
      return attend(
        q, k, v, memory_length_dim, key_dim, value_dim, bias, **kwargs
      )

    return attend_and_tell

  return told


def _in_order(x: mtf.Tensor, kwargs: Any) -> mtf.Tensor:
  """[batch..., heads, length, memory_length]."""
  length = kwargs['context'].length_dim
  batch = kwargs['context'].batch_dims
  last = [d for d in x.shape.dims if d.name == 'memory_length']
  heads = [d for d in x.shape.dims if d not in (*batch, length, *last)]
  return mtf.transpose(x, mtf.Shape([*batch, *heads, length, *last]))
