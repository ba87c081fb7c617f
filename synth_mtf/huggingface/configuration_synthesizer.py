"""The configuration of a model, for transformers."""

from typing import Any, ClassVar

from transformers import T5Config

from .settings_synthesizer import (
  MIXINGS,
  check_choice,
  from_file,
  to_file,
  variant_settings,
)


class SynthesizerConfig(T5Config):
  """T5's settings and those of this model; by default, the model is T5.

  Args:
    variant: of self-attention, one of `VARIANTS`; the functions of the gin file
      of this name. Without it, `attention` has the settings.
    cross_variant: of the decoder's attention to the encoder; default: T5's.
    mixing: how alpha weighs several functions, one of `MIXINGS`. Its scores are
      learned per head (softmax, the paper's) or per layer, or all are 1 (sum).
    max_position_embeddings: the most tokens of a sequence, N, of a variant;
      `Unitransformer.max_length` in gin. Default: 512.
    **settings: T5's, such as d_model, d_ff, num_layers, num_heads, d_kv,
      vocab_size, dropout_rate and feed_forward_proj.

  Raises:
    ValueError: for an unknown variant or mixing.
  """

  model_type = 'synthesizer'
  attention: ClassVar[Any] = {}  # settings of 'encoder', 'decoder', 'cross'
  positions: ClassVar[Any] = {}  # lengths of the learned positions
  shared_positions = False
  use_bias = False  # in the feed-forward layers
  true_layer_norm = False  # with mean and bias

  def __init__(
    self,
    variant: str | None = None,
    cross_variant: str | None = None,
    mixing: str = 'softmax',
    max_position_embeddings: int | None = None,
    **settings: Any,
  ) -> None:
    super().__init__(**{'decoder_start_token_id': 0, **settings})
    self.variant, self.cross_variant = variant, cross_variant
    self.mixing = check_choice('mixing', mixing, MIXINGS)
    self.max_position_embeddings = max_position_embeddings
    if not self.attention:  # files have the settings
      names = {'encoder': variant, 'decoder': variant, 'cross': cross_variant}
      self.attention = {  # type: ignore[misc]
        kind: variant_settings(self, kind, name)
        for kind, name in names.items()
        if name and name != 'vanilla'
      }

  @classmethod
  def from_dict(cls, config_dict: dict[str, Any], **others: Any) -> Any:
    return super().from_dict(from_file(config_dict), **others)

  def to_dict(self) -> dict[str, Any]:
    return to_file(super().to_dict())
