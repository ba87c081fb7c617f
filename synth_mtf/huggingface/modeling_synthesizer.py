"""T5 with the attention of Synthesizer (arXiv 2005.00743), in PyTorch.

    B = sum_i alpha_i S_i(X) + relative position bias
    Y = softmax(B) G(X)

Everything else is T5 as it is in `transformers`. `config.attention` has the
settings of the encoder's, the decoder's and the cross-attention. Parameters of
the synthesizing functions S_i have the names and shapes of the original model.

X is [batch, length, d_model], B [batch, heads, length, memory_length]; a batch
of 1 says that B does not depend on the tokens.
"""

from typing import Any, Optional

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import (
  EncoderDecoderCache,
  T5Config,
  T5ForConditionalGeneration,
)
from transformers.models.t5.modeling_t5 import T5Attention, T5Stack

_V = {'synthesizers': [{'function': 'DotProduct', 'scope': 'dot_product'}]}
_T5 = {**_V, 'relative_attention': 'bias_shared'}
_TABLES = ('Random', 'FactorizedRandom')  # their logits depend on no token


class SynthesizerConfig(T5Config):
  """T5's settings, and what this model has instead; the defaults are T5's."""

  model_type = 'synthesizer'
  attention = {'encoder': _T5, 'decoder': _T5, 'cross': _V}
  use_bias = False  # in the feed-forward layers
  true_layer_norm = False  # with mean and bias
  positions: Any = None  # lengths of the learned positions in both stacks
  shared_positions = False


