"""ConvReluDense, a feed-forward layer with a convolution."""

import gin
import mesh_tensorflow as mtf
from mesh_tensorflow.transformer import transformer

from synth_mtf.core.neighbours import neighbours
from synth_mtf.synthesizers.base import check_sizes


@gin.configurable(module='synth_mtf')
class ConvReluDense(transformer.TransformerLayer):
  """The host's DenseReluDense with a convolution as its first product.

      Y_i = W2 ReLU(sum_o W1[o] x_(i+o))

  Offsets are centered in an encoder and end at the token itself in a decoder.
  Neighbours in padding or in another sequence count as 0, so that packed and
  unpacked rows give equal results.

  Shapes: X and Y are [batch..., length, d_model]; W1 (`wi/kernel`) is
  [filter_width, d_model, d_ff], W2 (`wo/kernel`) [d_ff, d_model].
  """

  def __init__(
    self,
    hidden_size: int = 2048,
    filter_width: int = 3,
    dropout_rate: float = 0.0,
  ) -> None:
    """Creates a ConvReluDense layer.

    Args:
      hidden_size: d_ff.
      filter_width: number of tokens that the convolution sees.
      dropout_rate: dropout of the hidden layer, shared by all tokens as in
        DenseReluDense.

    Raises:
      ConfigurationError: if a size is below 1.
    """
    check_sizes(self, hidden_size=hidden_size, filter_width=filter_width)
    self.hidden_size = hidden_size
    self.hidden_dim = mtf.Dimension('d_ff', hidden_size)
    self.filter_dim = mtf.Dimension('filter_width', filter_width)
    self.dropout_rate = dropout_rate

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
    """
    d_model = x.shape.dims[-1]
    window = neighbours(context, x, self.filter_dim)
    h = mtf.layers.dense(
      window,
      self.hidden_dim,
      reduced_dims=window.shape.dims[-2:],
      use_bias=False,
      activation=mtf.relu,
      variable_dtype=context.variable_dtype,
      name='wi',
      expert_dims=context.model.ensemble_dims,
    )
    if context.train and self.dropout_rate:
      h = mtf.dropout(
        h,
        context.train,
        rate=self.dropout_rate,
        noise_shape=h.shape - context.length_dim,
      )
    return mtf.layers.dense(
      h,
      d_model,
      reduced_dims=h.shape.dims[-1:],
      use_bias=False,
      variable_dtype=context.variable_dtype,
      name='wo',
      expert_dims=context.model.ensemble_dims,
    )
