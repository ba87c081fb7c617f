"""Linformer: attention to a fixed number of projected memory positions."""

from typing import Optional

import gin
import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer, transformer_layers

from synth_mtf.alignment import Dropout
from synth_mtf.errors import ConfigurationError
from synth_mtf.packing import data_is_packed, rows_are_packed
from synth_mtf.positions import SlicedIndex
from synth_mtf.projections import Projections
from synth_mtf.synthesizers.base import Site, host_max_length, require_length
from synth_mtf.visibility import visibility


@gin.configurable(module='synth_mtf')
class Linformer(transformer_layers.SelfAttention):
  """Self-attention of an encoder over k projected positions.

      Y = softmax(Q (E K)^T) (F V),  E, F in R^(k x N) for each head

  (Wang et al., arXiv 2006.04768, eq. 7; the paper on Synthesizers compares with
  k = 32 in the encoder.) E and F are learned; padding is left out of both
  products. Positions are mixed ahead of the softmax, so that neither causality,
  nor packed rows, nor a relative position bias can be had: each is refused.
  """

  def __init__(
    self,
    projected_length: int = 32,
    max_length: Optional[int] = None,
    packed: Optional[bool] = None,
    **kwargs,
  ):
    """Creates a Linformer layer.

    Args:
      projected_length: k.
      max_length: N. Default: the host's `Unitransformer.max_length` (512).
      packed: whether rows may hold several sequences, which is refused.
        Default: what gin says of the data, as for SyntheticAttention.
      **kwargs: those of `transformer_layers.SelfAttention`.

    Raises:
      ConfigurationError: if k < 1, or there is a relative position bias.
    """
    super().__init__(**kwargs)
    self.max_length = max_length or host_max_length()
    if projected_length < 1:
      raise ConfigurationError(
        f'Linformer.projected_length = {projected_length}: expected at least 1'
      )
    self.projected_dim = mtf.Dimension('projected_length', projected_length)
    self.packed = data_is_packed() if packed is None else packed
    if self.relative_attention_type is not None:
      raise ConfigurationError(
        'Linformer has no relative position bias; set '
        'Linformer.relative_attention_type = None'
      )

  def call(
    self,
    context: transformer.Context,
    x: mtf.Tensor,
    losses: Optional[list] = None,
  ) -> mtf.Tensor:
    """Calls the layer on [batch..., length, d_model] of an encoder.

    Raises:
      ConfigurationError: in a decoder, for packed rows, or beyond N.
    """
    if context.read_priority is not None:
      raise ConfigurationError(
        'Linformer works in an encoder only; bind another layer in '
        'decoder/transformer.make_layer_stack.layers'
      )
    if rows_are_packed(context, self.packed):
      raise ConfigurationError(
        'Linformer would mix the sequences of a packed row; set '
        'mesh_train_dataset_fn.pack = False'
      )
    site = Site(
      context,
      x,
      Projections.of_layer(self, context),
      SlicedIndex(
        context.mesh, context.length_dim, self.memory_length(context)
      ),
      self.kv_dim,
      tf.float32,
    )
    seen = visibility(site, packed=False)
    keys = self._project(site, 'E', site.keys, seen.keys)
    values = self._project(site, 'F', site.values, seen.keys)
    positions = self.projected_dim
    logits = mtf.einsum(
      [mtf.cast(site.queries, tf.float32), mtf.cast(keys, tf.float32)],
      mtf.Shape(site.batch + site.heads + site.length + [positions]),
    )
    dropout = Dropout(
      self.dropout_rate if context.train else 0.0, [context.length_dim]
    )
    y = mtf.einsum(
      [
        mtf.cast(mtf.softmax(logits, positions), values.dtype),
        dropout.of_values(values, site),
      ],
      mtf.Shape(site.batch + site.length + site.heads + [self.kv_dim]),
    )
    if seen.queries is not None:
      y *= mtf.cast(seen.queries, y.dtype)
    return site.projections.compute_output(y, output_shape=x.shape)

  def _project(self, site, name, memory, tokens):
    """E K or F V, [batch..., projected_length, heads, d_kv]."""
    require_length('Linformer', self.max_length, site.memory_length.size)
    columns = mtf.Dimension('memory_length', self.max_length)
    weights = site.variable(
      name,
      [*site.heads, self.projected_dim, columns],
      stddev=self.max_length**-0.5,
    )
    if tokens is not None:
      memory *= mtf.cast(tokens, memory.dtype)
    return mtf.einsum(
      [site.index.columns(weights), memory],
      mtf.Shape(site.batch + [self.projected_dim] + site.heads + [site.kv_dim]),
    )
