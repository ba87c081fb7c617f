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
"""

import copy
import functools
import inspect
import math
import warnings
from collections.abc import Collection
from typing import Any, ClassVar

import torch
import transformers
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention

try:
  from transformers import (
    Cache,
    EncoderDecoderCache,
    GenerationMixin,
    T5Config,
    T5ForConditionalGeneration,
    T5ForSequenceClassification,
    T5Model,
    TopKLogitsWarper,
  )
  from transformers.masking_utils import create_masks_for_generate
  from transformers.models.t5.modeling_t5 import (
    T5Attention,
    T5LayerNorm,
    T5Stack,
  )
except ImportError as error:
  raise ImportError(
    f'transformers {transformers.__version__}; this model was tried with 5.1 '
    f'to 5.24, and needs what this release lacks ({error}): '
    'pip install "transformers>=5.1,<5.25"'
  ) from error

# The releases of transformers with which outputs were compared, with and
# without a cache. transformers 5.0 scales the outputs of each T5 1.1.
OLDEST, NEWEST = (5, 1), (5, 24)

# The argument for the cache is `cache` in transformers 5.24.
CACHE = (
  'cache'
  if 'cache' in inspect.signature(T5Attention.forward).parameters
  else 'past_key_values'
)

FLEX = 'flex_attention'

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
  (GenerationMixin, '_prepare_generation_config', ('generation_config',)),
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
  if name not in (None, 'eager', 'sdpa', FLEX):
    raise ValueError(
      f'attn_implementation={name!r} is not supported; leave it out, or use '
      f"'sdpa', 'eager' or {FLEX!r}, which compute the same here"
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


# The functions of the gin files of these names.
VARIANTS = {
  'vanilla': ('DotProduct',),
  'fixed_random': ('FixedRandom',),
  'random': ('Random',),
  'factorized_random': ('FactorizedRandom',),
  'dense': ('Dense',),
  'factorized_dense': ('FactorizedDense',),
  'random_dense': ('Random', 'Dense'),
  'dense_vanilla': ('Dense', 'DotProduct'),
  'random_vanilla': ('Random', 'DotProduct'),
  'random_dense_vanilla': ('Random', 'Dense', 'DotProduct'),
  'factorized_random_vanilla': ('FactorizedRandom', 'DotProduct'),
  'factorized_random_dense': ('FactorizedRandom', 'Dense'),
  'glu': ('GatedDense',),
  'bottleneck_dense': ('BottleneckDense',),
}
MIXINGS = ('softmax', 'layer_softmax', 'layer_sigmoid', 'sum')
RANK = 8  # k of Factorized Random


def check_choice(setting: str, value: Any, choices: Collection[str]) -> Any:
  """Returns a value, or raises a ValueError if it is not one of `choices`."""
  if value not in choices:
    raise ValueError(
      f'{setting}={value!r}, expected one of {", ".join(sorted(choices))}'
    )
  return value


def variant_settings(config: Any, kind: str, variant: str) -> dict[str, Any]:
  """Returns the settings of attention of a variant."""
  names = VARIANTS[check_choice('variant', variant, VARIANTS)]
  count = len(names)
  if config.mixing == 'layer_sigmoid' and count != 2:
    raise ValueError(
      f"mixing='layer_sigmoid' weighs two functions, and {variant} has {count}"
    )
  shapes = {
    'softmax': [count, config.num_heads],
    'layer_softmax': [count],
    'layer_sigmoid': [1],
    'sum': None,
  }
  is_dot_product = 'DotProduct' in names
  tables = {'Random', 'FixedRandom', 'FactorizedRandom'}
  return {
    **attention_settings(config, kind),
    'synthesizers': [function_settings(config, name) for name in names],
    'projections': ['q', 'k', 'v', 'o'] if is_dot_product else ['v', 'o'],
    'alpha_shape': shapes[config.mixing] if count > 1 else None,
    'batch_shared': tables.issuperset(names),
  }


def function_settings(config: Any, name: str) -> dict[str, Any]:
  """Returns the settings of a function S(X) of a variant."""
  if name == 'DotProduct':
    return {'function': name, 'scope': 'dot_product'}
  n = config.max_position_embeddings or 512
  d, heads, d_kv = config.d_model, config.num_heads, config.d_kv
  w1, w2 = {'W1': [d, heads, d_kv]}, {'W2': [heads, d_kv, n]}
  a = next(a for a in range(math.isqrt(n), 0, -1) if n % a == 0)
  parameters: dict[str, dict[str, list[int]]] = {
    'Random': {'R': [heads, n, n]},
    'FixedRandom': {'R': [heads, n, n]},
    'FactorizedRandom': {'R1': [heads, n, RANK], 'R2': [heads, n, RANK]},
    'Dense': w1 | w2,
    'FactorizedDense': w1
    | {'WA': [heads, d_kv, a], 'WB': [heads, d_kv, n // a]},
    'GatedDense': w1 | w2 | {'Wg': [d, heads, d_kv]},
    'BottleneckDense': w1 | w2 | {'D': [d, d // 4], 'U': [d // 4, d]},
  }
  scopes = {
    'Random': 'random',
    'FactorizedRandom': 'factorized_random',
    'Dense': 'dense',
    'FactorizedDense': 'factorized_dense',
    'GatedDense': 'gated_dense',
    'BottleneckDense': 'bottleneck_dense',
  }
  function = 'Random' if name == 'FixedRandom' else name
  settings = {
    'function': function,
    'scope': scopes[function],
    'max_length': n if function in ('Random', 'FactorizedRandom') else None,
    'memory_max_length': n,
    'tile_length': None,
    'trainable': name != 'FixedRandom',
    'parameters': parameters[name],
  }
  if function == 'Random':
    settings |= {'stddev': 1.0, 'uniform': False}
  return settings


class Synthesizer(nn.Module):
  """A function S(X); the names of its parameters say which one.

  `trainable` is false for a Fixed Random Synthesizer.
  """

  def __init__(self, settings: dict[str, Any]) -> None:
    super().__init__()
    self.limits = settings['max_length'], settings['memory_max_length']
    self.tile_length = settings['tile_length']
    self.stddev = settings.get('stddev', 1.0)  # of R
    self.uniform = settings.get('uniform', False)  # not in earlier exports
    self.shapes = settings['parameters']
    for name, shape in self.shapes.items():
      value = torch.zeros(shape)
      trainable = settings['trainable']
      setattr(
        self, name, nn.Parameter(value) if trainable else nn.Buffer(value)
      )

  def check_lengths(self, *lengths: int) -> None:
    """Raises a ValueError if there are too many queries or keys."""
    for length, limit in zip(lengths, self.limits, strict=True):
      if limit and length > limit:
        raise ValueError(
          f'{length} tokens, but the model takes at most {limit}'
        )

  def forward(self, x: Any, q: Any, rows: Tensor, columns: Tensor) -> Tensor:
    self.check_lengths(len(rows), len(columns))
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
  """Runs the kernel, in a graph of its own.

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


