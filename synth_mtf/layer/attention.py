"""SyntheticAttention, which replaces T5's SelfAttention."""

import copy

import gin
import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf

from synth_mtf.core.context import cached
from synth_mtf.core.layer_call import LayerCall
from synth_mtf.layer.synthetic import SyntheticLayer


@gin.configurable(module='synth_mtf')
class SyntheticAttention(SyntheticLayer):
  """Multi-head self-attention with a synthesized alignment.

      B = sum_i alpha_i S_i(X) + relative position bias
      Y = softmax(B) G(X)

  With the default `[DotProduct]` it computes the same as SelfAttention, from
  the same variables. Arguments and shapes are those of `SyntheticLayer`.
  """

  @property
  def label(self) -> str:
    """The model's name in tables: "Syn (R+V)", and "T5 (V)" for T5 itself."""
    kind = 'T5' if self.letters == 'V' else 'Syn'
    if self.normalize is None:
      kind = 'MLP-Mixer'
    is_other = self.mixing != 'softmax' and len(self.synthesizers) > 1
    mixing = f', {self.mixing}' if is_other else ''
    index = '' if self.index_by == 'position' else f', by {self.index_by}'
    return f'{kind} ({self.letters}){mixing}{index}'

  def relative_position_bias(self, call: LayerCall) -> list[mtf.Tensor]:
    """Returns the host's bias; with 'bias_shared', all layers share one."""
    if self.relative_attention_type is None:
      return []
    if self.relative_attention_type == 'bias_shared':
      name = f'relative position bias of {call.heads}'
      return [cached(call.context, name, lambda: self._make_bias(call))]
    return [self._make_bias(call)]

  def _make_bias(self, call: LayerCall) -> mtf.Tensor:
    """Computes the host's bias without the masks that the host adds to it."""
    context = copy.copy(call.context)
    context.read_priority = context.sequence_id = context.subsequence_id = None
    if context.mode == 'incremental':
      keys = mtf.range(context.mesh, call.memory_length, tf.int32)
    else:
      keys = self.rename_length_to_memory_length(context.position, context)
    q = call.queries if self.relative_attention_type == 'contextual' else None
    bias = self.compute_bias(context, keys, call.x, call.heads, q)
    return mtf.cast(bias, call.logits_dtype)
