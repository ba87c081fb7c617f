"""Ways to read R by the positions in packed rows, by what a TPU needs for them.

    python tests/tpu/packed_reads.py [WAY ...]

Rows are packed: key j of a segment that begins at s reads column j - s, and so
does query i its row,

    B[b, h, i, j] = R[h, i - s, j - s],

where the tokens i and j of the example b are of one segment. All other pairs
are hidden, and what is read for them does not matter. Each way reads B and sums
its gradient into R; it is compared with a plain loop on the CPU, and compiled
for one core of a TPU v3 with the rows of `tests/tpu/lower.py`: 8 examples, 6
heads, N 512. It needs tests/tpu/requirements.txt and nothing of this project.
"""

import os
import sys
from collections.abc import Callable
from typing import Any

os.environ['JAX_PLATFORMS'] = 'cpu'
os.environ['TPU_SKIP_MDS_QUERY'] = '1'
os.environ['TPU_ACCELERATOR_TYPE'] = 'v3-8'
os.environ['TPU_WORKER_HOSTNAMES'] = 'localhost'

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import topologies

Array = Any
# Reads R [heads, N, N] at positions [batch, N] in segments that begin at starts
# [batch, N]: [batch, heads, N, N].
Read = Callable[[Array, Array, Array], Array]


def products(r: Array, positions: Array, starts: Array) -> Array:
  """As the layer does it: a product with one-hot vectors for each axis."""
  del starts
  one_hot = jax.nn.one_hot(positions, r.shape[-1], dtype=r.dtype)
  rows = jnp.einsum('bip,hpq->bhiq', one_hot, r)
  return jnp.einsum('bhiq,bjq->bhij', rows, one_hot)


def rows_and_product(r: Array, positions: Array, starts: Array) -> Array:
  """Rows are gathered, and columns read by a product."""
  del starts
  one_hot = jax.nn.one_hot(positions, r.shape[-1], dtype=r.dtype)
  return jnp.einsum('bihq,bjq->bhij', _rows(r, positions), one_hot)


def rows_twice(r: Array, positions: Array, starts: Array) -> Array:
  """Rows are gathered; transposed, so that columns are rows; and gathered."""
  del starts
  batch, n = positions.shape
  columns = _rows(r, positions).transpose(0, 3, 2, 1)
  columns = columns.reshape(batch * n, -1, n)
  at = positions + n * jnp.arange(batch)[:, None]
  found = jnp.take(columns, at.reshape(-1), axis=0, mode='clip')
  return found.reshape(batch, n, -1, n).transpose(0, 2, 3, 1)


def skewed(r: Array, positions: Array, starts: Array) -> Array:
  """Rows of R by distance (j - i mod N) are gathered, and skewed back."""
  del starts
  rows = _rows(_by_distance(r), positions).transpose(0, 2, 1, 3)
  return _by_key(rows)