class Synthesizer(nn.Module):
  """A function S(X); its parameters say which one, and have their names there.

  `trainable` is false for a Fixed Random Synthesizer.
  """

  def __init__(self, settings: dict[str, Any]) -> None:
    super().__init__()
    for name, shape in settings['parameters'].items():
      if settings.get('trainable', True):
        self.register_parameter(name, nn.Parameter(torch.zeros(shape)))
      else:
        self.register_buffer(name, torch.zeros(shape))
    self.inner = settings.get('inner', {}).get('scope')
    if self.inner:
      self.add_module(self.inner, Synthesizer(settings['inner']))

  def forward(self, x: Tensor, q: Any, rows: Tensor, columns: Tensor) -> Tensor:
    if self.inner:  # bottleneck, F(U D X) (version 1)
      x = x @ self.D @ self.U
      return self.get_submodule(self.inner)(x, q, rows, columns)
    if hasattr(self, 'R'):  # R, S(X) = R (eq. 4)
      return self.R.index_select(1, rows).index_select(2, columns)[None]
    if hasattr(self, 'R1'):  # FR, S(X) = R1 R2^T (eq. 7)
      r1, r2 = self.R1.index_select(1, rows), self.R2.index_select(1, columns)
      return (r1 @ r2.mT)[None]
    h = self.hidden(x, q)
    if hasattr(self, 'W2'):  # D, S(x_i) = W2 h (eq. 1, 2)
      logits = h @ self.W2.index_select(-1, columns)
      if hasattr(self, 'b2'):
        logits = logits + self.b2.index_select(-1, columns).unsqueeze(-2)
      return logits
    # FD, S(x_l)[i b + j] = A_l[i] B_l[j], A = WA h, B = WB h (eq. 5, 6)
    a, b = h @ self.WA, h @ self.WB
    if hasattr(self, 'bA'):
      a, b = a + self.bA[:, None], b + self.bB[:, None]
    outer = a.unsqueeze(-1) * b.unsqueeze(-2)
    return outer.flatten(-2).index_select(-1, columns)

  def hidden(self, x: Tensor, q: Any) -> Tensor:
    """ReLU(W1 x), ReLU(q), or (W1 x) * sigmoid(Wg x), by head."""
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

  def __init__(
    self, config: Any, settings: dict[str, Any], layer: int, kind: str
  ) -> None:
    super().__init__()
    self.layer = layer
    self.causal, self.cross = kind == 'decoder', kind == 'cross'
    self.d_model = config.d_model
    self.heads = settings.get('num_heads', config.num_heads)
    self.d_kv = settings.get('d_kv', config.d_kv)
    self.dropout = settings.get('dropout_rate', config.dropout_rate)
    self.query_scale = settings.get('query_scale', 1.0)
    self.functions = {f['scope']: f for f in settings['synthesizers']}
    self.pairwise = 'dot_product' in self.functions
    names = {f['function'] for f in self.functions.values()}
    self.batch_shared = names <= set(_TABLES)
    inner = self.heads * self.d_kv
    for name in settings.get('projections', 'qkvo'):
      shape = (inner, self.d_model) if name == 'o' else (self.d_model, inner)
      self.add_module(name, nn.Linear(*shape, bias=False))
    for scope, function in self.functions.items():
      if scope != 'dot_product':
        self.add_module(scope, Synthesizer(function))
    if settings.get('alpha_shape'):
      self.alpha = nn.Parameter(torch.zeros(settings['alpha_shape']))
    relative = settings.get('relative_attention')
    self.shares_bias = relative == 'bias_shared'
    if relative == 'bias' or (self.shares_bias and layer == 0):
      buckets = config.relative_attention_num_buckets
      self.relative_attention_bias = nn.Embedding(buckets, self.heads)

  def forward(
    self,
    hidden_states: Tensor,
    mask: Optional[Tensor] = None,
    key_value_states: Optional[Tensor] = None,
    position_bias: Optional[Tensor] = None,
    past_key_values: Any = None,
    **_: Any,
  ) -> tuple[Tensor, Optional[Tensor], None]:
    """Takes what T5Attention takes, and returns what it returns."""
    x, length = hidden_states, hidden_states.shape[1]
    start = 0
    if past_key_values is not None:
      start = past_key_values.get_seq_length(self.layer)
      if self.cross:  # self-attention has already counted these tokens
        start = start - length
    rows = torch.arange(length, device=x.device) + start
    memory = key_value_states if self.cross else x
    keys, values = self.memory(memory, past_key_values)
    if isinstance(start, int):
      last = start + length
      self.check_lengths(last, values.shape[2] if self.cross else last)
    columns = torch.arange(values.shape[2], device=x.device)

    q = self.split(self.q(x)) * self.query_scale if hasattr(self, 'q') else None
    query, logits = None, 0.0
    for (scope, settings), alpha in zip(self.functions.items(), self.alphas()):
      if scope == 'dot_product':
        query = q * alpha
      else:
        at = columns % settings.get('inner', settings)['tile_length']
        logits = logits + alpha * getattr(self, scope)(x, q, rows, at)
    if hasattr(self, 'relative_attention_bias'):
      position_bias = self.bias(columns - rows[:, None])
    if position_bias is not None:
      logits = logits + position_bias

    if mask is not None and mask.dtype != torch.bool:
      mask = mask == 0  # the term of the logits for eager attention
    causal = columns <= rows[:, None] if self.causal else None
    if self.training and self.dropout:
      keep = functional.dropout(torch.ones_like(values[..., :1]), self.dropout)
      values = values * keep  # T5 drops a key for all queries
    if self.batch_shared:
      tokens = None if mask is None else mask[:, 0, -1]
      y = shared_average(logits, values, causal, tokens)
    else:
      if causal is not None:
        mask = causal if mask is None else mask & causal
      y = local_average(logits, query, keys, values, mask)
    y = self.o(y.transpose(1, 2).flatten(2))
    return y, position_bias if self.shares_bias else None, None

  def check_lengths(self, queries: int, keys: int) -> None:
    """Refuses a sequence that is longer than the tables."""
    for function in self.functions.values():
      settings = function.get('inner', function)
      limits = [(keys, 'memory_max_length')]
      if settings['function'] in _TABLES:
        limits.append((queries, 'max_length'))
      for n, limit in limits:
        if n > settings.get(limit, n):
          raise ValueError(
            f'{settings["function"]} has {limit} = {settings[limit]}, and the '
            f'sequence {n} tokens: truncate it, or generate fewer'
          )

  def split(self, x: Tensor) -> Tensor:
    """[batch, length, heads d_kv] -> [batch, heads, length, d_kv]."""
    return x.unflatten(-1, (self.heads, self.d_kv)).transpose(1, 2)

  def memory(self, memory: Any, caches: Any) -> tuple[Tensor, Tensor]:
    """Returns keys and values, with those of earlier decoding steps."""
    cache = caches
    if isinstance(caches, EncoderDecoderCache):
      both = caches.self_attention_cache, caches.cross_attention_cache
      cache = both[self.cross]
      if self.cross and caches.is_updated.get(self.layer):
        return cache.layers[self.layer].keys, cache.layers[self.layer].values
    values = self.split((self.kv if hasattr(self, 'kv') else self.v)(memory))
    if not self.pairwise:
      keys = values[..., :1]  # only counted, by the cache
    else:
      keys = self.split(self.k(memory)) if hasattr(self, 'k') else values
    if cache is not None:
      keys, values = cache.update(keys, values, self.layer)
      if cache is not caches and self.cross:
        caches.is_updated[self.layer] = True
    return keys, values

  def alphas(self) -> Any:
    """The weight of each function, [heads, 1, 1], [1, 1] or 1 (eq. 8)."""
    count = len(self.functions)
    if not hasattr(self, 'alpha'):
      return [1.0] * count
    # With one score less, that of the last function is 0.
    missing = self.alpha.new_zeros(count - len(self.alpha))
    scores = torch.cat([self.alpha, missing]) if len(missing) else self.alpha
    return scores.softmax(0)[..., None, None]

  def bias(self, ahead: Tensor) -> Tensor:
    """T5's relative position bias, [1, heads, length, memory_length]."""
    buckets = T5Attention._relative_position_bucket(
      ahead,
      bidirectional=not self.causal,
      num_buckets=self.relative_attention_bias.num_embeddings,
    )
    return self.relative_attention_bias(buckets).permute(2, 0, 1)[None]


