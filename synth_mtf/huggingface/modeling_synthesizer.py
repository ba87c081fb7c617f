"""T5 with the attention of Synthesizer (arXiv 2005.00743), in PyTorch.

    B = sum_i alpha_i S_i(X) + relative position bias
    Y = softmax(B) G(X)

Everything else is T5 as it is in `transformers`. A model that is trained from
scratch is described by T5's sizes and a variant:

    config = SynthesizerConfig(variant='random_vanilla', d_model=256, d_ff=1024)
    model = SynthesizerForConditionalGeneration(config)

`config.attention` has the settings of the encoder's, the decoder's and the
cross-attention, for each that differs from T5's. Parameters of the synthesizing
functions S_i have the names and shapes of the original model, and the same
initial values.

X is [batch, length, d_model], B [batch, heads, length, memory_length]; a batch
size of 1 means that B does not depend on the tokens.

This file imports all modules of the model itself: transformers 5.1 leaves out
those that only another module imports, when it loads a folder.
"""

import copy
import functools
import inspect
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import (
  EncoderDecoderCache,
  T5ForConditionalGeneration,
  T5ForSequenceClassification,
  T5Model,
)
from transformers.models.t5.modeling_t5 import (
  T5Attention,
  T5LayerNorm,
  T5Stack,
)

from .attention_synthesizer import (
  PositionBias,
  Projection,
  SyntheticAttention,
)
from .beams_synthesizer import BeamSearch
from .configuration_synthesizer import SynthesizerConfig
from .functions_synthesizer import Synthesizer
from .padding_synthesizer import (
  GAPS,
  PADDING_IN_CACHE,
  left_padding,
  require_no_gaps,
  restore,
  rotate,
)
from .releases_synthesizer import (
  CACHE,
  PASSED_ON,
  create_masks_for_generate,
  refuse_unknown,
)
from .settings_synthesizer import MIXINGS, VARIANTS

__all__ = (
  'MIXINGS',
  'VARIANTS',
  'SyntheticAttention',
  'SynthesizerConfig',
  'SynthesizerForConditionalGeneration',
  'SynthesizerForSequenceClassification',
  'SynthesizerModel',
)
FLEX = 'flex_attention'


def check_implementation(name: Any) -> None:
  """Raises a ValueError if `attn_implementation` is not supported."""
  if name not in (None, 'eager', 'sdpa', FLEX):
    raise ValueError(
      f'attn_implementation={name!r} is not supported; leave it out, or use '
      f"'sdpa', 'eager' or {FLEX!r}, which compute the same here"
    )


def require_tokens(what: str, shape: Any) -> None:
  """Raises a ValueError if [batch, length] has no tokens."""
  if not shape[1]:
    raise ValueError(
      f'{what} have no tokens, [batch, length] = {list(shape)}; expected at '
      'least one, such as the end token'
    )


def initialize(module: nn.Module) -> None:
  """Draws a module's initial values, distributed as in Mesh-TensorFlow.

  transformers calls it for each module that itself has parameters.
  """
  ours = Synthesizer, SyntheticAttention, Projection, PositionBias
  if isinstance(module, ours):
    module.initialize()
  elif isinstance(module, nn.Embedding):
    nn.init.normal_(module.weight)
  elif isinstance(module, nn.Linear):
    stddev = module.in_features**-0.5
    nn.init.trunc_normal_(
      module.weight, std=stddev, a=-2 * stddev, b=2 * stddev
    )
    if module.bias is not None:
      nn.init.zeros_(module.bias)
  elif isinstance(module, (nn.LayerNorm, T5LayerNorm)):
    nn.init.ones_(module.weight)
    if getattr(module, 'bias', None) is not None:
      nn.init.zeros_(module.bias)


class SynthesizedModel:
  """What all models and stacks have in common; comes before T5's class."""

  config_class = SynthesizerConfig
  _supports_flex_attn = True

  def _init_weights(self, module: nn.Module) -> None:
    initialize(module)

  def set_attn_implementation(
    self, attn_implementation: Any, *args: Any, **others: Any
  ) -> None:
    """Chooses how attention is computed; what it computes stays the same."""
    check_implementation(attn_implementation)
    model: Any = self
    model.config._attn_implementation = attn_implementation or 'sdpa'
    for module in model.modules():
      if isinstance(module, SynthesizerStack):
        module.config._attn_implementation = for_t5(
          model.config._attn_implementation
        )
      if isinstance(module, SyntheticAttention):
        module.fuses = module.can_fuse and attn_implementation == FLEX

  @staticmethod
  def create_masks_for_generate(config: Any, **arguments: Any) -> Any:
    config = copy.copy(config)
    config._attn_implementation = for_t5(config._attn_implementation)
    return create_masks_for_generate(config, **arguments)


