"""What the Dense synthesizing functions share: a hidden layer and columns."""

import abc
from typing import Optional

import mesh_tensorflow as mtf

from synth_mtf.synthesizers.base import InnerProduct, Site, Table, weighted


class Local(Table):
  """S(x_i) = W2 h(X)_i: each token makes its own row of logits.

  A subclass says what the hidden layer h is. As in all of T5 there are no bias
  vectors. W2, [heads, d_kv, memory_length], maps to N columns.
  """

  def __init__(
    self,
    key_value_size: Optional[int] = None,
    max_length: Optional[int] = None,
    tile_length: Optional[int] = None,
  ):
    """Creates a local synthesizing function.

    Args:
      key_value_size: width of the hidden layer in each head. Default: the
        layer's `key_value_size`.
      max_length: N. Default: the host's `Unitransformer.max_length` (512).
      tile_length: b <= N: project to b columns, tiled to the length.

    Raises:
      ConfigurationError: if a size does not fit.
    """
    super().__init__(max_length, tile_length)
    self.require_positive('key_value_size', key_value_size)
    self.key_value_size = key_value_size

  @abc.abstractmethod
  def hidden(self, site: Site) -> mtf.Tensor:
    """Computes h(X), [batch..., length, heads, d_kv], with second moment 1."""

  def hidden_dims(self, site: Site) -> list[mtf.Dimension]:
    """[heads, d_kv] of the hidden layer."""
    size = self.key_value_size or site.kv_dim.size
    return [*site.heads, mtf.Dimension('d_kv', size)]

  def logits(self, site: Site, alpha: Optional[mtf.Tensor]) -> InnerProduct:
    """[..., length, heads, d_kv] x [heads, d_kv, memory_length]."""
    self.check_length(site)
    *heads, d_kv = self.hidden_dims(site)
    w2 = site.variable(
      'W2',
      [*heads, d_kv, self.columns_dim],
      stddev=d_kv.size**-0.5,
      dtype=site.logits_dtype,
    )
    hidden = mtf.cast(self.hidden(site), site.logits_dtype)
    return InnerProduct(weighted(hidden, alpha), site.index.columns(w2), d_kv)


def project(
  site: Site,
  x: mtf.Tensor,
  name: str,
  dims: list[mtf.Dimension],
  reduced: int = 1,
  gain: float = 1.0,
) -> mtf.Tensor:
  """The product x W with a new W, whose initial values keep the second moment.

  Args:
    site: the layer call.
    x: [..., in], where `in` are the last `reduced` dimensions.
    name: the variable's name.
    dims: the dimensions to project to.
    reduced: how many dimensions of x are summed over.
    gain: factor on the second moment, 2 ahead of a ReLU, which halves it.

  Returns:
    [..., *dims].
  """
  kept, summed = x.shape.dims[:-reduced], x.shape.dims[-reduced:]
  w = site.variable(
    name, summed + dims, stddev=(gain / mtf.Shape(summed).size) ** 0.5
  )
  return mtf.einsum([x, w], mtf.Shape(kept + dims))
