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
    """Computes h(X), [batch..., length, heads, *summed_dims], of variance 1."""

  def d_kv(self, site: Site) -> mtf.Dimension:
    """The width of the hidden layer in each head."""
    return mtf.Dimension('d_kv', self.key_value_size or site.kv_dim.size)

  def summed_dims(self, site: Site) -> list[mtf.Dimension]:
    """What W2 sums over: [d_kv]."""
    return [self.d_kv(site)]

  def logits(self, site: Site, alpha: Optional[mtf.Tensor]) -> InnerProduct:
    """[..., length, heads, d_kv] x [heads, d_kv, memory_length]."""
    self.check_length(site)
    summed = self.summed_dims(site)
    k = mtf.Dimension('d_kv', mtf.Shape(summed).size)
    w2 = site.variable(
      'W2',
      [*site.heads, *summed, self.columns_dim],
      stddev=k.size**-0.5,
      dtype=site.logits_dtype,
    )
    hidden = mtf.cast(self.hidden(site), site.logits_dtype)
    return InnerProduct(
      weighted(mtf.replace_dimensions(hidden, summed, k), alpha),
      site.index.columns(mtf.replace_dimensions(w2, summed, k)),
      k,
    )


def project(
  site: Site,
  x: mtf.Tensor,
  name: str,
  dims: list[mtf.Dimension],
  reduced: int = 1,
  gain: float = 1.0,
) -> mtf.Tensor:
  """The product x W with a new W that at first keeps the second moment.

  Args:
    site: the layer call.
    x: [..., in], where `in` are the last `reduced` dimensions.
    name: the variable's name.
    dims: the dimensions to project to.
    reduced: how many dimensions of x are summed over.
    gain: factor on the second moment, to make up for a nonlinearity.

  Returns:
    [..., *dims].
  """
  kept, summed = x.shape.dims[:-reduced], x.shape.dims[-reduced:]
  w = site.variable(
    name, summed + dims, stddev=(gain / mtf.Shape(summed).size) ** 0.5
  )
  return mtf.einsum([x, w], mtf.Shape(kept + dims))


def relu_layer(site: Site, d_kv: mtf.Dimension) -> mtf.Tensor:
  """ReLU(W1 x_i), [batch..., length, heads, d_kv]; W1 [d_model, heads, d_kv].

  ReLU halves the second moment; the gain of 2 makes up for it.
  """
  return mtf.relu(project(site, site.x, 'W1', [*site.heads, d_kv], gain=2.0))
