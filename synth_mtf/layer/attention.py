"""SyntheticAttention: the layer that takes the place of T5's SelfAttention."""

import copy
from collections.abc import Sequence
from typing import Any, Callable, Optional

import gin
import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer

from synth_mtf.core.layer_call import LayerCall, once
from synth_mtf.core.logits import Logits, add
from synth_mtf.core.positions import SlicedIndex, TableIndex
from synth_mtf.core.visibility import visibility
from synth_mtf.errors import ConfigurationError
from synth_mtf.layer.base import AttentionLayer
from synth_mtf.layer.mixing import MIXINGS, mixture
from synth_mtf.layer.refusals import choose
from synth_mtf.layer.weighted_sum import NORMALIZATIONS
from synth_mtf.synthesizers.base import SynthesizingFunction
from synth_mtf.synthesizers.dot_product import DotProduct

_INDEXED_BY_SEGMENT = {'position': True, 'row': False}


@gin.configurable(module='synth_mtf')
class SyntheticAttention(AttentionLayer):
  """Multi-head self-attention whose alignment is synthesized.

      B = sum_i alpha_i S_i(X) + relative position bias
      Y = softmax(B) G(X)

  (arXiv 2005.00743, eq. 3 and 8), with S_i the synthesizing functions,
  alpha_i their weights in a mixture, G(X) the values, the softmax over
  `memory_length` restricted to what is visible, and an output projection. With
  the default `[DotProduct]` it computes what SelfAttention computes, from the
  same variables.

  Shapes: X and the result are [batch..., length, d_model]; B is a subset of
  [batch..., heads, length, memory_length].
  """

  def __init__(
    self,
    synthesizers: Sequence[Callable[[], SynthesizingFunction]] = (DotProduct,),
    mixing: str = 'softmax',
    index_by: str = 'position',
    normalize: Optional[str] = 'softmax',
    packed: Optional[bool] = None,
    **kwargs: Any,
  ):
    """Creates a SyntheticAttention layer.

    Args:
      synthesizers: the functions S_i, as classes or as callables without
        arguments (`@Random` in gin, `functools.partial(Random,
        max_length=128)`); each layer makes its own.
      mixing: how alpha is found. 'softmax': learned for each head, summing to
        1 (the paper's); 'layer_softmax': learned for each layer; 'sum': all 1.
      index_by: which row and column of a table a token reads. 'position': its
        position inside its own sequence; 'row': its index in a packed row, as
        the original code does.
      normalize: 'softmax', or None for B G(X), the MLP-Mixer form.
      packed: whether a row may hold several sequences in training and
        evaluation. Default: what gin says of the data, that is
        `mesh_train_dataset_fn.pack` or `mesh_eval_dataset_fn.pack`, and True
        where it says nothing (which is right for unpacked rows too, but slow).
      **kwargs: those of `transformer_layers.SelfAttention`, bound in gin as
        `SelfAttention.*`.

    Raises:
      ConfigurationError: if a setting is unknown, does not fit, or is one of
        SelfAttention's that this layer does not support.
    """
    super().__init__(packed=packed, **kwargs)
    owner = type(self).__name__
    self.synthesizers = _make_functions(synthesizers)
    self.normalize = normalize
    self._alphas = choose(owner, 'mixing', mixing, MIXINGS)
    self._average = choose(owner, 'normalize', normalize, NORMALIZATIONS)
    self._by_segment = choose(owner, 'index_by', index_by, _INDEXED_BY_SEGMENT)

  @property
  def label(self) -> str:
    """The model's name in tables: "Syn (R+V)", and "T5 (V)" for T5 itself."""
    letters = '+'.join(function.letter for function in self.synthesizers)
    if self.normalize is None:
      return f'MLP-Mixer ({letters})'
    return (
      f'T5 ({letters})'
      if letters == DotProduct.letter
      else (f'Syn ({letters})')
    )

  def attend(self, call: LayerCall) -> mtf.Tensor:
    """softmax(B) G(X), [batch..., length, heads, d_kv]."""
    context = call.context
    return self._average(
      call,
      self._logits(call),
      visibility(call, self.is_packed(context)),
      call.values,
      self.weight_dropout(context),
      self.z_loss(context),
    )

  def table_index(self, context: transformer.Context) -> TableIndex:
    """How tables are read: as `index_by` says."""
    if self._by_segment or context.mode == 'incremental':
      return super().table_index(context)
    return SlicedIndex(
      context.mesh, context.length_dim, self.memory_length(context)
    )

  def _logits(self, call: LayerCall) -> Logits:
    """B: the mixture and the relative position bias."""
    terms = mixture(call, self.synthesizers, self._alphas)
    return add(call, terms + self._relative_position_bias(call))

  def _relative_position_bias(self, call: LayerCall) -> list[mtf.Tensor]:
    """The host's own bias; 'bias_shared' is made once for all layers."""
    if self.relative_attention_type is None:
      return []
    if self.relative_attention_type == 'bias_shared':
      name = f'relative position bias of {call.heads}'
      return [once(call.context, name, lambda: self._make_bias(call))]
    return [self._make_bias(call)]

  def _make_bias(self, call: LayerCall) -> mtf.Tensor:
    """The host's own bias, without the masks that it adds to it."""
    context = copy.copy(call.context)
    context.read_priority = context.sequence_id = context.subsequence_id = None
    if context.mode == 'incremental':
      keys = mtf.range(context.mesh, call.memory_length, tf.int32)
    else:
      keys = self.rename_length_to_memory_length(context.position, context)
    q = call.queries if self.relative_attention_type == 'contextual' else None
    bias = self.compute_bias(context, keys, call.x, call.heads, q)
    return mtf.cast(bias, call.logits_dtype)


def _make_functions(
  makers: Sequence[Callable[[], SynthesizingFunction]],
) -> list[SynthesizingFunction]:
  """Calls each maker; an error names what is not one."""
  try:
    makers = list(makers)
  except TypeError:
    makers = [makers]
  faults = [m for m in makers if not callable(m)]
  if not makers or faults:
    raise ConfigurationError(
      f'SyntheticAttention.synthesizers = {faults or makers}: expected a list '
      'of at least one synthesizing function, as in [@Random, @DotProduct]'
    )
  functions = [make() for make in makers]
  others = [f for f in functions if not isinstance(f, SynthesizingFunction)]
  if others:
    raise ConfigurationError(
      f'SyntheticAttention.synthesizers made {others}: expected instances of '
      'SynthesizingFunction'
    )
  return functions
