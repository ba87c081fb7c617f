"""Synthesizer attention of one sequence in NumPy, written from the paper.

It shares no code with the layer and knows nothing of what makes the layer fast:
one softmax for the whole batch, masks, packed rows. A reference sees a single
sequence at its own length; a padded or packed batch is many such sequences.
Equation and section numbers are those of arXiv 2005.00743, version 3; "v1"
marks section 6.2 of version 1.

Shapes: x [n, d_model] and y [n, d_model]; logits [heads, n, m] for a memory of
[m, d_model], which is x itself in self-attention. A layer with one head stores
no heads dimension, so each array is first reshaped to have one.

Everything is analytic in its inputs (comparisons look at the real part), so
`probes` are exact to rounding: the imaginary part of f(x + ih) over h.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
# Arrays by their name in the checkpoint.
Weights = Mapping[str, Array]


@dataclasses.dataclass(frozen=True)
class Example:
  """One sequence as a synthesizing function sees it.

  Heads are read heads; if `causal`, token i must not depend on later tokens.
  """

  x: Array  # [n, d_model]
  weights: Weights
  heads: int
  causal: bool
  positions: Array  # [n], the row of each token in a learned table
  columns: Array  # [m], the column of each memory position
  q: Array | None = None  # [heads, n, d_kv]
  k: Array | None = None  # [heads, m, d_kv]

  def per_head(self, name: str, axes: int) -> Array:
    """A variable as [heads, ...]; the last `axes` axes are those of a head.

    Heads that share it each have a copy.
    """
    array = self.weights[name]
    shape = array.shape[array.ndim - axes :]
    return np.broadcast_to(array.reshape(-1, *shape), [self.heads, *shape])


Function = Callable[[Example], Array]


def relu(x: Array) -> Array:
  return np.where(x.real > 0, x, 0)


def softmax(logits: Array, visible: Array) -> tuple[Array, Array]:
  """Softmax of what is visible on the last axis, and its log denominator."""
  highest = np.where(visible, logits.real, -np.inf).max(-1, keepdims=True)
  e = np.exp(np.where(visible, logits - highest, -np.inf))
  total = e.sum(-1, keepdims=True)
  return e / total, (highest + np.log(total))[..., 0]


# Synthesizing functions: Example -> logits [heads, n, m]. Their sizes are those
# of the variables; a table with fewer columns than positions is tiled.


def dot_product(s: Example) -> Array:
  """V: Q K^T. T5 does not divide by sqrt(d_kv) (section 3.2)."""
  assert s.q is not None and s.k is not None
  return np.einsum('hid,hjd->hij', s.q, s.k)


def random(s: Example, scope: str = 'random') -> Array:
  """R: a table, the same for every input (eq. 4)."""
  table = s.per_head(f'{scope}/R', 2)
  columns = s.columns % table.shape[-1]
  return table[:, s.positions[:, None], columns[None, :]]


def factorized_random(s: Example, scope: str = 'factorized_random') -> Array:
  """FR: R1 R2^T (eq. 7)."""
  r1, r2 = (s.per_head(f'{scope}/{name}', 2) for name in ('R1', 'R2'))
  columns = s.columns % r2.shape[1]
  return np.einsum('hik,hjk->hij', r1[:, s.positions], r2[:, columns])


def _hidden(s: Example, scope: str, name: str = '1') -> Array:
  """x_i W1 + b1 of each head, [heads, n, width]; without W1, the queries."""
  if f'{scope}/W{name}' not in s.weights:
    assert s.q is not None
    return s.q
  w1 = s.weights[f'{scope}/W{name}'].reshape(s.x.shape[1], s.heads, -1)
  return np.einsum('id,dhk->hik', s.x, w1) + _bias(s, f'{scope}/b{name}')


def _bias(s: Example, name: str) -> Array | int:
  """A bias of each head, [heads, 1, size], or 0."""
  return s.per_head(name, 1)[:, None] if name in s.weights else 0


def _last(hidden: Array, s: Example, scope: str, name: str = '2') -> Array:
  """W2 h + b2 of each head."""
  w2 = s.per_head(f'{scope}/W{name}', 2)
  return hidden @ w2 + _bias(s, f'{scope}/b{name}')


def _columns(rows: Array, s: Example) -> Array:
  """What token i says about the column of token j, [heads, n, m]."""
  return rows[:, :, s.columns % rows.shape[-1]]


def dense(s: Example, scope: str = 'dense') -> Array:
  """D: W2 ReLU(W1 x_i) (eq. 1, 2); Table 1: d^2 + d N parameters."""
  return _columns(_last(relu(_hidden(s, scope)), s, scope), s)


def factorized_dense(s: Example, scope: str = 'factorized_dense') -> Array:
  """FD: A_i[p] B_i[q] at column p b + q: A repeated, B tiled (eq. 5, 6)."""
  hidden = relu(_hidden(s, scope))
  left, right = (_last(hidden, s, scope, name) for name in 'AB')
  repeated = np.repeat(left, right.shape[-1], axis=-1)
  return _columns(repeated * np.tile(right, left.shape[-1]), s)


def convolution(s: Example, scope: str = 'convolutional_dense') -> Array:
  """v1: W2 conv(X); W1 has the width of the filter."""
  return _columns(_last(_convolved(s, scope), s, scope), s)


def conv_relu_conv(s: Example, scope: str = 'convolutional_dense') -> Array:
  """v1: conv(ReLU(conv(X)))."""
  hidden = relu(_convolved(s, scope))
  w2 = s.per_head(f'{scope}/W2', 3)
  rows = np.stack(
    [convolve(h, w, s.causal) for h, w in zip(hidden, w2, strict=True)]
  )
  return _columns(rows + _bias(s, f'{scope}/b2'), s)


def _convolved(s: Example, scope: str) -> Array:
  """conv(X; W1) of each head, [heads, n, d_kv]."""
  w1 = s.weights[f'{scope}/W1']
  w1 = w1.reshape(w1.shape[0], s.x.shape[1], s.heads, -1)
  rows = [convolve(s.x, w1[:, :, h], s.causal) for h in range(s.heads)]
  return np.stack(rows) + _bias(s, f'{scope}/b1')


def convolve(x: Array, kernel: Array, causal: bool) -> Array:
  """y_i = sum_w kernel[w] x_(i + w - before), zero outside the sequence."""
  width = len(kernel)
  before = width - 1 if causal else width // 2
  padded = np.pad(x, ((before, width - 1 - before), (0, 0)))
  return sum(padded[w : w + len(x)] @ kernel[w] for w in range(width))


def bottleneck(
  s: Example, inner: Function, scope: str = 'bottleneck_dense'
) -> Array:
  """v1: another function of x projected to a smaller r and back."""
  narrow = s.x @ s.weights[f'{scope}/D']
  return inner(dataclasses.replace(s, x=narrow @ s.weights[f'{scope}/U']))


def gated(s: Example, scope: str = 'gated_dense') -> Array:
  """v1, GLU: W2 ((W1 x_i) * sigmoid(Wg x_i))."""
  gate = 1 / (1 + np.exp(-_hidden(s, scope, 'g')))
  return _columns(_last(_hidden(s, scope) * gate, s, scope), s)


def patterns(s: Example, names: Sequence[str], size: int) -> Array:
  """Fixed attention, one pattern per head (arXiv 2002.10260, section 3)."""
  n = len(s.x)
  i, j = np.mgrid[:n, :n]

  def cubic(distance: Array) -> Array:
    return np.where(distance >= 2, (1 - distance / size) ** 3, 0)

  weights = {
    'current': j == i,
    'previous': j == i - 1,
    'next': j == i + 1,
    'start': j == 0,
    'end': j == n - 1,
    'left': cubic(i - j),
    'right': cubic(j - i),
  }
  chosen = np.stack([weights[names[h % len(names)]] for h in range(s.heads)])
  return np.where(chosen > 0, np.log(np.where(chosen > 0, chosen, 1)), -30.0)


# The layer.


def mixture(functions: Sequence[Function], mixing: str) -> Function:
  """sum_i alpha_i S_i(X), sum_i alpha_i = 1 (eq. 8)."""

  def logits(s: Example) -> Array:
    alphas = np.ones([len(functions), 1])
    if len(functions) > 1 and mixing != 'sum':
      heads = s.heads if mixing == 'softmax' else 1
      scores = s.weights['alpha'].reshape(-1, heads)
      scores = np.pad(scores, [(0, len(functions) - len(scores)), (0, 0)])
      e = np.exp(scores - scores.real.max(0))
      alphas = e / e.sum(0)
    terms = [
      a[:, None, None] * f(s) for a, f in zip(alphas, functions, strict=True)
    ]
    return np.sum(terms, axis=0)

  return logits


def bucket(distance: int, bidirectional: bool, buckets: int) -> int:
  """T5's bucket of a relative position (arXiv 1910.10683, section 2.1).

  Half of the buckets hold one distance each; the rest grow logarithmically up
  to a distance of 128. `distance` is key position minus query position.
  """
  first, n = 0, -distance
  if bidirectional:
    buckets //= 2
    first, n = buckets * (n < 0), abs(n)
  n = max(n, 0)
  exact = buckets // 2
  if n < exact:
    return first + n
  grown = math.log(n / exact) / math.log(128 / exact) * (buckets - exact)
  return first + min(exact + int(grown + 1e-9), buckets - 1)


@dataclasses.dataclass(frozen=True)
class Attention:
  """What a layer computes, of one sequence or of a batch."""

  y: Array  # [..., n, d_model]
  logits: Array  # [..., heads, n, m], with the relative position bias
  weights: Array  # [..., heads, n, m]
  log_z: Array  # [..., heads, n], log of the softmax's denominator


@dataclasses.dataclass(frozen=True)
class Layer:
  """One attention layer, with the settings of the layer under test."""

  functions: Sequence[Function]
  num_heads: int
  key_value_size: int
  num_memory_heads: int = 0  # of keys and values, if they are fewer
  shared_kv: bool = False
  mixing: str = 'softmax'  # 'softmax' (alpha per head), 'layer_*', 'sum'
  normalize: str | None = 'softmax'  # None for the MLP-Mixer form
  index_by: str = 'position'  # 'position' in the sequence, index in the 'row'
  relative_attention_type: str | None = None  # 'bias', 'contextual'
  relative_attention_num_buckets: int = 32

  def __call__(
    self,
    x: Array,
    weights: Weights,
    causal: bool = False,
    positions: npt.ArrayLike | None = None,
    visible: Array | None = None,
    memory: Array | None = None,
    columns: npt.ArrayLike | None = None,
  ) -> Attention:
    """Attention of one sequence [n, d_model] to all of a memory; default: x.

    `positions` and `columns` are those of tokens and memory in a table, 0, 1,
    ... by default; `visible` [n, n] overrides what `causal` implies.
    """
    n = len(x)
    rows = np.arange(n) if positions is None else np.asarray(positions)
    if memory is None:
      memory, columns = x, rows
      if visible is None:
        visible = np.tril(np.ones((n, n))) if causal else np.ones((n, n))
    else:
      columns = np.arange(len(memory)) if columns is None else columns
      visible = np.ones((n, len(memory)))
    key, value = ('kv', 'kv') if self.shared_kv else ('k', 'v')
    # Only some functions look at queries and keys.
    q = self._heads(x, weights, 'q', self.num_heads) if 'q' in weights else None
    k = self._memory(memory, weights, key) if key in weights else None
    columns = np.asarray(columns)
    s = Example(x, weights, self.num_heads, causal, rows, columns, q, k)
    logits = mixture(self.functions, self.mixing)(s)
    logits = logits + self._bias(q, weights, n, causal)
    visible = visible.astype(bool)
    attention, log_z = softmax(logits, visible)
    if self.normalize is None:
      attention = np.where(visible, logits, 0)
    v = self._memory(memory, weights, value)
    if 'v_bias' in weights:
      written = self.num_memory_heads or self.num_heads
      b3 = weights['v_bias'].reshape(written, 1, self.key_value_size)
      v = v + np.repeat(b3, self.num_heads // written, axis=0)
    read = np.einsum('hij,hjd->ihd', attention, v).reshape(n, -1)
    o = weights['o']
    y = read @ o.reshape(-1, o.shape[-1])
    return Attention(y, logits, attention, log_z)

  def _heads(self, x: Array, weights: Weights, name: str, heads: int) -> Array:
    w = weights[name].reshape(x.shape[1], heads, self.key_value_size)
    return np.einsum('id,dhk->hik', x, w)

  def _memory(self, x: Array, weights: Weights, name: str) -> Array:
    """Keys or values; the read heads of a group share one write head."""
    written = self.num_memory_heads or self.num_heads
    projected = self._heads(x, weights, name, written)
    return np.repeat(projected, self.num_heads // written, axis=0)

  def _bias(
    self, q: Array | None, weights: Weights, n: int, causal: bool
  ) -> Array | float:
    if self.relative_attention_type is None:
      return 0
    count = self.relative_attention_num_buckets
    buckets = np.array(
      [[bucket(j - i, not causal, count) for j in range(n)] for i in range(n)]
    )
    if self.relative_attention_type == 'contextual':
      table = weights['relative_attention_ak/kernel']
      table = table.reshape(self.num_heads, self.key_value_size, count)
      assert q is not None
      scores = np.einsum('hid,hdb->hib', q, table)
      return np.stack([scores[:, i, buckets[i]] for i in range(n)], axis=1)
    table = weights['relative_attention_bias']
    return table.reshape(self.num_heads, count)[:, buckets]


def rows(
  layer: Layer,
  x: Array,
  weights: Weights,
  sequence_id: Array,
  causal: bool = False,
  memory: Array | None = None,
  memory_id: Array | None = None,
) -> Attention:
  """Attention of a batch: each sequence of each row alone; 0 elsewhere.

  The tokens of a sequence are adjacent and have the same number; 0 is padding.
  In cross-attention, a target without inputs gets 0.
  """
  if memory_id is None:
    memory_id = sequence_id
  arrays = [x, *weights.values(), *([] if memory is None else [memory])]
  pairs = *x.shape[:-2], layer.num_heads, x.shape[-2], memory_id.shape[-1]
  batch = Attention(
    *(
      np.zeros(shape, np.result_type(*arrays))
      for shape in (x.shape, pairs, pairs, pairs[:-1])
    )
  )
  by_row = layer.index_by == 'row'
  for row in np.ndindex(x.shape[:-2]):
    for segment in set(sequence_id[row]) & set(memory_id[row]) - {0}:
      (queries,) = np.nonzero(sequence_id[row] == segment)
      (keys,) = np.nonzero(memory_id[row] == segment)
      attention = layer(
        x[row][queries],
        weights,
        causal,
        queries if by_row else None,
        memory=None if memory is None else memory[row][keys],
        columns=keys if by_row else None,
      )
      block = np.ix_(np.arange(layer.num_heads), queries, keys)
      batch.y[(*row, queries)] = attention.y
      batch.logits[row][block] = attention.logits
      batch.weights[row][block] = attention.weights
      batch.log_z[row][:, queries] = attention.log_z
  return batch


def probes(
  f: Callable[[Weights], Any],
  at: Weights,
  fixed: Weights | None = None,
  entries: int = 6,
  mixed: int = 3,
) -> Iterator[tuple[str, Array, float]]:
  """Derivatives of f by single entries of each array, and along mixtures.

  The mixtures reveal any wrong entry; the single entries show where to look.
  Yields the name of an array, a direction, and the derivative along it.
  `fixed` are further arrays that f takes.
  """
  rng = np.random.RandomState(0)
  for name, array in at.items():
    size = array.size
    directions = []
    for i in rng.permutation(size)[:entries]:
      directions.append(np.zeros(size))
      directions[-1][i] = 1.0
    directions.extend(rng.standard_normal((mixed, size)) / np.sqrt(size))
    for flat in directions:
      direction = flat.reshape(array.shape)
      moved = {**(fixed or {}), **at, name: array + 1e-100j * direction}
      yield name, direction, f(moved).imag * 1e100
