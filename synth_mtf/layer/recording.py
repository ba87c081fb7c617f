"""What a layer attends to, for whoever asks while the graph is built.

    with recorded_by(recorder):
      model.call_simple(...)

The recorder is handed the logits, weights and alpha of each call of a layer,
as tensors of that graph. They are made of what the layer has just made; how it
goes on from there (which of its ways never have the weights as one tensor) is
another matter. Where nobody asks, nothing is made.
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
from synth_mtf.core.visibility import Visibility
from synth_mtf.layer.parts import at

_HIDDEN = -1e9  # softmax makes an exact 0 of it


@dataclasses.dataclass(frozen=True)
class Alignment:
  """What a layer attends to in one call.

  Attributes:
    layer: that was called, ours or the host's.
    context: the host's, of the call.
    logits: B, the relative position bias in it, and no mask; [batch..., heads,
      length, memory_length], or without [batch...] where it is shared.
    weights: the same axes, before dropout; 0 where a query may not look.
    alphas: of each function, [heads] or []; None stands for 1. Empty for a
      layer of the host.
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
    """Its functions by their names in tables; none of a layer of the host."""
    return [f.letter for f in getattr(self.layer, 'synthesizers', ())]


Recorder = Callable[[Alignment], None]

_recorder: contextvars.ContextVar[Optional[Recorder]] = contextvars.ContextVar(
  'recorder', default=None
)


@contextlib.contextmanager
def recorded_by(recorder: Recorder) -> Iterator[None]:
  """Has the layers that are called meanwhile tell what they attend to."""
  token = _recorder.set(recorder)
  try:
    yield
  finally:
    _recorder.reset(token)


def offer(
  layer: Any,
  call: LayerCall,
  logits: Logits,
  visibility: Visibility,
  alphas: Sequence[Optional[mtf.Tensor]],
) -> None:
  """Hands a call to the recorder, if there is one.

  Args:
    layer: whose `normalize` says what becomes of the logits.
    call: the layer call.
    logits: B.
    visibility: what takes part in the softmax.
    alphas: of the functions.
  """
  recorder = _recorder.get()
  if recorder is None:
    return
  b = _in_order(call, mtf.cast(total(call, logits), tf.float32))
  weights = _WEIGHTS[layer.normalize](call, b, visibility)
  recorder(Alignment(layer, call.context, b, _in_order(call, weights), alphas))


def _softmax(
  call: LayerCall, b: mtf.Tensor, visibility: Visibility
) -> mtf.Tensor:
  for visible in (visibility.pairs, visibility.keys):
    if visible is not None:
      b += (1.0 - mtf.cast(visible, b.dtype)) * _HIDDEN
  return _visible(call, mtf.softmax(b, call.memory_length), visibility)


def _visible(
  call: LayerCall, weights: mtf.Tensor, visibility: Visibility
) -> mtf.Tensor:
  del call
  for visible in (visibility.pairs, visibility.keys, visibility.queries):
    weights = at(visible, weights)
  return weights


# By the layer's `normalize`, as in `weighted_sum.NORMALIZATIONS`.
_WEIGHTS = {'softmax': _softmax, None: _visible}


def _in_order(call: LayerCall, x: mtf.Tensor) -> mtf.Tensor:
  """All dimensions in their order; without the batch where x has none."""
  is_shared = set(x.shape.dims) <= set(call.shared)
  return arrange(x, mtf.Shape(call.shared) if is_shared else call.local)
