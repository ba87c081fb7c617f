"""Records what layers attend to while the graph is built.

    with recorded_by(recorder):
      model.call_simple(...)

The recorder receives the logits, weights and alpha of each layer call, as
tensors of that graph. They are computed separately because layers often do not
materialize their weights. Without a recorder, nothing is added to the graph.
"""

import contextlib
import dataclasses
import functools
import inspect
from collections.abc import Iterator, Sequence
from typing import Any, Callable, Optional

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import (
  attention,
  transformer,
  transformer_layers,
)

from synth_mtf.core.dimensions import arrange
from synth_mtf.core.layer_call import LayerCall
from synth_mtf.core.logits import Logits, total
from synth_mtf.core.visibility import Visibility, zero_hidden

# A bias below this hides a pair; the host adds -1e9 for each mask.
_HIDDEN = -1e8


@dataclasses.dataclass(frozen=True)
class Alignment:
  """The alignment of one layer call.

  Attributes:
    layer: the layer, ours or the host's.
    context: the host's context of the call.
    logits: B with the relative position bias, unmasked; [batch..., heads,
      length, memory_length], or without [batch...] if it is shared.
    weights: attention weights before dropout, with the same axes; 0 if hidden.
    alphas: [heads] or [] per function; None stands for 1. Empty for the
      host's layers.
  """

  layer: Any
  context: transformer.Context
  logits: mtf.Tensor
  weights: mtf.Tensor
  alphas: Sequence[Optional[mtf.Tensor]] = ()

  @property
  def stack(self) -> str:
    if isinstance(self.layer, transformer_layers.EncDecAttention):
      return 'cross'
    return 'decoder' if self.context.model.autoregressive else 'encoder'

  @property
  def letters(self) -> list[str]:
    return [f.letter for f in getattr(self.layer, 'synthesizers', ())]


_recorder: Optional[Callable[[Alignment], None]] = None


@contextlib.contextmanager
def recorded_by(recorder: Callable[[Alignment], None]) -> Iterator[None]:
  """Passes the alignment of every layer call in this context to the recorder.

  The host's layers have no such hook, so the attention functions of its
  `SelfAttention` and `EncDecAttention` are wrapped. Their logits lack the
  relative position bias of hidden pairs.
  """
  global _recorder
  originals = [
    (layer_class, layer_class.attention_fn)
    for layer_class in (
      transformer_layers.SelfAttention,
      transformer_layers.EncDecAttention,
    )
  ]
  _recorder = recorder
  for layer_class, original in originals:
    layer_class.attention_fn = property(
      functools.partial(_recorded, original.fget)
    )
  try:
    yield
  finally:
    _recorder = None
    for layer_class, original in originals:
      layer_class.attention_fn = original


def record(
  layer: Any,
  call: LayerCall,
  logits: Logits,
  visibility: Visibility,
  alphas: Sequence[Optional[mtf.Tensor]],
) -> None:
  """Passes a call of our layer to the recorder, if there is one."""
  if _recorder is None:
    return
  b = weights = _in_order(call, mtf.cast(total(call, logits), tf.float32))
  if layer.normalize == 'softmax':
    weights = mtf.add_n([b, *visibility.biases(b.dtype)])
    weights = mtf.softmax(weights, call.memory_length)
  for visible in visibility.masks:
    weights = zero_hidden(weights, visible)
  _recorder(Alignment(layer, call.context, b, _in_order(call, weights), alphas))


def _in_order(call: LayerCall, x: mtf.Tensor) -> mtf.Tensor:
  """Puts dimensions in order and adds missing ones; no batch if shared."""
  is_shared = set(x.shape.dims) <= set(call.shared)
  return arrange(x, mtf.Shape(call.shared) if is_shared else call.local)


def _recorded(get: Callable[[Any], Callable[..., Any]], layer: Any) -> Any:
  """Wraps the attention function of one of the host's layers."""
  attend = get(layer)
  if attend is not attention.attention:  # not the usual softmax
    return attend

  def record_and_attend(*args: Any, **kwargs: Any) -> mtf.Tensor:
    call = inspect.signature(attend).bind(*args, **kwargs).arguments
    context, q, memory_length = (
      call[name] for name in ('context', 'q', 'memory_length_dim')
    )
    others = [*context.batch_dims, context.length_dim, call['key_dim']]
    heads = [dim for dim in q.shape.dims if dim not in others]
    logits = masked = mtf.einsum(
      [mtf.cast(x, tf.float32) for x in (q, call['k'])],
      [*context.batch_dims, *heads, context.length_dim, memory_length],
    )
    if call['bias'] is not None:
      bias = mtf.cast(call['bias'], tf.float32)
      masked += bias
      logits += bias * mtf.cast(mtf.greater(bias, _HIDDEN), tf.float32)
    assert _recorder is not None
    weights = mtf.softmax(masked, memory_length)
    _recorder(Alignment(layer, context, logits, weights))
    return attend(*args, **kwargs)

  return record_and_attend
