"""T5's own cross-attention, by our layer."""

import gin

from synth_mtf.layer.enc_dec_attention import SyntheticEncDecAttention


@gin.configurable('DotProductEncDecAttention', module='synth_mtf')
class EncDecAttention(SyntheticEncDecAttention):
  """The host's EncDecAttention, computed as our layers compute V.

  For `synth_mtf.cross_attention.otherwise`. The host names variables after the
  class, so this one is named after the host's. Arguments are the host's.
  """

  @property
  def label(self) -> str:
    """Nothing: the model is the one that it is with the host's layer."""
    return ''