def shared_average(
  logits: Tensor, values: Tensor, causal: Any, tokens: Any
) -> Tensor:
  """softmax(B) G(X) for logits that all examples share, [1, heads, ...].

      E = exp(B - max B), 0 in the future;  Y = (E G(X)) / (E tokens)

  Values at padding count as 0. Nothing of size [batch, heads, length,
  memory_length] is made.
  """
  b = logits[0].float()
  if causal is not None:
    b = b.masked_fill(~causal, -torch.inf)
  e = (b - b.amax(-1, keepdim=True).detach()).exp().to(values.dtype)
  if tokens is None:
    total = e.sum(-1)[None]
  else:
    tokens = tokens.to(values.dtype)
    values = values * tokens[:, None, :, None]
    total = torch.einsum('hnm,bm->bhn', e, tokens)
  y = torch.einsum('hnm,bhmd->bhnd', e, values)
  return y / total.clamp_min(torch.finfo(y.dtype).tiny)[..., None]


def local_average(
  logits: Any, query: Any, keys: Tensor, values: Tensor, visible: Any
) -> Tensor:
  """softmax(B) G(X), where the logits are the mask of the query-key product."""
  if query is None:  # keys are of width 1
    query = keys.new_zeros(*keys.shape[:2], logits.shape[2], 1)
  if visible is not None:
    hidden = torch.finfo(values.dtype).min
    logits = torch.where(visible, logits, hidden)
  mask = logits.to(values.dtype) if isinstance(logits, Tensor) else None
  return functional.scaled_dot_product_attention(
    query, keys, values, mask, scale=1.0
  )


class SynthesizerStack(T5Stack):
  """T5's encoder or decoder, with its attention replaced."""

  def __init__(self, config: Any) -> None:
    super().__init__(config)
    own = 'decoder' if config.is_decoder else 'encoder'
    norms = [(self, 'final_layer_norm')]
    for i, block in enumerate(self.block):
      block.layer[0].SelfAttention = SyntheticAttention(
        config, config.attention[own], i, own
      )
      if config.is_decoder:
        block.layer[1].EncDecAttention = SyntheticAttention(
          config, config.attention['cross'], i, 'cross'
        )
      norms += [(layer, 'layer_norm') for layer in block.layer]
      dense = block.layer[-1].DenseReluDense
      for name, linear in list(dense.named_children()):
        if config.use_bias and isinstance(linear, nn.Linear):
          shape = linear.in_features, linear.out_features
          setattr(dense, name, nn.Linear(*shape))
    if config.true_layer_norm:
      for module, name in norms:
        eps = config.layer_norm_epsilon
        setattr(module, name, nn.LayerNorm(config.d_model, eps))
    if own in (config.positions or {}):
      self.positions = nn.Embedding(config.positions[own], config.d_model)

  def forward(
    self,
    input_ids: Optional[Tensor] = None,
    inputs_embeds: Optional[Tensor] = None,
    past_key_values: Any = None,
    **kwargs: Any,
  ) -> Any:
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

  def _get_top_k_continuations(
    self, accumulated_log_probs: Tensor, num_beams: int, **others: Any
  ) -> Any:
    """Considers only the best continuations of each beam, T5's shortcut."""
    scores = accumulated_log_probs.unflatten(-1, (num_beams, -1))
    most = getattr(self.generation_config, 'num_prefilter', 0)
    if most:
      least = scores.topk(most).values[..., -1:]
      scores = scores.masked_fill(scores < least, -torch.inf)
    return super()._get_top_k_continuations(
      accumulated_log_probs=scores.flatten(1), num_beams=num_beams, **others
    )

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
    """Takes every beam that ends, and others only for lack of such.

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
