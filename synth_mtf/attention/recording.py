"""Records what layers attend to while the graph is built.

    with recorded_by(recorder):
      model.call_simple(...)

The recorder receives the logits, weights and alpha of each layer call, as
tensors of that graph. They are computed separately because layers often do not
materialize their weights. Without a recorder, nothing is added to the graph.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer, transformer_layers

from synth_mtf.core.dimensions import arrange
from synth_mtf.core.layer_call import LayerCall
from synth_mtf.core.logits import Logits, total
from synth_mtf.core.visibility import Visibility, zero_hidden
from synth_mtf.host import patches
from synth_mtf.layer.attention import SyntheticAttention
from synth_mtf.layer.enc_dec_attention import EncDecAttention
from synth_mtf.layer.stacks import settings_of
from synth_mtf.layer.synthetic import SyntheticLayer, calls_passed_to
from synth_mtf.synthesizers.dot_product import DotProduct


@dataclasses.dataclass(frozen=True)
class Alignment:
  """The alignment of one layer call.

  Attributes:
    layer: the layer, or our equivalent of one of the host's.
    context: the host's context of the call.
    logits: B with the relative position bias, unmasked; [batch..., heads,
      length, memory_length], or without [batch...] if it is shared.
    weights: attention weights before dropout, with the same axes; 0 if hidden.
    alphas: [heads] or [] per function; None stands for 1.
  """

  layer: SyntheticLayer
  context: transformer.Context
  logits: mtf.Tensor
  weights: mtf.Tensor
  alphas: Sequence[mtf.Tensor | None]

  @property
  def stack(self) -> str:
    if isinstance(self.layer, transformer_layers.EncDecAttention):
      return 'cross'
    return 'decoder' if self.context.model.autoregressive else 'encoder'


@contextmanager
def recorded_by(recorder: Callable[[Alignment], None]) -> Iterator[None]:
  """Passes the alignment of every layer call in this context to the recorder.

  Our equivalents compute the host's `SelfAttention` and `EncDecAttention`.
  """

  def record(
    layer: SyntheticLayer,
    call: LayerCall,
    logits: Logits,
    visibility: Visibility,
    alphas: Sequence[mtf.Tensor | None],
  ) -> None:
    recorder(_alignment(layer, call, logits, visibility, alphas))

  with (
    calls_passed_to(record),
    patches.calls_computed_by(
      _self_attention, transformer_layers.SelfAttention
    ),
    patches.calls_computed_by(
      _cross_attention, transformer_layers.EncDecAttention
    ),
  ):
    yield


def _self_attention(layer: Any) -> SyntheticAttention:
  """Returns our equivalent of the host's SelfAttention."""
  return SyntheticAttention(
    [DotProduct], normalize='softmax', **settings_of(layer)
  )


def _cross_attention(layer: Any) -> EncDecAttention:
  """Returns our equivalent of the host's EncDecAttention."""
  return EncDecAttention(
    [DotProduct], normalize='softmax', **settings_of(layer)
  )


def _alignment(
  layer: SyntheticLayer,
  call: LayerCall,
  logits: Logits,
  visibility: Visibility,
  alphas: Sequence[mtf.Tensor | None],
) -> Alignment:
  b = _in_order(call, mtf.cast(total(call, logits), tf.float32))
  if layer.normalize == 'softmax':
    masked = mtf.add_n([b, *visibility.biases(b.dtype)])
    weights = mtf.softmax(masked, call.memory_length)
  else:
    weights = b
  for visible in visibility.masks:
    weights = zero_hidden(weights, visible)
  return Alignment(layer, call.context, b, _in_order(call, weights), alphas)


def _in_order(call: LayerCall, x: mtf.Tensor) -> mtf.Tensor:
  """Puts dimensions in order and adds missing ones; no batch if shared."""
  is_shared = set(x.shape.dims) <= set(call.shared)
  return arrange(x, mtf.Shape(call.shared) if is_shared else call.local)
