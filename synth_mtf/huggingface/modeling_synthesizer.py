"""T5 with the attention of Synthesizer (arXiv 2005.00743), in PyTorch.

    B = sum_i alpha_i S_i(X) + relative position bias
    Y = softmax(B) G(X)

Everything else is T5 as it is in `transformers`. `config.attention` has the
settings of the encoder's, the decoder's and the cross-attention, for each that
differs from T5's. Parameters of the synthesizing functions S_i have the names
and shapes of the original model, and the same initial values.

X is [batch, length, d_model], B [batch, heads, length, memory_length]; a batch
size of 1 means that B does not depend on the tokens.
"""

import functools
import inspect
import warnings
from collections.abc import Collection
from typing import Any, ClassVar

import torch
import transformers
from torch import Tensor, nn
from transformers import (
  Cache,
  EncoderDecoderCache,
  GenerationMixin,
  T5Config,
  T5ForConditionalGeneration,
  TopKLogitsWarper,
)
from transformers.models.t5.modeling_t5 import (
  T5Attention,
  T5LayerNorm,
  T5Stack,
)

# The releases of transformers with which outputs were compared, with and
# without a cache. transformers 5.0 scales the outputs of each T5 1.1.
OLDEST, NEWEST = (5, 1), (5, 24)

# The argument for the cache is `cache` in transformers 5.24.
CACHE = (
  'cache'
  if 'cache' in inspect.signature(T5Attention.forward).parameters
  else 'past_key_values'
)

NOT_T5 = (
  'T5-cannot load this model: use AutoModelForSeq2SeqLM with '
  'trust_remote_code=True'
)

# The methods of transformers that this file calls, replaces or extends, with
# the arguments that it relies on.
RELIED_ON: tuple[tuple[type, str, tuple[str, ...]], ...] = (
  (
    T5Attention,
    'forward',
    ('hidden_states', 'mask', 'key_value_states', 'position_bias', CACHE),
  ),
  (
    T5Attention,
    '_relative_position_bucket',
    ('bidirectional', 'num_buckets', 'max_distance'),
  ),
  (
    T5Stack,
    'forward',
    (
      'input_ids',
      'attention_mask',
      'encoder_hidden_states',
      'encoder_attention_mask',
      'inputs_embeds',
      CACHE,
    ),
  ),
  (T5ForConditionalGeneration, 'forward', (CACHE,)),
  (Cache, 'update', ('key_states', 'value_states', 'layer_idx')),
  (GenerationMixin, '_get_logits_processor', ('generation_config',)),
  (
    GenerationMixin,
    '_update_finished_beams',
    (
      'topk_running_sequences',
      'topk_log_probs',
      'is_early_stop_heuristic_unsatisfied',
      'is_sent_finished',
      'next_token_hits_stopping_criteria',
      'top_num_beam_mask',
      'cur_len',
      'decoder_prompt_len',
      'length_penalty',
    ),
  ),
)

# The arguments that T5 passes on to its layers, beside those above.
PASSED_ON = {
  CACHE,
  'cache_position',
  'num_items_in_batch',
  'output_attentions',
  'output_hidden_states',
  'query_length',
  'return_dict',
  'use_cache',
}

# The arguments of the whole model. The old name of the cache may still be used.
FORWARD = {
  *inspect.signature(T5ForConditionalGeneration.forward).parameters,
  *PASSED_ON,
  'past_key_values',
}


def check_release() -> None:
  """Warns of an untried release of transformers.

  Raises:
    ImportError: if it is too old, or lacks what this file relies on.
  """
  version = transformers.__version__
  oldest = '{}.{}'.format(*OLDEST)
  newest = '{}.{}'.format(*NEWEST)
  tried = (
    f'transformers {version}; this model was tried with {oldest} to {newest}'
  )
  advice = f'pip install "transformers>={oldest},<{NEWEST[0]}.{NEWEST[1] + 1}"'
  release = tuple(map(int, version.split('.')[:2]))
  missing = []
  for owner, name, arguments in RELIED_ON:
    method = getattr(owner, name, None)
    known = inspect.signature(method).parameters if method else ()
    missing += [
      f'{owner.__name__}.{name}({argument})'
      for argument in arguments
      if argument not in known
    ]
  if release < OLDEST:
    raise ImportError(f'{tried}, and does not work with older ones: {advice}')
  if missing:
    raise ImportError(f'{tried}, and needs {", ".join(missing)}: {advice}')
  if release > NEWEST:
    warnings.warn(
      f'{tried}. To be safe: {advice}. Otherwise, compare its outputs with '
      'those of model.generate(..., use_cache=False)',
      stacklevel=2,
    )