def for_t5(implementation: Any) -> Any:
  """Returns the implementation whose masks T5 makes for our attention."""
  return 'sdpa' if implementation == FLEX else implementation


def requested(config: Any) -> Any:
  """Returns what `attn_implementation` asks for, and hides it from T5."""
  implementation = config._attn_implementation
  check_implementation(implementation)
  config._attn_implementation = for_t5(implementation)
  return implementation


class SynthesizerStack(SynthesizedModel, T5Stack):
  """T5's encoder or decoder, with its attention replaced.

  Inside, all sequences begin at position 0: padding on the left moves to the
  right, and back in the outputs.
  """

  def __init__(self, config: Any) -> None:
    super().__init__(config)
    self.kind = 'decoder' if config.is_decoder else 'encoder'
    for name, module in list(self.named_modules()):
      other = self.replacement(name, module)
      if other is not None:
        self.set_submodule(name, other)
    if self.kind in config.positions:
      self.positions = nn.Embedding(config.positions[self.kind], config.d_model)

  def replacement(self, name: str, module: nn.Module) -> nn.Module | None:
    """Returns the replacement for one of T5's modules, or None."""
    config = self.config
    if isinstance(module, T5Attention):
      kind = 'cross' if name.endswith('EncDecAttention') else self.kind
      return SyntheticAttention(config, kind, module.layer_idx)
    if isinstance(module, T5LayerNorm) and config.true_layer_norm:
      return nn.LayerNorm(config.d_model, config.layer_norm_epsilon)
    is_dense = isinstance(module, nn.Linear) and 'DenseReluDense' in name
    if is_dense and config.use_bias:
      return nn.Linear(module.in_features, module.out_features)
    return None

  def embedded(self, input_ids: Any, inputs_embeds: Any) -> Tensor:
    """Returns the embeddings of the tokens, of which there is at least one."""
    if (input_ids is None) == (inputs_embeds is None):
      given = 'neither' if input_ids is None else 'both'
      instead = ' (or labels)' if self.kind == 'decoder' else ''
      prefix = 'decoder_' if self.kind == 'decoder' else ''
      raise ValueError(
        f'the {self.kind} was given {given} of {prefix}input_ids and '
        f'{prefix}inputs_embeds; expected one of them{instead}'
      )
    x = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
    require_tokens(f"the {self.kind}'s inputs", x.shape[:2])
    return x

  def forward(
    self,
    input_ids: Tensor | None = None,
    attention_mask: Tensor | None = None,
    encoder_hidden_states: Tensor | None = None,
    encoder_attention_mask: Tensor | None = None,
    inputs_embeds: Tensor | None = None,
    return_dict: bool | None = None,
    **others: Any,
  ) -> Any:
    """Adds the learned positions to the embeddings."""
    refuse_unknown(others)
    x = self.embedded(input_ids, inputs_embeds)
    cache = others.get(CACHE)
    if cache is not None and not isinstance(cache, EncoderDecoderCache):
      raise TypeError(
        f'{CACHE} is a {type(cache).__name__}, expected an EncoderDecoderCache'
      )
    start = cache.get_seq_length() if cache is not None else 0
    own = memory = None
    if cache is not None and (
      attention_mask is not None and attention_mask.shape != x.shape[:2]
    ):
      require_no_gaps(attention_mask, PADDING_IN_CACHE)
    else:
      own = left_padding(attention_mask)
      attention_mask = rotate(attention_mask, own)
      require_no_gaps(attention_mask, GAPS.format('attention_mask'))
    x = rotate(x, own)
    if hasattr(self, 'positions'):
      x = x + self.positions(torch.arange(x.shape[1], device=x.device) + start)
    if encoder_hidden_states is not None:
      memory = left_padding(encoder_attention_mask)
      encoder_attention_mask = rotate(encoder_attention_mask, memory)
      require_no_gaps(encoder_attention_mask, GAPS.format('attention_mask'))
    outputs = super().forward(
      inputs_embeds=x,
      attention_mask=attention_mask,
      encoder_hidden_states=rotate(encoder_hidden_states, memory),
      encoder_attention_mask=encoder_attention_mask,
      return_dict=True,
      **others,
    )
    restore(outputs, own, memory)
    if return_dict is None:
      return_dict = getattr(self.config, 'return_dict', True)
    return outputs if return_dict else outputs.to_tuple()


