"""AttentionLayer, the base class of the project's attention layers."""

import abc
import functools
from collections.abc import Collection
from typing import Any, ClassVar

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer, transformer_layers

from synth_mtf.core.context import (
  data_is_packed,
  row_sequence_id,
  rows_are_packed,
)
from synth_mtf.core.layer_call import LayerCall
from synth_mtf.core.memory import Memory, own_sequence
from synth_mtf.core.positions import TableIndex, packed_index
from synth_mtf.core.projections import Projections
from synth_mtf.core.visibility import Visibility, visibility
from synth_mtf.cpu.padding import einsum, mask
from synth_mtf.layer import refusals
from synth_mtf.layer.weighted_sum import Dropout, UseLogZ


class AttentionLayer(transformer_layers.SelfAttention, abc.ABC):
  """Base class for replacements of T5's self-attention.

  It accepts SelfAttention's arguments and honours or rejects each of them. A
  subclass implements `attend`; this class makes the projections and applies the
  output projection. Queries attend to the layer's own input unless a subclass
  overrides `memory`, `memory_length` and `memory_sequence_id`.

  Attributes:
    packed: whether a row may hold several sequences in training and
      evaluation.
    index_by: 'position' or 'row', as in `SyntheticLayer`.
    value_bias: whether values have a bias.
    frozen: names of projections that keep their initial values.
    relative_attention_types: the supported kinds of relative position bias.
  """

  relative_attention_types: ClassVar[Collection[str | None]] = (
    None,
    'bias',
    'bias_shared',
    'contextual',
  )
  index_by: str = 'position'
  value_bias: bool = False
  frozen: Collection[str] = ()

  def __init__(self, packed: bool | None = None, **kwargs: Any) -> None:
    """Creates a layer.

    Args:
      packed: whether a row may hold several sequences in training and
        evaluation. Default: `mesh_train_dataset_fn.pack` or
        `mesh_eval_dataset_fn.pack`, or True if gin sets neither. True is
        correct for unpacked rows too, but slow.
      **kwargs: arguments of `transformer_layers.SelfAttention`, bound in gin as
        `SelfAttention.*`.

    Raises:
      ConfigurationError: if a setting is invalid or not supported.
    """
    super().__init__(**kwargs)
    self.packed = data_is_packed() if packed is None else packed
    refusals.check_settings(self, self.relative_attention_types)

  @property
  @abc.abstractmethod
  def label(self) -> str:
    """The model's name in tables, as in "Syn (R+V)"."""

  @abc.abstractmethod
  def attend(self, call: LayerCall) -> mtf.Tensor:
    """Returns Y, the weighted values.

    Its shape is [batch..., length, heads, d_kv]; it is 0 at padding.
    """

  def call(
    self,
    context: transformer.Context,
    x: mtf.Tensor,
    losses: list[mtf.Tensor] | None = None,  # noqa: ARG002
  ) -> mtf.Tensor:
    """Calls the layer.

    Args:
      context: the host's Context, in any of its modes.
      x: [batch..., length, d_model], or [batch..., d_model] in incremental
        decoding; zero at padding.
      losses: unused; the host may pass it by name.

    Returns:
      A tensor of the shape of x.

    Raises:
      ConfigurationError: for float16, and a mesh that splits d_kv.
    """
    refusals.check_types(self, context)
    refusals.check_mesh(self, context.model)
    float32_logits = self.attention_kwargs.get('float32_logits', True)
    call = LayerCall(
      context=context,
      x=x,
      projections=self.make_params(context),
      index=self.table_index(context),
      memory=self.memory(context, x),
      memory_length=self.memory_length(context),
      kv_dim=self.kv_dim,
      logits_dtype=tf.float32 if float32_logits else context.activation_dtype,
    )
    return call.projections.compute_output(self.attend(call), x.shape)

  def make_params(self, context: transformer.Context) -> Projections:
    """Returns the layer's q, k, v and o, each created on first use."""
    memory_ids = self.memory_sequence_id(context)
    if memory_ids is None:
      memory_ids = context.sequence_id
    masks = [
      *mask(context, context.sequence_id, context.length_dim),
      *mask(context, memory_ids, self.memory_length(context)),
    ]
    return Projections(
      self,
      context,
      functools.partial(einsum, masks),
      self.frozen,
      self.value_bias,
    )

  def table_index(self, context: transformer.Context) -> TableIndex:
    dims = context.length_dim, self.memory_length(context)
    if self.index_by == 'position' and self.is_packed(context):
      return packed_index(
        *dims, row_sequence_id(context), self.memory_sequence_id(context)
      )
    step = context.position if context.mode == 'incremental' else None
    return TableIndex(context.mesh, *dims, queries=step)

  def memory(self, context: transformer.Context, x: mtf.Tensor) -> Memory:
    return own_sequence(context, x, self.memory_length(context))

  def memory_sequence_id(
    self, _context: transformer.Context
  ) -> mtf.Tensor | None:
    """Segment ids, [batch..., memory_length]; None if the memory is x."""
    return None

  def visibility(self, call: LayerCall) -> Visibility:
    is_packed = self.is_packed(call.context)
    return visibility(call, is_packed, zero_padding=self.value_bias)

  def is_packed(self, context: transformer.Context) -> bool:
    """Whether the rows of this call may hold several sequences."""
    return rows_are_packed(context, self.packed)

  def weight_dropout(self, context: transformer.Context) -> Dropout:
    """Returns the weight dropout that SelfAttention's settings define."""
    broadcast = self.attention_kwargs.get('dropout_broadcast_dims')
    return Dropout(
      self.dropout_rate if context.train else 0.0,
      [context.length_dim] if broadcast is None else broadcast,
    )

  def z_loss(self, context: transformer.Context) -> UseLogZ | None:
    """Returns a function that adds T5's auxiliary loss on log Z.

        z_loss_coeff * mean(nonpadding * (log Z)^2)

    Returns None outside training or without a coefficient.
    """
    if self.z_loss_coeff is None or not context.train:
      return None

    def add_loss(log_z: mtf.Tensor) -> None:
      loss = mtf.square(log_z)
      if isinstance(context.nonpadding, mtf.Tensor):
        loss *= mtf.cast(context.nonpadding, log_z.dtype)
      loss = mtf.reduce_mean(loss) / (context.num_microbatches or 1)
      mtf.scalar_summary('attention_z_loss', loss)
      context.losses.append(
        mtf.cast(loss * self.z_loss_coeff, context.activation_dtype)
      )

    return add_loss