check_release()


def refuse_unknown(
  arguments: dict[str, Any], known: Collection[str] = PASSED_ON
) -> None:
  """Raises a TypeError if there are arguments that would have no effect."""
  unknown = [name for name in arguments if name not in known]
  if unknown:
    raise TypeError(f'T5 has no argument {", ".join(unknown)}')


def check_implementation(name: Any) -> None:
  """Raises a ValueError if `attn_implementation` is not supported."""
  if name not in (None, 'eager', 'sdpa'):
    raise ValueError(
      f'attn_implementation={name!r} is not supported; leave it out, or use '
      "'sdpa' or 'eager', which compute the same here"
    )


class SynthesizerConfig(T5Config):
  """T5's settings and those of this model; by default, the model is T5."""

  model_type = 'synthesizer'
  attention: ClassVar[Any] = {}  # settings of 'encoder', 'decoder', 'cross'
  positions: ClassVar[Any] = {}  # lengths of the learned positions
  shared_positions = False
  use_bias = False  # in the feed-forward layers
  true_layer_norm = False  # with mean and bias

  # In files, T5's own classes find an error instead of the activation. They
  # would load the weights that they know, and leave the others out.

  @classmethod
  def from_dict(cls, config_dict: dict[str, Any], **others: Any) -> Any:
    settings = dict(config_dict)
    if 'feed_forward' in settings:
      settings['feed_forward_proj'] = settings.pop('feed_forward')
    return super().from_dict(settings, **others)

  def to_dict(self) -> dict[str, Any]:
    settings = super().to_dict()
    settings['feed_forward'] = settings['feed_forward_proj']
    settings['feed_forward_proj'] = NOT_T5
    return settings


def attention_settings(config: Any, kind: str) -> dict[str, Any]:
  """Returns T5's settings with the changes of `config.attention`."""
  return {
    'synthesizers': [{'function': 'DotProduct', 'scope': 'dot_product'}],
    'projections': ['q', 'k', 'v', 'o'],
    'query_scale': 1.0,
    'alpha_shape': None,
    'batch_shared': False,
    'num_heads': config.num_heads,
    'd_kv': config.d_kv,
    'dropout_rate': config.dropout_rate,
    'relative_attention': None if kind == 'cross' else 'bias_shared',
    **config.attention.get(kind, {}),
  }


class Synthesizer(nn.Module):
  """A function S(X); the names of its parameters say which one.

  `trainable` is false for a Fixed Random Synthesizer.
  """

  def __init__(self, settings: dict[str, Any]) -> None:
    super().__init__()
    self.limits = settings['max_length'], settings['memory_max_length']
    self.tile_length = settings['tile_length']
    self.stddev = settings.get('stddev', 1.0)  # of R
    self.uniform = settings.get('uniform', False)
    self.shapes = settings['parameters']
    for name, shape in self.shapes.items():
      value = torch.zeros(shape)
      trainable = settings['trainable']
      setattr(
        self, name, nn.Parameter(value) if trainable else nn.Buffer(value)
      )

  def forward(self, x: Tensor, q: Any, rows: Tensor, columns: Tensor) -> Tensor:
    for positions, limit in zip((rows, columns), self.limits, strict=True):
      if limit and len(positions) > limit:
        raise ValueError(
          f'{len(positions)} tokens, but the model takes at most {limit}'
        )
    if self.tile_length:
      columns = columns % self.tile_length
    if hasattr(self, 'R'):  # R, S(X) = R (eq. 4)
      return self.R[None, :, rows][..., columns]
    if hasattr(self, 'R1'):  # FR, S(X) = R1 R2^T (eq. 7)
      return self.R1[None, :, rows] @ self.R2[:, columns].mT
    h = self.hidden(x, q)
    if hasattr(self, 'W2'):  # D, S(x_i) = W2 h (eq. 1, 2)
      b2 = self.b2[..., None, columns] if hasattr(self, 'b2') else 0.0
      return h @ self.W2[..., columns] + b2
    # FD, S(x_l)[i b + j] = A_l[i] B_l[j], A = WA h, B = WB h (eq. 5, 6)
    a, b = h @ self.WA, h @ self.WB
    if hasattr(self, 'bA'):
      a, b = a + self.bA[:, None], b + self.bB[:, None]
    outer = a.unsqueeze(-1) * b.unsqueeze(-2)
    return outer.flatten(-2)[..., columns]

  def hidden(self, x: Tensor, q: Any) -> Tensor:
    """ReLU(W1 x), ReLU(q), or (W1 x) * sigmoid(Wg x), per head."""
    if hasattr(self, 'D'):  # bottleneck, F(U D X) (version 1)
      x = x @ self.D @ self.U
    w1 = self.project(x, '1') if hasattr(self, 'W1') else q
    if hasattr(self, 'Wg'):
      return w1 * torch.sigmoid(self.project(x, 'g'))
    return torch.relu(w1)

  def project(self, x: Tensor, name: str) -> Tensor:
    """[batch, length, d_model] -> [batch, heads, length, d_kv]."""
    y = torch.einsum('bnd,dhk->bnhk', x, getattr(self, f'W{name}'))
    return (y + getattr(self, f'b{name}', 0.0)).transpose(1, 2)

  def initialize(self) -> None:
    """Draws the parameters so that S(X) has a variance of about 1."""
    for name, shape in self.shapes.items():
      if name == 'R' and self.uniform:
        nn.init.uniform_(self.R)
        continue
      if name.startswith('b'):
        stddev = 0.0
      elif name == 'R':
        stddev = self.stddev
      elif name in ('R1', 'R2'):
        stddev = shape[-1] ** -0.25
      elif name == 'W1':  # the gain makes up for ReLU, or for the gate
        gain = 3.4 if 'Wg' in self.shapes else 2.0
        stddev = (gain / shape[0]) ** 0.5
      elif name in ('Wg', 'D', 'U'):
        stddev = shape[0] ** -0.5
      else:  # W2, WA, WB
        stddev = shape[-2] ** -0.5
      nn.init.normal_(getattr(self, name), std=stddev)


