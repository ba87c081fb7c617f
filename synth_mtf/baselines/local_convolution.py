"""The host's lightweight and dynamic convolutions, as baselines."""

import functools
from collections.abc import Callable
from typing import Any

import gin
import mesh_tensorflow as mtf
from mesh_tensorflow.transformer import transformer, transformer_layers

from synth_mtf.core.context import DECODING, data_is_packed
from synth_mtf.core.neighbours import given_neighbours
from synth_mtf.layer.refusals import check_unpacked


# The class name is part of the names of variables in checkpoints.
@gin.configurable('LocalConvolution', module='synth_mtf')
class LocalConvAttnBlock(transformer_layers.LocalConvAttnBlock):
  """The host's convolutions, which decode as they are trained.

  (Wu et al., arXiv 1901.10430.) In training, the host sets the input of the
  convolution to 0 where the token is 0: at padding, and at the first position
  of a decoder. In decoding it does not, and the tokens whose window reaches the
  first position get other logits. It also forgets given tokens (of a language
  model's prompt) if the row ends within a window of them. Here, decoding
  computes what training computes.

  The host's layer also mixes the sequences of a packed row; this one rejects
  packed rows. Variables and settings are the host's
  (`transformer_layers.LocalConvAttnBlock.*`).
  """

  def __init__(self, packed: bool | None = None, **kwargs: Any) -> None:
    """Creates a layer.

    Args:
      packed: whether a row may hold several sequences in training and
        evaluation; the default is that of `AttentionLayer`.
      **kwargs: arguments of `transformer_layers.LocalConvAttnBlock`.
    """
    super().__init__(**kwargs)
    self.packed = data_is_packed() if packed is None else packed
    convolution = self.conv_local_attn_layer
    convolution.call = functools.partial(
      _convolve, convolution.call, convolution.filter_size
    )

  def call(
    self,
    context: transformer.Context,
    x: mtf.Tensor,
    losses: list[mtf.Tensor] | None = None,
  ) -> mtf.Tensor:
    """Calls the host's layer.

    Raises:
      ConfigurationError: for packed rows.
    """
    check_unpacked('LocalConvolution', context, self.packed)
    return super().call(context, x, losses)


def _convolve(
  convolve: Callable[..., mtf.Tensor],
  width: int,
  context: transformer.Context,
  x: mtf.Tensor,
  losses: list[mtf.Tensor] | None = None,
) -> mtf.Tensor:
  """Convolves x; in decoding, with the neighbours that training shows it.

  Args:
    convolve: calls the host's convolution.
    width: number of tokens that it sees.
    context: the host's Context.
    x: the input of the convolution.
    losses: as in `call`.
  """
  if context.mode not in DECODING:
    return convolve(context, x, losses)
  x *= mtf.cast(mtf.not_equal(_tokens(context), 0), x.dtype)
  y = convolve(context, x, losses)
  if context.mode == 'first_part':
    # The host's own state lacks tokens if the row ends within its width.
    window = mtf.Dimension(context.length_dim.name, width)
    context.new_states[-1] = given_neighbours(context, x, window)
  return y


def _tokens(context: transformer.Context) -> mtf.Tensor:
  """Returns the tokens that a call of decoding reads."""
  if context.mode == 'first_part':
    # Here, the host leaves the shift to its embedding.
    return transformer.autoregressive_inputs(context.inputs)
  return context.inputs
