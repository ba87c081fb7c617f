"""Serves the same layers in PyTorch; see `_server`.

    python -m benchmarks._torch_layers '{"batch": 4, "length": 512}' 'torch V'

Forward and backward, with T5's dropout: one decision for each key and head,
which is a factor on the values.
"""

import abc
import json
import sys
from collections.abc import Callable

import torch
from torch.nn.functional import dropout, scaled_dot_product_attention

from benchmarks._server import serve

HEADS, D_KV, D_MODEL, RATE = 12, 64, 768, 0.1


class Layer(torch.nn.Module, abc.ABC):
  """T5's projections around a way from q, k and v to Y.

  Attributes:
    R: [heads, length, length], where the layer has one.
  """

  has_product = True
  has_table = False

  def __init__(self, batch: int, length: int) -> None:
    super().__init__()
    self.shape = batch, length, HEADS, D_KV
    generator = torch.Generator().manual_seed(1)

    def normal(*size: int, scale: float = 1.0) -> torch.Tensor:
      return torch.randn(*size, generator=generator) * scale

    used = torch.randint(
      int(0.6 * length), length + 1, (batch, 1), generator=generator
    )
    seen = torch.arange(length) < used
    self.bias = torch.where(seen, 0.0, -1e9)[:, None, None, :]
    self.x = normal(batch, length, D_MODEL) * seen[..., None]
    self.x.requires_grad_()
    self.cotangent = normal(batch, length, D_MODEL) * seen[..., None]
    scale = D_MODEL**-0.5
    weight = torch.nn.Parameter
    if self.has_product:
      self.q = weight(normal(D_MODEL, D_MODEL, scale=scale * D_KV**-0.5))
      self.k = weight(normal(D_MODEL, D_MODEL, scale=scale))
    self.v = weight(normal(D_MODEL, D_MODEL, scale=scale))
    self.o = weight(normal(D_MODEL, D_MODEL, scale=scale))
    if self.has_table:
      self.R = weight(normal(HEADS, length, length))
    if self.has_table and self.has_product:
      self.alpha = weight(torch.zeros(2, HEADS, 1, 1))

  @abc.abstractmethod
  def attend(self, v: torch.Tensor) -> torch.Tensor:
    """Y, [batch, heads, length, d_kv]."""

  def step(self) -> list[float]:
    """Forward and backward; a sum of each gradient."""
    y = self.attend(self.heads(self.v)).transpose(1, 2)
    result = y.reshape(self.x.shape) @ self.o
    sources = [self.x, *self.parameters()]
    found = torch.autograd.grad((result * self.cotangent).sum(), sources)
    return [g.sum().item() for g in found]

  def heads(self, weights: torch.Tensor) -> torch.Tensor:
    """X W, [batch, heads, length, d_kv]."""
    return (self.x @ weights).view(self.shape).transpose(1, 2)

  def mixed(self) -> tuple[torch.Tensor, torch.Tensor]:
    """Alpha q and alpha R."""
    of_table, of_product = torch.softmax(self.alpha, 0)
    return of_product * self.heads(self.q), of_table * self.R


def drop_keys(v: torch.Tensor) -> torch.Tensor:
  """Dropout of the weights that all queries share."""
  return v * dropout(torch.ones(*v.shape[:-1], 1), RATE)


class Sdpa(Layer):
  """Its fused attention, with its own dropout of each weight."""

  def attend(self, v: torch.Tensor) -> torch.Tensor:
    q, k = self.heads(self.q), self.heads(self.k)
    return scaled_dot_product_attention(q, k, v, self.bias, RATE, scale=1.0)


class SdpaOfKeptValues(Layer):
  """Its fused attention, with T5's dropout."""

  def attend(self, v: torch.Tensor) -> torch.Tensor:
    q, k, v = self.heads(self.q), self.heads(self.k), drop_keys(v)
    return scaled_dot_product_attention(q, k, v, self.bias, scale=1.0)


class Eager(Layer):
  """One operation for each step."""

  def attend(self, v: torch.Tensor) -> torch.Tensor:
    logits = self.heads(self.q) @ self.heads(self.k).transpose(2, 3)
    return torch.softmax(logits + self.bias, -1) @ drop_keys(v)


class RandomVanilla(Layer):
  """R+V, one operation for each step."""

  has_table = True

  def attend(self, v: torch.Tensor) -> torch.Tensor:
    q, r = self.mixed()
    logits = q @ self.heads(self.k).transpose(2, 3) + (r + self.bias)
    return torch.softmax(logits, -1) @ drop_keys(v)


class RandomVanillaSdpa(Layer):
  """R+V by the fused attention, with R in its mask."""

  has_table = True

  def attend(self, v: torch.Tensor) -> torch.Tensor:
    q, r = self.mixed()
    return scaled_dot_product_attention(
      q, self.heads(self.k), drop_keys(v), r + self.bias, scale=1.0
    )


class Random(Layer):
  """R, one operation for each step."""

  has_product = False
  has_table = True

  def attend(self, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(self.R + self.bias, -1) @ drop_keys(v)


LAYERS: dict[str, type[Layer]] = {
  'torch V, its own dropout': Sdpa,
  'torch V': SdpaOfKeptValues,
  'torch V, step by step': Eager,
  'torch R+V': RandomVanilla,
  'torch R+V, fused': RandomVanillaSdpa,
  'torch R': Random,
}


def main(shape: str, names: list[str]) -> None:
  """Serves layers by name; prints the version first."""
  torch.set_num_threads(2)
  print('torch', torch.__version__, flush=True)
  size = json.loads(shape)
  layers = {n: LAYERS[n](size['batch'], size['length']) for n in names}
  steps: dict[str, Callable[[], object]] = {
    n: layer.step for n, layer in layers.items()
  }
  serve(steps)


if __name__ == '__main__':
  main(sys.argv[1], sys.argv[2:])
