"""Serves the same layers in JAX; see `_worker`.

    python -m benchmarks._jax layer '{"batch": 4, "length": 512}' V R

Each step, forward and backward, is one compiled program.
"""

import itertools
import json
import sys
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks._worker import serve

HEADS, D_KV, D_MODEL, RATE = 12, 64, 768, 0.1

Weights = dict[str, jax.Array]


class Layer:
  """T5's projections around softmax(B) V."""

  def __init__(
    self, name: str, batch: int, length: int, fill: tuple[float, float]
  ) -> None:
    """Draws weights and inputs.

    Args:
      name: V, R or R+V; ` weights` applies dropout to the weights that all
        queries share, as in T5X, rather than to the values.
      batch: number of examples.
      length: N.
      fill: how full the emptiest and the fullest row may be.
    """
    letters, _, dropped = name.partition(' ')
    rng = np.random.default_rng(1)

    def normal(*size: int, scale: float = 1.0) -> jax.Array:
      return jnp.asarray(rng.normal(size=size) * scale, jnp.float32)

    self.drops_values = not dropped
    least, most = (int(share * length) for share in fill)
    used = rng.integers(least, most + 1, size=(batch, 1))
    seen = jnp.asarray(np.arange(length) < used)
    self.bias = jnp.where(seen, 0.0, -1e9)[:, None, None, :]
    self.x, self.cotangent = (
      normal(batch, length, D_MODEL) * seen[..., None] for _ in range(2)
    )
    scale = D_MODEL**-0.5
    self.weights: Weights = {
      'v': normal(D_MODEL, HEADS, D_KV, scale=scale),
      'o': normal(HEADS, D_KV, D_MODEL, scale=scale),
    }
    if 'V' in letters:
      self.weights |= {
        'q': normal(D_MODEL, HEADS, D_KV, scale=scale * D_KV**-0.5),
        'k': normal(D_MODEL, HEADS, D_KV, scale=scale),
      }
    if 'R' in letters:
      self.weights['R'] = normal(HEADS, length, length)
    if letters == 'R+V':
      self.weights['alpha'] = jnp.zeros([2, HEADS])
    self._step = jax.jit(jax.value_and_grad(self._loss, (0, 1)))
    self._seeds = itertools.count()

  def step(self) -> object:
    """Forward and backward."""
    key = jax.random.PRNGKey(next(self._seeds))
    return jax.block_until_ready(self._step(self.weights, self.x, key))

  def _loss(self, w: Weights, x: jax.Array, key: jax.Array) -> jax.Array:
    v = _heads(x, w['v'])
    keep = jax.random.bernoulli(key, 1 - RATE, (*v.shape[:-1], 1)) / (1 - RATE)
    if self.drops_values:
      v = v * keep
    attention = jax.nn.softmax(self._logits(w, x) + self.bias)
    if not self.drops_values:
      attention = attention * keep.transpose(0, 2, 3, 1)
    y = jnp.einsum('bhqk,bkhd->bqhd', attention, v)
    return jnp.sum(jnp.einsum('bnhd,hdm->bnm', y, w['o']) * self.cotangent)

  def _logits(self, w: Weights, x: jax.Array) -> jax.Array:
    if 'q' not in w:
      return w['R'][None]
    q, k = _heads(x, w['q']), _heads(x, w['k'])
    if 'R' not in w:
      return jnp.einsum('bqhd,bkhd->bhqk', q, k)
    of_table, of_product = jax.nn.softmax(w['alpha'], 0)
    product = jnp.einsum('bqhd,bkhd->bhqk', q * of_product[:, None], k)
    return product + of_table[:, None, None] * w['R']


def _heads(x: jax.Array, w: jax.Array) -> jax.Array:
  return jnp.einsum('bnm,mhd->bnhd', x, w)


if __name__ == '__main__':
  _, shape, *names = sys.argv[1:]
  steps: dict[str, Callable[[], object]] = {
    n: Layer(n, **json.loads(shape)).step for n in names
  }
  serve(steps)