# T5 reads positions by row, so padding inside of a sequence would count.
GAPS = '{} has padding between tokens; expected it on one side of them'
PADDING_IN_CACHE = (
  'the decoder cannot go on from a cache with padding: give decoder_input_ids '
  'of one length, or pad them on the left and set use_cache=False'
)


def left_padding(mask: Tensor | None) -> Tensor | None:
  """Counts the padding before each sequence, [batch]."""
  if mask is None:
    return None
  if mask.ndim != 2:
    raise ValueError(
      f'attention_mask is {list(mask.shape)}, expected [batch, length]'
    )
  return (mask != 0).int().argmax(-1)


def require_no_gaps(mask: Tensor | None, message: str) -> None:
  """Raises a ValueError if a token comes after padding.

  Args:
    mask: [batch, length] or, with a static cache, [batch, 1, length,
      memory_length].
    message: says what to do.
  """
  if mask is None:
    return
  tokens = mask != 0 if mask.ndim == 2 else token_mask(mask)
  right = (tokens[:, 1:] <= tokens[:, :-1]).all()
  if torch.compiler.is_compiling():  # where Python cannot see values
    torch._assert_async(right, message)
  elif not right:
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
  SynthesizedModel, T5ForConditionalGeneration
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

  def save_pretrained(self, *arguments: Any, **named: Any) -> None:
    """Saves a folder for `from_pretrained`, like that of an export."""
    rename_beam_settings(self.generation_config)
    super().save_pretrained(*arguments, **named)

  # Beam search as in Mesh-TensorFlow, where transformers' differs.

  def _prepare_generation_config(
    self, generation_config: Any, **named: Any
  ) -> tuple[Any, dict[str, Any]]:
    """Searches as the run does, where the caller leaves it open."""
    chosen, others = super()._prepare_generation_config(
      generation_config, **named
    )
    alpha = getattr(chosen, 'beam_alpha', None)
    if alpha is None or chosen.num_beams == 1:
      return chosen, others
    of_run = {'length_penalty': alpha, 'early_stopping': 'never'}
    for name, value in of_run.items():
      given = (
        named.get(name),
        getattr(generation_config, name, None),
        getattr(self.generation_config, name),
      )
      if all(x is None for x in given):
        setattr(chosen, name, value)
    return chosen, others

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


def rename_beam_settings(generation_config: Any) -> None:
  """Gives the settings of an earlier version's export their names of today.

  Until 5.22, transformers loads `length_penalty` without `num_beams`, but does
  not save it; `beam_alpha` is not among the settings that it knows.
  """
  is_old = (
    generation_config.num_beams is None
    and generation_config.early_stopping == 'never'
    and generation_config.length_penalty is not None
  )
  if is_old:
    generation_config.beam_alpha = generation_config.length_penalty
    generation_config.length_penalty = None
    generation_config.early_stopping = None


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