class Projection(nn.Linear):
  """Computes q, k, v or o, initially with a variance of 1 / scale."""

  def __init__(self, inputs: int, outputs: int, scale: int) -> None:
    super().__init__(inputs, outputs, bias=False)
    self.scale = scale

  def initialize(self) -> None:
    nn.init.normal_(self.weight, std=(self.in_features * self.scale) ** -0.5)


class PositionBias(nn.Embedding):
  """T5's relative position bias, [buckets, heads]."""

  def initialize(self) -> None:
    nn.init.xavier_uniform_(self.weight)


class SyntheticAttention(nn.Module):
  """Attention with a synthesized alignment, in the place of T5Attention.

  The dot product V is one of the functions, S(X) = Q(X) K(M)^T; alone, it makes
  T5's own attention.
  """

  def __init__(self, config: Any, kind: str, layer: int) -> None:
    super().__init__()
    self.config = config
    settings = attention_settings(config, kind)
    self.causal, self.cross = kind == 'decoder', kind == 'cross'
    self.layer = layer
    self.heads, self.d_kv = settings['num_heads'], settings['d_kv']
    self.dropout = settings['dropout_rate']
    self.query_scale = settings['query_scale']
    self.batch_shared = settings['batch_shared']
    self.scopes = [s['scope'] for s in settings['synthesizers']]
    size = self.heads * self.d_kv
    for name in settings['projections']:
      shape = (size, config.d_model) if name == 'o' else (config.d_model, size)
      # T5 scales q in its initial values, instead of the logits.
      is_scaled = name == 'q' and self.query_scale == 1.0
      setattr(self, name, Projection(*shape, self.d_kv if is_scaled else 1))
    for synthesizer in settings['synthesizers']:
      if synthesizer['scope'] != 'dot_product':
        setattr(self, synthesizer['scope'], Synthesizer(synthesizer))
    if settings['alpha_shape']:
      self.alpha = nn.Parameter(torch.zeros(settings['alpha_shape']))
    relative = settings['relative_attention']
    if relative == 'bias' or (relative == 'bias_shared' and layer == 0):
      buckets = config.relative_attention_num_buckets
      self.relative_attention_bias = PositionBias(buckets, self.heads)

  def forward(
    self,
    hidden_states: Tensor,
    mask: Tensor | None = None,
    key_value_states: Tensor | None = None,
    position_bias: Tensor | None = None,
    **others: Any,
  ) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Takes what T5Attention takes, and returns what it returns."""
    refuse_unknown(others)
    x, cache = hidden_states, others.get(CACHE)
    rows = self.rows(x, cache, others.get('cache_position'))
    keys, values = self.memory(
      key_value_states if self.cross else x, cache, rows
    )
    columns = torch.arange(values.shape[2], device=x.device)
    if hasattr(self, 'relative_attention_bias'):
      position_bias = self.bias(columns - rows[:, None])

    logits = values.new_zeros(len(rows), len(columns))
    if position_bias is not None:
      logits = position_bias
    q = self.split(self.q(x)) * self.query_scale if hasattr(self, 'q') else None
    query = torch.zeros_like(keys[:, :, :1]).expand(-1, -1, len(rows), -1)
    for scope, alpha in zip(self.scopes, self.alphas(), strict=True):
      if scope == 'dot_product':
        query = q * alpha
      else:
        logits = logits + alpha * getattr(self, scope)(x, q, rows, columns)

    hidden = torch.finfo(values.dtype).min
    if self.causal:
      logits = logits.masked_fill(columns > rows[:, None], hidden)
    tokens = None if mask is None else token_mask(mask)
    if self.training and self.dropout:
      keep = nn.functional.dropout(
        torch.ones_like(values[..., :1]), self.dropout
      )
      values = values * keep  # T5 drops a key for all queries
    if self.batch_shared:
      y = shared_average(logits[0], values, tokens)
    else:
      if tokens is not None:
        logits = logits.masked_fill(~tokens[:, None, None], hidden)
      y = nn.functional.scaled_dot_product_attention(
        query, keys, values, logits.to(values.dtype), scale=1.0
      )
    weights = None
    if others.get('output_attentions', self.config.output_attentions):
      weights = attention_weights(query, keys, logits, tokens)
    return self.o(y.transpose(1, 2).flatten(2)), position_bias, weights

  def split(self, x: Tensor) -> Tensor:
    """[batch, length, heads d_kv] -> [batch, heads, length, d_kv]."""
    return x.unflatten(-1, (self.heads, self.d_kv)).transpose(1, 2)

  def rows(self, x: Tensor, cache: Any, cache_position: Any) -> Tensor:
    """Returns the positions of the queries, which follow those in the cache."""
    if cache_position is not None:  # before transformers 5.5
      return cache_position
    rows = torch.arange(x.shape[1], device=x.device)
    if cache is not None:
      rows = rows + cache.get_seq_length(self.layer)
      if self.cross:  # self-attention has already counted these tokens
        rows = rows - x.shape[1]
    return rows

  def memory(
    self, memory: Any, cache: Any, rows: Tensor
  ) -> tuple[Tensor, Tensor]:
    """Returns keys and values, with those of earlier decoding steps."""
    if self.cross and cache is not None and cache.is_updated.get(self.layer):
      cached = cache.cross_attention_cache.layers[self.layer]
      return cached.keys, cached.values
    values = self.split((self.kv if hasattr(self, 'kv') else self.v)(memory))
    keys = values
    if 'dot_product' not in self.scopes:
      keys = values[..., :1]  # only counted, by the cache
    elif hasattr(self, 'k'):
      keys = self.split(self.k(memory))
    if cache is None:
      return keys, values
    if self.cross:
      cache.is_updated[self.layer] = True
      return cache.cross_attention_cache.update(keys, values, self.layer)
    # Before transformers 5.5, a static cache does not count its tokens.
    position = {'cache_position': rows}
    return cache.self_attention_cache.update(keys, values, self.layer, position)

  def alphas(self) -> Any:
    """The weight of each function, [heads, 1, 1], [1, 1] or 1 (eq. 8)."""
    if not hasattr(self, 'alpha'):
      return [1.0] * len(self.scopes)
    # If a score is missing (alpha is [1]), that of the last function is 0.
    missing = len(self.scopes) - len(self.alpha)
    scores = nn.functional.pad(self.alpha, (0, missing))
    return scores.softmax(0)[..., None, None]

  def bias(self, ahead: Tensor) -> Tensor:
    """T5's relative position bias, [1, heads, length, memory_length]."""
    buckets = T5Attention._relative_position_bucket(
      ahead,
      bidirectional=not self.causal,
      num_buckets=self.relative_attention_bias.num_embeddings,
    )
    return self.relative_attention_bias(buckets).permute(2, 0, 1)[None]

  def initialize(self) -> None:
    """Weighs all functions equally; other modules draw their own values."""
    if hasattr(self, 'alpha'):
      nn.init.zeros_(self.alpha)


