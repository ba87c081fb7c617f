"""Runs the layers of `_layer` in JAX, as a worker; see `_worker`.

    python -m benchmarks._jax layer '{"batch": 4, "length": 512}' V R

The forward and backward pass of a step are one compiled program.
"""

import functools
import itertools
import json
import sys
from collections.abc import Callable

import jax
import jax.numpy as jnp

from benchmarks._layer import D_KV, HEADS, RATE, arrays, tokens_seen
from benchmarks._worker import serve

Arrays = dict[str, jax.Array]


def layer(
  name: str, batch: int, length: int, fill: tuple[float, float]
) -> Callable[[], object]:
  """T5's projections around softmax(B) V, forward and backward.

  A name is `V`, `R` or `R+V`; ` weights` after it applies dropout, as in T5X,
  to attention weights (one mask for all queries) rather than to values.
  """
  letters, _, dropped = name.partition(' ')
  call, weights = (
    {key: jnp.asarray(value) for key, value in part.items()}
    for part in arrays(letters, tokens_seen(batch, length, fill))
  )
  loss = functools.partial(_loss, not dropped, call)
  compiled = jax.jit(jax.value_and_grad(loss, (0, 1)))
  seeds = itertools.count()

  def step() -> object:
    key = jax.random.PRNGKey(next(seeds))
    return jax.block_until_ready(compiled(weights, call['x'], key))

  return step


def _loss(
  drops_values: bool, call: Arrays, w: Arrays, x: jax.Array, key: jax.Array
) -> jax.Array:
  v = _heads(x, w['v'])
  keep = jax.random.bernoulli(key, 1 - RATE, (*v.shape[:-1], 1)) / (1 - RATE)
  if drops_values:
    v = v * keep
  attention = jax.nn.softmax(_logits(w, x) + call['bias'])
  if not drops_values:
    attention = attention * keep.transpose(0, 1, 3, 2)
  y = jnp.einsum('bhqk,bhkd->bqhd', attention, v).reshape(x.shape)
  return jnp.sum((y @ w['o']) * call['cotangent'])


def _logits(w: Arrays, x: jax.Array) -> jax.Array:
  if 'q' not in w:
    return w['R'][None]
  q, bias = _heads(x, w['q']), jnp.zeros([])
  if 'alpha' in w:
    of_table, of_product = jax.nn.softmax(w['alpha'], 0)
    q, bias = q * of_product, of_table * w['R']
  return jnp.einsum('bhqd,bhkd->bhqk', q, _heads(x, w['k'])) + bias


def _heads(x: jax.Array, w: jax.Array) -> jax.Array:
  return jnp.einsum('bnm,mhd->bhnd', x, w.reshape(-1, HEADS, D_KV))


if __name__ == '__main__':
  _, shape, *names = sys.argv[1:]
  serve({name: layer(name, **json.loads(shape)) for name in names})
