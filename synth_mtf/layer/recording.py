"""Records what layers attend to while the graph is built.

    with recorded_by(recorder):
      model.call_simple(...)

The recorder receives the logits, weights and alpha of each layer call, as
tensors of that graph. They are computed beside the layer's own result, which
often never has the weights as one tensor; without a recorder, nothing is added
to the graph.
"""

import contextlib
import contextvars
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Callable, Optional

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer, transformer_layers

from synth_mtf.core.dimensions import arrange
from synth_mtf.core.layer_call import LayerCall
from synth_mtf.core.logits import Logits, total
from synth_mtf.core.visibility import Visibility, zero_hidden


@dataclasses.dataclass(frozen=True)
class Alignment:
  """What a layer attends to in one call.

  Attributes:
    layer: the layer, ours or the host's.
    context: the host's context of the call.
    logits: B with the relative position bias, unmasked; [batch..., heads,
      length, memory_length], or without [batch...] if it is shared.
    weights: the same axes, before dropout; 0 where a query may not look.
    alphas: [heads] or [] per function; None stands for 1. Empty for a layer of
      the host.
  """

  layer: Any
  context: transformer.Context
  logits: mtf.Tensor
  weights: mtf.Tensor
  alphas: Sequence[Optional[mtf.Tensor]] = ()

  @property
  def stack(self) -> str:
    """Where the layer stands: 'encoder', 'decoder' or 'cross'."""
    if isinstance(self.layer, transformer_layers.EncDecAttention):
      return 'cross'
    return 'decoder' if self.context.model.autoregressive else 'encoder'

  @property
  def letters(self) -> list[str]:
    """The functions by their names in tables; empty for a layer of the host."""
    return [f.letter for f in getattr(self.layer, 'synthesizers', ())]


Recorder = Callable[[Alignment], None]

_recorder: contextvars.ContextVar[Optional[Recorder]] = contextvars.ContextVar(
  'recorder', default=None
)


@contextlib.contextmanager
def recorded_by(recorder: Recorder) -> Iterator[None]:
  """Passes the alignment of every layer called meanwhile to the recorder."""
  token = _recorder.set(recorder)
  try:
    yield
  finally:
    _recorder.reset(token)


def record(
  layer: Any,
  call: LayerCall,
  logits: Logits,
  visibility: Visibility,
  alphas: Sequence[Optional[mtf.Tensor]],
) -> None:
  """Passes a call to the recorder, if there is one.

  Args:
    layer: the layer; its `normalize` says how weights follow from logits.
    call: the layer call.
    logits: B.
    visibility: what takes part in the softmax.
    alphas: the weight of each function.
  """
  recorder = _recorder.get()
  if recorder is None:
    return
  b = weights = _in_order(call, mtf.cast(total(call, logits), tf.float32))
  if layer.normalize == 'softmax':
    weights = mtf.add_n([b, *visibility.biases(b.dtype)])
    weights = mtf.softmax(weights, call.memory_length)
  for visible in visibility.masks:
    weights = zero_hidden(weights, visible)
  recorder(Alignment(layer, call.context, b, _in_order(call, weights), alphas))


def _in_order(call: LayerCall, x: mtf.Tensor) -> mtf.Tensor:
  """All dimensions in their order; without the batch if x has none."""
  is_shared = set(x.shape.dims) <= set(call.shared)
  return arrange(x, mtf.Shape(call.shared) if is_shared else call.local)