def token_mask(mask: Tensor) -> Tensor:
  """Says where T5's mask, [batch, 1, length, memory_length], has tokens.

  The last query sees all of them.
  """
  if mask.dtype == torch.bool:
    return mask[:, 0, -1]
  return mask[:, 0, -1] == 0  # eager attention adds it to the logits


def shared_average(logits: Tensor, values: Tensor, tokens: Any) -> Tensor:
  """softmax(B) G(X) for logits that all examples share, [heads, length, ...].

      E = exp(B - max B), 0 in the future;  Y = (E G(X)) / (E tokens)

  Values at padding count as 0. Nothing of size [batch, heads, length,
  memory_length] is made.
  """
  b = logits.float()
  e = (b - b.amax(-1, keepdim=True).detach()).exp().to(values.dtype)
  total = e.sum(-1)[None]
  if tokens is not None:
    tokens = tokens.to(values.dtype)
    values = values * tokens[:, None, :, None]
    total = torch.einsum('hnm,bm->bhn', e, tokens)
  y = torch.einsum('hnm,bhmd->bhnd', e, values)
  return y / total.clamp_min(torch.finfo(y.dtype).tiny)[..., None]


def attention_weights(
  query: Tensor, keys: Tensor, logits: Tensor, tokens: Any
) -> Tensor:
  """softmax(B), [batch, heads, length, memory_length], for inspection."""
  b = query.float() @ keys.float().mT + logits.float()
  if tokens is not None:
    b = b.masked_fill(~tokens[:, None, None], torch.finfo(b.dtype).min)
  return b.softmax(-1).to(keys.dtype)


