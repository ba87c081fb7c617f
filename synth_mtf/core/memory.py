"""The tokens that a layer attends to, and how decoding remembers them.

OwnSequence    self-attention: the layer's own input, one token longer with
               each step of decoding.
EncoderOutput  cross-attention: the same for all steps.
"""

import abc
from collections.abc import Callable

import mesh_tensorflow as mtf
from mesh_tensorflow.transformer import transformer

from synth_mtf.core import kernels

# From [batch..., memory_length, d_model], or a single token's [batch...,
# d_model], to the same with other dimensions in place of d_model.
Projection = Callable[[mtf.Tensor], mtf.Tensor]


class Memory(abc.ABC):
  """The tokens that a layer attends to."""

  @abc.abstractmethod
  def project(self, projection: Projection) -> mtf.Tensor:
    """Projects the tokens; decoding projects each one only once.

    Args:
      projection: maps each token independently.

    Returns:
      [batch..., memory_length, ...], in incremental decoding with the tokens of
      earlier steps, and memory_length before the last dimension.
    """


class OwnSequence(Memory):
  """The layer's own input, [batch..., length, d_model]."""

  def __init__(
    self,
    context: transformer.Context,
    x: mtf.Tensor,
    memory_length: mtf.Dimension,
  ) -> None:
    self._context = context
    self._memory_length = memory_length
    self._tokens = (
      x
      if context.mode == 'incremental'
      else mtf.replace_dimensions(x, context.length_dim, memory_length)
    )

  def project(self, projection: Projection) -> mtf.Tensor:
    """All tokens at once, or the current one with the earlier ones."""
    context = self._context
    projected = projection(self._tokens)
    if context.mode == 'incremental':
      (earlier,) = context.get_states(1)
      projected = kernels.put(
        projected, earlier, context.position, self._memory_length
      )
    elif context.mode == 'first_part':
      projected = _for_steps(projected, self._memory_length)
    if context.mode in ('first_part', 'incremental'):
      context.record_new_states([projected])
    return projected


class EncoderOutput(Memory):
  """The encoder's output, [batch..., memory_length, d_model]."""

  def __init__(self, context: transformer.Context) -> None:
    self._context = context

  def project(self, projection: Projection) -> mtf.Tensor:
    """All tokens, projected once for all steps of decoding."""
    context = self._context
    if context.mode == 'incremental':
      return context.get_constant_state()
    projected = projection(context.encoder_output)
    if context.mode == 'first_part':
      projected = _for_steps(projected, context.encoder_length_dim)
      context.record_constant_state(projected)
    return projected


def _for_steps(x: mtf.Tensor, memory_length: mtf.Dimension) -> mtf.Tensor:
  """A matrix for each head, as the steps of decoding multiply it."""
  *others, last = (d for d in x.shape.dims if d != memory_length)
  return mtf.transpose(x, mtf.Shape([*others, memory_length, last]))
