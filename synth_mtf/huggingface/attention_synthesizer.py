"""Attention with a synthesized alignment: B = sum_i alpha_i S_i(X) + bias.

X is [batch, length, d_model], B [batch, heads, length, memory_length]; a batch
size of 1 means that B does not depend on the tokens.
"""

import functools
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention
from transformers.models.t5.modeling_t5 import T5Attention

from .functions_synthesizer import Synthesizer
from .releases_synthesizer import CACHE, refuse_unknown
from .settings_synthesizer import attention_settings


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


# With these and nothing else, B is a product and terms that `score_mod` reads.
FUSED = ('DotProduct', 'Random', 'FactorizedRandom')


def is_differentiable(device: Any) -> bool:
  """Whether FlexAttention has gradients on a device."""
  return device.type != 'cpu'


@functools.cache
def fused_kernel() -> Any:
  """FlexAttention, compiled.

  Uncompiled, it makes all logits, and no gradients of what `score_mod` reads;
  `fullgraph` makes it an error if PyTorch stops compiling.
  """
  return torch.compile(flex_attention, fullgraph=True)


@functools.partial(torch.compiler.disable, recursive=False)
def run_fused(q: Tensor, keys: Tensor, values: Tensor, score: Any) -> Tensor:
  """Runs the kernel, in a separate graph.

  In the graph of a whole model, PyTorch's compiler fails on CPUs.
  """
  return fused_kernel()(q, keys, values, score_mod=score, scale=1.0)


def is_cached(cache: Any, layer: int) -> bool:
  """Whether a cache has the keys and values of cross-attention."""
  return cache is not None and bool(cache.is_updated.get(layer))


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
    names = {s['function'] for s in settings['synthesizers']}
    self.can_fuse = 'DotProduct' in names and names <= {*FUSED}
    self.fuses = False  # set by `set_attn_implementation`
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
    is_first = not (self.cross and is_cached(cache, self.layer))
    rows = self.rows(x, cache, others.get('cache_position'))
    keys, values = self.memory(
      key_value_states if self.cross else x, cache, rows
    )
    tokens = None if mask is None else token_mask(mask)
    wants_weights = others.get(
      'output_attentions', self.config.output_attentions
    )
    q = self.split(self.q(x)) * self.query_scale if hasattr(self, 'q') else None
    dropped = values
    if self.training and self.dropout:
      keep = nn.functional.dropout(
        torch.ones_like(values[..., :1]), self.dropout
      )
      dropped = values * keep  # T5 drops a key for all queries

    is_whole = is_first and (self.cross or keys.shape[2] == len(rows) > 1)
    needs_gradients = self.training or torch.is_grad_enabled()
    if (
      self.fuses
      and is_whole
      and not wants_weights
      and (not needs_gradients or is_differentiable(x.device))
    ):
      if hasattr(self, 'relative_attention_bias'):
        position_bias = self.bias_by_distance(len(rows), keys.shape[2])
      y = self.fused_average(q, keys, dropped, tokens, position_bias)
      return self.o(self.merge(y)), position_bias, None

    columns = torch.arange(values.shape[2], device=x.device)
    ahead = columns - rows[:, None]
    if hasattr(self, 'relative_attention_bias'):
      position_bias = self.bias(ahead)[None]
    logits = values.new_zeros(len(rows), len(columns))
    if position_bias is not None:
      logits = position_bias
    query = torch.zeros_like(keys[:, :, :1]).expand(-1, -1, len(rows), -1)
    for scope, alpha in zip(self.scopes, self.alphas(), strict=True):
      if scope == 'dot_product':
        query = q * alpha
      else:
        logits = logits + alpha * getattr(self, scope)(x, q, rows, columns)

    hidden = torch.finfo(values.dtype).min
    if self.causal:
      logits = logits.masked_fill(ahead > 0, hidden)
    if self.batch_shared:
      y = shared_average(logits[0], dropped, tokens)
    else:
      if tokens is not None:
        logits = logits.masked_fill(~tokens[:, None, None], hidden)
      y = nn.functional.scaled_dot_product_attention(
        query, keys, dropped, logits.to(values.dtype), scale=1.0
      )
    weights = None
    if wants_weights:
      weights = attention_weights(query, keys, logits, tokens)
    return self.o(self.merge(y)), position_bias, weights

  def fused_average(
    self, q: Tensor, keys: Tensor, values: Tensor, tokens: Any, bias: Any
  ) -> Tensor:
    """softmax(B) G(X) in one kernel, which adds the terms of B as it goes.

        B[b, h, i, j] = q_i k_j + T[h, i, j],  T = alpha R + bias

    T is made once for the batch, [heads, length, memory_length]: the gradients
    of alpha and the bias then follow from its own. The kernel would add all
    examples' and queries' to a few numbers, one after the other, and those of
    alpha would be off by 2e-5. Without R and R1 R2^T, it reads the bias by
    distance. No tensor is [batch, heads, length, memory_length].
    """
    length, memory_length = q.shape[2], keys.shape[2]
    rows = torch.arange(length, device=q.device)
    columns = torch.arange(memory_length, device=q.device)
    terms = []
    for scope, alpha in zip(self.scopes, self.alphas(), strict=True):
      if scope == 'dot_product':
        q = q * alpha
      else:
        terms.append(alpha * getattr(self, scope)(None, None, rows, columns)[0])
    if terms and bias is not None:
      terms.append(bias[:, columns - rows[:, None] + length - 1])
    table = sum(terms).to(keys.dtype) if terms else None
    causal, hidden = self.causal, torch.finfo(torch.float32).min

    def score(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
      if table is not None:
        s = s + table[h, i, j]
      elif bias is not None:
        s = s + bias[h, j - i + length - 1]
      if causal:
        s = torch.where(j <= i, s, hidden)
      if tokens is not None:
        s = torch.where(tokens[b, j], s, hidden)
      return s

    return run_fused(q.to(keys.dtype), keys, values, score)

  def split(self, x: Tensor) -> Tensor:
    """[batch, length, heads d_kv] -> [batch, heads, length, d_kv]."""
    return x.unflatten(-1, (self.heads, self.d_kv)).transpose(1, 2)

  def merge(self, y: Tensor) -> Tensor:
    """[batch, heads, length, d_kv] -> [batch, length, heads d_kv].

    Always a copy: a view depends on the layout of y, which the exporter to ONNX
    changes.
    """
    return torch.clone(
      y.transpose(1, 2), memory_format=torch.contiguous_format
    ).flatten(2)

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
    if self.cross and is_cached(cache, self.layer):
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
    """T5's relative position bias of distances, [heads, ...]."""
    buckets = T5Attention._relative_position_bucket(
      ahead,
      bidirectional=not self.causal,
      num_buckets=self.relative_attention_bias.num_embeddings,
      max_distance=self.config.relative_attention_max_distance,
    )
    return self.relative_attention_bias(buckets).movedim(-1, 0)

  def bias_by_distance(self, length: int, memory_length: int) -> Tensor:
    """The bias of 1 - length to memory_length - 1, [heads, distances]."""
    device = self.relative_attention_bias.weight.device
    return self.bias(torch.arange(1 - length, memory_length, device=device))

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