def initialize(module: nn.Module) -> None:
  """Draws a module's initial values, distributed as in Mesh-TensorFlow.

  transformers calls it for each module that has parameters of its own.
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


def left_padding(mask: Tensor | None) -> Tensor | None:
  """Counts the padding before each sequence, [batch]."""
  if mask is None:
    return None
  if mask.ndim != 2:
    raise ValueError(
      f'attention_mask is {list(mask.shape)}, expected [batch, length]'
    )
  return (mask != 0).int().argmax(-1)


def refuse_left_padding(mask: Tensor) -> None:
  """Raises a ValueError if tokens of the decoder come after padding.

  Args:
    mask: of all tokens, also cached ones, [batch, length] or, with a static
      cache, [batch, 1, length, memory_length].
  """
  if mask.ndim == 2:
    begins = mask[:, 0] != 0
  else:
    begins = token_mask(mask)[:, 0]
  message = (
    'the decoder cannot go on from a cache with padding on the left: pad '
    'decoder_input_ids on the right, or set use_cache=False'
  )
  if torch.compiler.is_compiling():  # where Python cannot see values
    torch._assert_async(begins.all(), message)
  elif not begins.all():
    raise ValueError(message)


def rotate(x: Any, count: Tensor | None, axis: int = 1) -> Any:
  """Moves the first `count` entries of an axis, [batch], to its end."""
  if x is None or count is None:
    return x
  length = x.shape[axis]
  order = (torch.arange(length, device=x.device) + count[:, None]) % length
  shape = [len(order)] + [1] * (x.ndim - 1)
  shape[axis] = length
  return torch.take_along_dim(x, order.view(shape), axis)


def restore(outputs: Any, own: Tensor | None, memory: Tensor | None) -> None:
  """Moves padding in a stack's outputs back to the left.

  Args:
    outputs: of the stack.
    own: the padding before each of its sequences, [batch].
    memory: the padding before each of the encoder's sequences, [batch].
  """
  rows = None if own is None else -own
  columns = None if memory is None else -memory
  outputs.last_hidden_state = rotate(outputs.last_hidden_state, rows)
  if outputs.hidden_states is not None:
    outputs.hidden_states = tuple(
      rotate(x, rows) for x in outputs.hidden_states
    )
  if outputs.attentions is not None:
    outputs.attentions = tuple(
      rotate(rotate(weights, rows, 2), rows, 3)
      for weights in outputs.attentions
    )
  if outputs.cross_attentions is not None:
    outputs.cross_attentions = tuple(
      rotate(rotate(weights, rows, 2), columns, 3)
      for weights in outputs.cross_attentions
    )


class SynthesizerStack(T5Stack):
  """T5's encoder or decoder, with its attention replaced.

  Inside, all sequences begin at position 0: padding on the left moves to the
  right, and back in the outputs.
  """

  _supports_flex_attn = False

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

  def _init_weights(self, module: nn.Module) -> None:
    initialize(module)

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
    x = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
    cache = others.get(CACHE)
    if cache is not None and not isinstance(cache, EncoderDecoderCache):
      raise TypeError(
        f'{CACHE} is a {type(cache).__name__}, expected an EncoderDecoderCache'
      )
    start = cache.get_seq_length() if cache is not None else 0
    own = memory = None
    if attention_mask is None:
      pass
    elif cache is not None and attention_mask.shape != x.shape[:2]:
      refuse_left_padding(attention_mask)  # cached tokens stay where they are
    else:
      own = left_padding(attention_mask)
    x, attention_mask = rotate(x, own), rotate(attention_mask, own)
    if hasattr(self, 'positions'):
      x = x + self.positions(torch.arange(x.shape[1], device=x.device) + start)
    if encoder_hidden_states is not None:
      memory = left_padding(encoder_attention_mask)
    outputs = super().forward(
      inputs_embeds=x,
      attention_mask=attention_mask,
      encoder_hidden_states=rotate(encoder_hidden_states, memory),
      encoder_attention_mask=rotate(encoder_attention_mask, memory),
      return_dict=True,
      **others,
    )
    restore(outputs, own, memory)
    if return_dict is None:
      return_dict = getattr(self.config, 'return_dict', True)
    return outputs if return_dict else outputs.to_tuple()


class SynthesizerForConditionalGeneration(T5ForConditionalGeneration):
  """T5ForConditionalGeneration with synthesized attention."""

  config_class = SynthesizerConfig
  encoder: Any
  decoder: Any
  _tied_weights_keys: Any
  _supports_flex_attn = False

  def __init__(self, config: Any) -> None:
    check_implementation(config._attn_implementation)
    super().__init__(config)
    self.encoder = SynthesizerStack(self.encoder.config)
    self.decoder = SynthesizerStack(self.decoder.config)
    tied = dict(self._tied_weights_keys)
    if not config.scale_decoder_outputs:  # as T5 1.1, which transformers ties
      self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)
      del tied['lm_head.weight']
    if config.shared_positions:
      tied['decoder.positions.weight'] = 'encoder.positions.weight'
    self._tied_weights_keys = tied
    self.post_init()

  # transformers reads the signature, to see which arguments the model takes.
  @functools.wraps(T5ForConditionalGeneration.forward)
  def forward(self, *arguments: Any, **named: Any) -> Any:
    refuse_unknown(named, FORWARD)
    return super().forward(*arguments, **named)

  def _init_weights(self, module: nn.Module) -> None:
    initialize(module)

  def set_attn_implementation(
    self, attn_implementation: Any, *args: Any, **others: Any
  ) -> None:
    check_implementation(attn_implementation)
    super().set_attn_implementation(attn_implementation, *args, **others)

  # Beam search as in Mesh-TensorFlow, where transformers' differs.

  def _get_logits_processor(self, generation_config: Any, **others: Any) -> Any:
    """Considers only the best continuations of each beam, T5's shortcut."""
    processors = super()._get_logits_processor(generation_config, **others)
    count = getattr(generation_config, 'num_prefilter', 0)
    if count and generation_config.num_beams > 1:
      processors.append(TopKLogitsWarper(count))
    return processors

  def _update_finished_beams(
    self,
    topk_running_sequences: Tensor,
    topk_log_probs: Tensor,
    is_sent_finished: Tensor,
    next_token_hits_stopping_criteria: Tensor,
    cur_len: int,
    decoder_prompt_len: int,
    length_penalty: float,
    **others: Any,
  ) -> Any:
    """Accepts every beam that ends, and others only if none has ended.

    The length penalty is ((5 + length) / 6)^alpha (arXiv 1609.08144).
    """
    last = topk_running_sequences[:, :, cur_len]
    ended = (last == self.config.eos_token_id) & (topk_log_probs > -1e8)
    none_ended = ~(ended.any(-1, True) | is_sent_finished.any(-1, True))
    length = cur_len + 1 - decoder_prompt_len
    for mask in ('top_num_beam_mask', 'is_early_stop_heuristic_unsatisfied'):
      others[mask] = torch.ones_like(others[mask])
    return super()._update_finished_beams(
      topk_running_sequences=topk_running_sequences,
      topk_log_probs=topk_log_probs / ((5 + length) / 6) ** length_penalty,
      is_sent_finished=is_sent_finished,
      next_token_hits_stopping_criteria=ended
      | (none_ended & next_token_hits_stopping_criteria),
      cur_len=cur_len,
      decoder_prompt_len=decoder_prompt_len,
      length_penalty=0.0,
      **others,
    )