def replace_stacks(model: Any) -> None:
  """Replaces the encoder and the decoder of a T5, and ties its weights."""
  config = model.config
  model.encoder = SynthesizerStack(model.encoder.config)
  model.decoder = SynthesizerStack(model.decoder.config)
  if config.shared_positions:
    tied = {'decoder.positions.weight': 'encoder.positions.weight'}
    model._tied_weights_keys = {**model._tied_weights_keys, **tied}


def checked(forward: Any) -> Any:
  """Returns T5's `forward`, which refuses unknown arguments.

  The old name of the cache may still be used. transformers reads the signature,
  to see which arguments the model takes.
  """
  known = {
    *inspect.signature(forward).parameters,
    *PASSED_ON,
    'past_key_values',
  }

  @functools.wraps(forward)
  def wrapped(self: Any, *arguments: Any, **named: Any) -> Any:
    refuse_unknown(named, known)
    return forward(self, *arguments, **named)

  return wrapped


class SynthesizerModel(SynthesizedModel, T5Model):
  """T5Model with synthesized attention."""

  encoder: Any
  decoder: Any

  def __init__(self, config: Any) -> None:
    implementation = requested(config)
    super().__init__(config)
    replace_stacks(self)
    self.post_init()
    if implementation == FLEX:
      self.set_attn_implementation(implementation)

  forward = checked(T5Model.forward)


class SynthesizerForSequenceClassification(
  SynthesizedModel, T5ForSequenceClassification
):
  """T5ForSequenceClassification with synthesized attention."""

  transformer: Any

  def __init__(self, config: Any) -> None:
    implementation = requested(config)
    super().__init__(config)
    self.transformer = SynthesizerModel(config)
    self.post_init()
    if implementation == FLEX:
      self.set_attn_implementation(implementation)

  forward = checked(T5ForSequenceClassification.forward)


class SynthesizerForConditionalGeneration(
  BeamSearch, SynthesizedModel, T5ForConditionalGeneration
):
  """T5ForConditionalGeneration with synthesized attention."""

  encoder: Any
  decoder: Any
  _tied_weights_keys: Any

  def __init__(self, config: Any) -> None:
    implementation = requested(config)
    super().__init__(config)
    replace_stacks(self)
    if not config.scale_decoder_outputs:  # as T5 1.1, which transformers ties
      self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)
      tied = dict(self._tied_weights_keys)
      del tied['lm_head.weight']
      self._tied_weights_keys = tied
    self.post_init()
    if implementation == FLEX:
      self.set_attn_implementation(implementation)

  forward = checked(T5ForConditionalGeneration.forward)

  def _shift_right(self, input_ids: Tensor) -> Tensor:
    require_tokens('labels', input_ids.shape)
    return super()._shift_right(input_ids)


AUTO_CLASSES: dict[str, Any] = {
  'AutoModel': SynthesizerModel,
  'AutoModelForSeq2SeqLM': SynthesizerForConditionalGeneration,
  'AutoModelForSequenceClassification': SynthesizerForSequenceClassification,
}
# The modules that PEFT adapts unless it is told which: those of T5's, q and v.
ADAPTED = ['q', 'v', 'kv']


def register() -> None:
  """Registers the classes, so that the Auto classes need no remote code.

  Folders that `save_pretrained` writes contain this file all the same.
  """
  transformers.AutoConfig.register(
    SynthesizerConfig.model_type, SynthesizerConfig, exist_ok=True
  )
  SynthesizerConfig.register_for_auto_class()
  for auto, model in AUTO_CLASSES.items():
    getattr(transformers, auto).register(
      SynthesizerConfig, model, exist_ok=True
    )
    model.register_for_auto_class(auto)


def register_with_peft() -> None:
  """Tells PEFT, if it is installed, which modules of our models it adapts."""
  try:
    from peft.utils import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING
  except ImportError:
    return
  TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING.setdefault(
    SynthesizerConfig.model_type, ADAPTED
  )


register_with_peft()
