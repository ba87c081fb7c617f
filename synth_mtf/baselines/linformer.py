"""Linformer: attention to a fixed number of projected memory positions."""

import dataclasses
from typing import Any

import gin
import mesh_tensorflow as mtf

from synth_mtf.core.layer_call import LayerCall
from synth_mtf.core.logits import InnerProduct, Logits
from synth_mtf.core.visibility import Visibility, visibility, zero_hidden
from synth_mtf.errors import ConfigurationError
from synth_mtf.layer.base import AttentionLayer
from synth_mtf.layer.refusals import check_unpacked
from synth_mtf.layer.weighted_sum import softmax_average
from synth_mtf.synthesizers.base import (
  check_sizes,
  host_max_length,
  require_length,
)


@gin.configurable(module='synth_mtf')
class Linformer(AttentionLayer):
  """Self-attention of an encoder over k projected positions.

      Y = softmax(Q (E K)^T) (F V),  E, F in R^(k x N) for each head

  (Wang et al., arXiv 2006.04768, eq. 7; the Synthesizer paper compares with
  k = 32 in the encoder.) E and F are learned; both products exclude
  padding. Positions are mixed before the softmax, so the layer rejects
  decoders, packed rows and relative position biases.
  """

  label = 'Linformer'
  relative_attention_types = (None,)

  def __init__(
    self,
    projected_length: int = 32,
    max_length: int | None = None,
    **kwargs: Any,
  ) -> None:
    """Creates a Linformer layer.

    Args:
      projected_length: k.
      max_length: N. Default: the host's `Unitransformer.max_length` (512).
      **kwargs: arguments of `AttentionLayer` and of
        `transformer_layers.SelfAttention`.

    Raises:
      ConfigurationError: if a setting is invalid or not supported.
    """
    super().__init__(**kwargs)
    self.max_length = host_max_length() if max_length is None else max_length
    check_sizes(
      self, projected_length=projected_length, max_length=self.max_length
    )
    self.projected_dim = mtf.Dimension('projected_length', projected_length)

  def attend(self, call: LayerCall) -> mtf.Tensor:
    """Computes softmax(Q (E K)^T) (F V), [batch..., length, heads, d_kv].

    Raises:
      ConfigurationError: in a decoder, for packed rows, or beyond N.
    """
    if call.context.read_priority is not None:
      raise ConfigurationError(
        'Linformer works in an encoder only; bind another layer in '
        'decoder/transformer.make_layer_stack.layers'
      )
    check_unpacked('Linformer', call.context, self.packed)
    require_length('Linformer.max_length', self.max_length, call.memory_length)
    seen = visibility(call, packed=False)
    projected = dataclasses.replace(call, memory_length=self.projected_dim)
    keys = self._project(call, 'E', zero_hidden(call.keys, seen.keys))
    values = self._project(call, 'F', zero_hidden(call.values, seen.keys))
    q, k = (mtf.cast(x, call.logits_dtype) for x in (call.queries, keys))
    return softmax_average(
      projected,
      Logits([], [InnerProduct(q, k, call.kv_dim)]),
      # The projected positions already exclude padding.
      Visibility(None, None, seen.queries),
      values,
      self.weight_dropout(call.context),
      self.z_loss(call.context),
    )

  def _project(
    self, call: LayerCall, name: str, memory: mtf.Tensor
  ) -> mtf.Tensor:
    """Computes E K or F V, [batch..., projected_length, heads, d_kv]."""
    columns = mtf.Dimension('memory_length', self.max_length)
    weights = call.variable(
      name,
      [*call.heads, self.projected_dim, columns],
      stddev=self.max_length**-0.5,
    )
    return mtf.einsum(
      [call.index.columns(weights), memory],
      mtf.Shape(call.batch + [self.projected_dim] + call.heads + [call.kv_dim]),
    )
