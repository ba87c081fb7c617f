"""T5 with the attention of Synthesizer (arXiv 2005.00743), in PyTorch.

    B = sum_i alpha_i S_i(X) + relative position bias
    Y = softmax(B) G(X)

Everything else is T5 as it is in `transformers`. `config.attention` has the
settings of the encoder's, the decoder's and the cross-attention, for each that
differs from T5's. Parameters of the synthesizing functions S_i have the names
and shapes of the original model.

X is [batch, length, d_model], B [batch, heads, length, memory_length]; a batch
size of 1 means that B does not depend on the tokens.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import (
  T5Config,
  T5ForConditionalGeneration,
  TopKLogitsWarper,
)
from transformers.models.t5.modeling_t5 import (
  T5Attention,
  T5LayerNorm,
  T5Stack,
)


class SynthesizerConfig(T5Config):
  """T5's settings and those of this model; by default, the model is T5."""

  model_type = 'synthesizer'
  attention: ClassVar[Any] = {}  # settings of 'encoder', 'decoder', 'cross'
  positions: ClassVar[Any] = {}  # lengths of the learned positions
  shared_positions = False
  use_bias = False  # in the feed-forward layers
  true_layer_norm = False  # with mean and bias


class Synthesizer(nn.Module):
  """A function S(X); the names of its parameters say which one.

  `trainable` is false for a Fixed Random Synthesizer.
  """

  def __init__(self, settings: dict[str, Any]) -> None:
    super().__init__()
    self.limits = settings['max_length'], settings['memory_max_length']
    self.tile_length = settings['tile_length']
    kind: Any = nn.Parameter if settings['trainable'] else nn.Buffer
    for name, shape in settings['parameters'].items():
      setattr(self, name, kind(torch.zeros(shape)))

  def forward(self, x: Tensor, q: Any, rows: Tensor, columns: Tensor) -> Tensor:
    for found, most in zip((len(rows), len(columns)), self.limits, strict=True):
      if most and found > most:
        raise ValueError(f'{found} tokens, but the model takes at most {most}')
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


class SyntheticAttention(nn.Module):
  """Attention with a synthesized alignment, in the place of T5Attention.

  The dot product V is one of the functions, S(X) = Q(X) K(M)^T.
  """

  def __init__(self, config: Any, kind: str, layer: int) -> None:
    super().__init__()
    settings = config.attention[kind]
    self.causal, self.cross = kind == 'decoder', kind == 'cross'
    self.layer = layer
    self.heads, self.d_kv = settings['num_heads'], settings['d_kv']
    self.dropout = settings['dropout_rate']
    self.query_scale = settings['query_scale']
    self.batch_shared = settings['batch_shared']
    self.scopes = [one['scope'] for one in settings['synthesizers']]
    size = self.heads * self.d_kv
    for name in settings['projections']:
      shape = (size, config.d_model) if name == 'o' else (config.d_model, size)
      setattr(self, name, nn.Linear(*shape, bias=False))
    for one in settings['synthesizers']:
      if one['scope'] != 'dot_product':
        setattr(self, one['scope'], Synthesizer(one))
    if settings['alpha_shape']:
      self.alpha = nn.Parameter(torch.zeros(settings['alpha_shape']))
    relative = settings['relative_attention']
    if relative == 'bias' or (relative == 'bias_shared' and layer == 0):
      buckets = config.relative_attention_num_buckets
      self.relative_attention_bias = nn.Embedding(buckets, self.heads)

  def forward(
    self,
    hidden_states: Tensor,
    mask: Tensor | None = None,
    key_value_states: Tensor | None = None,
    position_bias: Tensor | None = None,
    past_key_values: Any = None,
    **_: Any,
  ) -> tuple[Tensor, Tensor | None, None]:
    """Takes what T5Attention takes, and returns what it returns."""
    x, length = hidden_states, hidden_states.shape[1]
    rows = torch.arange(length, device=x.device)
    if past_key_values is not None:
      rows = rows + past_key_values.get_seq_length(self.layer)
      if self.cross:  # self-attention has already counted these tokens
        rows = rows - length
    keys, values = self.memory(
      key_value_states if self.cross else x, past_key_values
    )
    columns = torch.arange(values.shape[2], device=x.device)
    if hasattr(self, 'relative_attention_bias'):
      position_bias = self.bias(columns - rows[:, None])

    logits = values.new_zeros(length, len(columns))
    if position_bias is not None:
      logits = position_bias
    q = self.split(self.q(x)) * self.query_scale if hasattr(self, 'q') else None
    query = torch.zeros_like(keys[:, :, :1]).expand(-1, -1, length, -1)
    for scope, alpha in zip(self.scopes, self.alphas(), strict=True):
      if scope == 'dot_product':
        query = q * alpha
      else:
        logits = logits + alpha * getattr(self, scope)(x, q, rows, columns)

    hidden = torch.finfo(values.dtype).min
    if self.causal:
      logits = logits.masked_fill(columns > rows[:, None], hidden)
    tokens = None if mask is None else mask[:, 0, -1]
    if tokens is not None and tokens.dtype != torch.bool:
      tokens = tokens == 0  # the term of the logits for eager attention
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
    return self.o(y.transpose(1, 2).flatten(2)), position_bias, None

  def split(self, x: Tensor) -> Tensor:
    """[batch, length, heads d_kv] -> [batch, heads, length, d_kv]."""
    return x.unflatten(-1, (self.heads, self.d_kv)).transpose(1, 2)

  def memory(self, memory: Any, caches: Any) -> tuple[Tensor, Tensor]:
    """Returns keys and values, with those of earlier decoding steps."""
    if self.cross and caches is not None and caches.is_updated.get(self.layer):
      known = caches.cross_attention_cache.layers[self.layer]
      return known.keys, known.values
    values = self.split((self.kv if hasattr(self, 'kv') else self.v)(memory))
    keys = values
    if 'dot_product' not in self.scopes:
      keys = values[..., :1]  # only counted, by the cache
    elif hasattr(self, 'k'):
      keys = self.split(self.k(memory))
    if caches is None:
      return keys, values
    if self.cross:
      caches.is_updated[self.layer] = True
      return caches.cross_attention_cache.update(keys, values, self.layer)
    return caches.self_attention_cache.update(keys, values, self.layer)

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


