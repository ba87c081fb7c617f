"""Sizes and NumPy arrays of the layer that `_torch` and `_jax` time."""

import numpy as np
import numpy.typing as npt

HEADS, D_KV, D_MODEL, RATE = 12, 64, 768, 0.1  # T5 (Base); dropout


def tokens_seen(
  batch: int, length: int, fill: tuple[float, float]
) -> npt.NDArray[np.bool_]:
  """Returns [batch, length]: False at padding, in the same rows as `_ours`.

  Args:
    batch: number of examples.
    length: N.
    fill: smallest and largest fraction of a row that may be tokens.
  """
  least, most = (int(share * length) for share in fill)
  used = np.random.default_rng(1).integers(least, most + 1, size=(batch, 1))
  return np.arange(length) < used


def arrays(
  letters: str, seen: npt.NDArray[np.bool_]
) -> tuple[dict[str, npt.NDArray[np.float32]], ...]:
  """Draws the inputs and the weights of a layer.

  Args:
    letters: V, R or R+V.
    seen: token mask, as returned by `tokens_seen`.

  Returns:
    The inputs `x`, `cotangent` and `bias`; and the weights, those of `v`, `o`,
    `q`, `k`, `R` and `alpha` that the layer uses.
  """
  rng = np.random.default_rng(1)

  def normal(*size: int, scale: float = 1.0) -> npt.NDArray[np.float32]:
    return (rng.normal(size=size) * scale).astype(np.float32)

  (batch, length), scale = seen.shape, D_MODEL**-0.5
  call = {
    name: normal(batch, length, D_MODEL) * seen[..., None]
    for name in ('x', 'cotangent')
  }
  call['bias'] = np.where(seen, 0, -1e9)[:, None, None].astype(np.float32)
  weights = {n: normal(D_MODEL, D_MODEL, scale=scale) for n in 'vo'}
  if 'V' in letters:
    weights['q'] = normal(D_MODEL, D_MODEL, scale=scale * D_KV**-0.5)
    weights['k'] = normal(D_MODEL, D_MODEL, scale=scale)
  if 'R' in letters:
    weights['R'] = normal(HEADS, length, length)
  if letters == 'R+V':
    weights['alpha'] = np.zeros([2, HEADS, 1, 1], np.float32)
  return call, weights