def digits(r: Array, positions: Array, starts: Array) -> Array:
  """Rows are gathered, and shifted by the binary digits of the start."""
  rows = _rows(r, positions).transpose(0, 2, 1, 3)
  shift = 1
  while shift < r.shape[-1]:
    zeros = jnp.zeros_like(rows[..., :shift])
    shifted = jnp.concatenate([zeros, rows[..., :-shift]], axis=-1)
    has_digit = (starts // shift % 2 == 1)[:, None, :, None]
    rows = jnp.where(has_digit, shifted, rows)
    shift *= 2
  return rows


def windows(r: Array, positions: Array, starts: Array) -> Array:
  """Of a row with N zeros before it, N columns from N - s on are gathered."""
  heads, _, n = r.shape
  padded = jnp.concatenate([jnp.zeros_like(r), r], axis=-1)
  return lax.gather(
    padded,
    jnp.stack([positions, n - starts], axis=-1),
    lax.GatherDimensionNumbers((1, 3), (1,), (1, 2)),
    (heads, 1, n),
    mode='promise_in_bounds',
  )


WAYS: dict[str, Read] = {
  way.__name__: way
  for way in (
    products,
    rows_and_product,
    rows_twice,
    skewed,
    digits,
    windows,
  )
}


def _rows(r: Array, positions: Array) -> Array:
  """[batch, N, heads, N]: all heads of a row lie together."""
  found = jnp.take(
    r.transpose(1, 0, 2), positions.reshape(-1), axis=0, mode='clip'
  )
  return found.reshape(*positions.shape, *found.shape[1:])


def _by_distance(r: Array) -> Array:
  """[..., p, d] = r[..., p, (p + d) mod N], by a copy of another row length."""
  *lead, n, _ = r.shape
  flat = jnp.concatenate([r, r], axis=-1).reshape(*lead, 2 * n * n)
  flat = jnp.concatenate([flat, flat[..., :n]], axis=-1)
  return flat.reshape(*lead, n, 2 * n + 1)[..., :n]


def _by_key(rows: Array) -> Array:
  """[..., i, j] = rows[..., i, (j - i) mod N]."""
  *lead, n, _ = rows.shape
  flat = jnp.concatenate([rows, rows], axis=-1).reshape(*lead, 2 * n * n)
  flat = flat[..., n:]
  flat = jnp.concatenate([flat, jnp.zeros_like(flat[..., : n * n])], axis=-1)
  return flat[..., : n * (2 * n - 1)].reshape(*lead, n, 2 * n - 1)[..., :n]


def with_gradient(way: Read) -> Callable[..., tuple[Array, Array]]:
  """B, and what a gradient of it is for R."""

  def both(r: Array, positions: Array, starts: Array, db: Array) -> Any:
    b, back = jax.vjp(lambda r: way(r, positions, starts), r)
    return b, back(db)[0]

  return both


def largest_error(way: Read) -> float:
  """On the CPU, beside a loop over all pairs of tokens that see each other."""
  rng = np.random.default_rng(0)
  batch, heads, n = 2, 3, 16
  starts = np.array([[0] * 5 + [5] * 8 + [13] * 3, [0] * 16])
  r = rng.standard_normal((heads, n, n)).astype(np.float32)
  db = rng.standard_normal((batch, heads, n, n)).astype(np.float32)
  same = starts[:, None, :, None] == starts[:, None, None, :]
  db *= same
  b, dr = np.zeros_like(db), np.zeros_like(r)
  for example, i, j in np.argwhere(same[:, 0]):
    s = starts[example, i]
    b[example, :, i, j] = r[:, i - s, j - s]
    dr[:, i - s, j - s] += db[example, :, i, j]
  positions = np.arange(n) - starts
  found, gradient = with_gradient(way)(r, positions, starts, db)
  return float(max(abs(found * same - b).max(), abs(gradient - dr).max()))


def main(*names: str) -> None:
  """Prints a row for each way."""
  topology = topologies.get_topology_desc(
    platform='tpu', topology_name='v3:2x2'
  )
  core = jax.sharding.SingleDeviceSharding(topology.devices[0])
  batch, heads, n = 8, 6, 512

  def of(shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype, sharding=core)

  tokens = of((batch, n), jnp.int32)
  arguments = (
    of((heads, n, n), jnp.float32),
    tokens,
    tokens,
    of((batch, heads, n, n), jnp.float32),
  )
  print('| way | GFLOP | MB accessed | estimated ms | loops | error |')
  print('|---|---|---|---|---|---|')
  for name in names or WAYS:
    way = WAYS[name]
    compiled = jax.jit(with_gradient(way)).lower(*arguments).compile()
    (cost,) = compiled.cost_analysis()
    print(
      f'| {name} | {cost["flops"] / 1e9:.1f} | '
      f'{cost["bytes accessed"] / 1e6:.0f} | '
      f'{cost["optimal_seconds"] * 1e3:.1f} | '
      f'{compiled.as_text().count(" while(")} | {largest_error(way):.0e} |',
      flush=True,
    )


if __name__ == '__main__':
  main(*sys.argv[1:])