class SynthesizerStack(T5Stack):
  """T5's encoder or decoder, with its attention replaced."""

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
    kind = 'cross' if name.endswith('EncDecAttention') else self.kind
    if isinstance(module, T5Attention) and kind in config.attention:
      return SyntheticAttention(config, kind, module.layer_idx)
    if isinstance(module, T5LayerNorm) and config.true_layer_norm:
      return nn.LayerNorm(config.d_model, config.layer_norm_epsilon)
    is_dense = isinstance(module, nn.Linear) and 'DenseReluDense' in name
    if is_dense and config.use_bias:
      return nn.Linear(module.in_features, module.out_features)
    return None

  def forward(
    self,
    input_ids: Tensor | None = None,
    inputs_embeds: Tensor | None = None,
    past_key_values: Any = None,
    **kwargs: Any,
  ) -> Any:
    """Adds the learned positions to the embeddings."""
    x = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
    if hasattr(self, 'positions'):
      start = past_key_values.get_seq_length() if past_key_values else 0
      x = x + self.positions(torch.arange(x.shape[1], device=x.device) + start)
    return super().forward(
      inputs_embeds=x, past_key_values=past_key_values, **kwargs
    )


class SynthesizerForConditionalGeneration(T5ForConditionalGeneration):
  """T5ForConditionalGeneration with synthesized attention."""

  config_class = SynthesizerConfig
  encoder: Any
  decoder: Any
  _tied_weights_keys: Any

  def __init__(self, config: Any) -> None:
    super().__init__(config)
    self.encoder = SynthesizerStack(self.encoder.config)
    self.decoder = SynthesizerStack(self.decoder.config)
    if config.shared_positions:
      self._tied_weights_keys = {
        **self._tied_weights_keys,
        'decoder.positions.weight': 'encoder.positions.weight',
      }
    self.post_init()

  # Beam search as in Mesh-TensorFlow, where transformers' differs.

  def _get_logits_processor(self, generation_config: Any, **others: Any) -> Any:
    """Considers only the best continuations of each beam, T5's shortcut."""
    found = super()._get_logits_processor(generation_config, **others)
    most = getattr(generation_config, 'num_prefilter', 0)
    if most and generation_config.num_beams > 1:
      found.append(TopKLogitsWarper(most))
    return found

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
    none = ~(ended.any(-1, True) | is_sent_finished.any(-1, True))
    length = cur_len + 1 - decoder_prompt_len
    for mask in ('top_num_beam_mask', 'is_early_stop_heuristic_unsatisfied'):
      others[mask] = torch.ones_like(others[mask])
    return super()._update_finished_beams(
      topk_running_sequences=topk_running_sequences,
      topk_log_probs=topk_log_probs / ((5 + length) / 6) ** length_penalty,
      is_sent_finished=is_sent_finished,
      next_token_hits_stopping_criteria=ended
      | (none & next_token_hits_stopping_criteria),
      cur_len=cur_len,
      decoder_prompt_len=decoder_prompt_len,
      length_penalty=0.0,
      **others,
    )
