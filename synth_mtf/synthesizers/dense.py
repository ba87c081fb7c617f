"""Dense: each token projects itself to its own row of the alignment."""

from typing import Optional

import gin
import mesh_tensorflow as mtf

from synth_mtf.synthesizers.base import Site, Table, weighted


@gin.configurable(module='synth_mtf')
class Dense(Table):
  """D, S(x_i) = W2 ReLU(W1 x_i) (eq. 1 and 2, section 3.1.1).

  As in all of T5 there are no bias vectors. W1 maps d_model to d_kv in each
  head, W2 maps d_kv to N columns.
  """

  def __init__(
    self,
    key_value_size: Optional[int] = None,
    max_length: Optional[int] = None,
    tile_length: Optional[int] = None,
  ):
    """Creates a Dense synthesizing function.

    Args:
      key_value_size: width of the hidden layer in each head. Default: the
        layer's `key_value_size`.
      max_length: N. Default: the host's `Unitransformer.max_length` (512).
      tile_length: b <= N: project to b columns, tiled to the length.

    Raises:
      ConfigurationError: if a size does not fit.
    """
    super().__init__(max_length, tile_length)
    self.key_value_size = key_value_size

  def logits(self, site: Site, alpha: Optional[mtf.Tensor]) -> mtf.Tensor:
    """[..., length, heads, d_kv] x [heads, d_kv, memory_length]."""
    self.check_length(site)
    d_model = site.x.shape.dims[-1]
    d_kv = mtf.Dimension('d_kv', self.key_value_size or site.kv_dim.size)
    w1 = site.variable(
      'W1', [d_model, *site.heads, d_kv], stddev=d_model.size**-0.5
    )
    # ReLU halves the second moment; the 2 makes up for it, so that logits
    # start with unit variance.
    w2 = site.variable(
      'W2',
      [*site.heads, d_kv, self.columns_dim],
      stddev=(2 / d_kv.size) ** 0.5,
      dtype=site.logits_dtype,
    )
    hidden = mtf.relu(
      mtf.einsum(
        [site.x, w1],
        mtf.Shape(site.x.shape.dims[:-1] + [*site.heads, d_kv]),
      )
    )
    hidden = weighted(mtf.cast(hidden, site.logits_dtype), alpha)
    return mtf.einsum([hidden, site.index.columns(w2)], site.local)
