"""Serves the same layers, and decoding, in PyTorch; see `_worker`.

    python -m benchmarks._torch layer '{"batch": 4, "length": 512}' V R
    python -m benchmarks._torch decode '{"targets": 40, ...}' eager sdpa

Layers run forward and backward, with T5's dropout: one decision for each key
and head, which is a factor on the values. Decoding is by Hugging Face's T5 of
random weights and needs transformers.
"""

import json
import os
import sys
from collections.abc import Callable

import numpy as np
import torch
from torch.nn.functional import dropout, scaled_dot_product_attention

from benchmarks._worker import serve

HEADS, D_KV, D_MODEL, RATE = 12, 64, 768, 0.1  # T5 (Base), as below


class Layer(torch.nn.Module):
  """T5's projections around softmax(B) V.

  After `V`, `R` or `R+V`, ` fused` stands for PyTorch's fused attention, and
  ` own dropout` for that with its own dropout of each weight.
  """

  def __init__(
    self, name: str, batch: int, length: int, fill: tuple[float, float]
  ) -> None:
    super().__init__()
    letters, _, self.way = name.partition(' ')
    self.shape = batch, length, HEADS, D_KV
    generator = torch.Generator().manual_seed(1)

    def normal(*size: int, scale: float = 1.0) -> torch.Tensor:
      return torch.randn(*size, generator=generator) * scale

    seen = tokens_seen(batch, length, fill)
    self.bias = torch.where(seen, 0.0, -1e9)[:, None, None, :]
    self.x = normal(batch, length, D_MODEL) * seen[..., None]
    self.x.requires_grad_()
    self.cotangent = normal(batch, length, D_MODEL) * seen[..., None]
    scale = D_MODEL**-0.5
    weight = torch.nn.Parameter
    self.q = self.R = self.alpha = None
    if 'V' in letters:
      self.q = weight(normal(D_MODEL, D_MODEL, scale=scale * D_KV**-0.5))
      self.k = weight(normal(D_MODEL, D_MODEL, scale=scale))
    self.v = weight(normal(D_MODEL, D_MODEL, scale=scale))
    self.o = weight(normal(D_MODEL, D_MODEL, scale=scale))
    if 'R' in letters:
      self.R = weight(normal(HEADS, length, length))
    if letters == 'R+V':
      self.alpha = weight(torch.zeros(2, HEADS, 1, 1))

  def step(self) -> list[float]:
    """Forward and backward; a sum of each gradient."""
    y = self.attend().transpose(1, 2).reshape(self.x.shape)
    loss = ((y @ self.o) * self.cotangent).sum()
    found = torch.autograd.grad(loss, [self.x, *self.parameters()])
    return [g.sum().item() for g in found]

  def attend(self) -> torch.Tensor:
    """Y, [batch, heads, length, d_kv]."""
    q, v, bias = None, self.heads(self.v), self.bias
    if self.q is not None:
      q = self.heads(self.q)
    if self.R is not None:
      of_table, of_product = 1.0, None
      if self.alpha is not None:
        of_table, of_product = torch.softmax(self.alpha, 0)
        q = of_product * q
      bias = of_table * self.R + bias
    if self.way == 'own dropout':
      k = self.heads(self.k)
      return scaled_dot_product_attention(q, k, v, bias, RATE, scale=1.0)
    v = v * dropout(torch.ones(*v.shape[:-1], 1), RATE)
    if self.way == 'fused':
      k = self.heads(self.k)
      return scaled_dot_product_attention(q, k, v, bias, scale=1.0)
    if q is not None:
      bias = q @ self.heads(self.k).transpose(2, 3) + bias
    return torch.softmax(bias, -1) @ v

  def heads(self, weights: torch.Tensor) -> torch.Tensor:
    """X W, [batch, heads, length, d_kv]."""
    return (self.x @ weights).view(self.shape).transpose(1, 2)


def tokens_seen(
  batch: int, length: int, fill: tuple[float, float]
) -> torch.Tensor:
  """[batch, length]: what is no padding, in the rows of `_ours`."""
  least, most = (int(share * length) for share in fill)
  rng = np.random.default_rng(1)
  used = rng.integers(least, most + 1, size=(batch, 1))
  return torch.arange(length) < torch.tensor(used)


def decode(
  attention: str, seen: torch.Tensor, beams: int, targets: int
) -> Callable[[], object]:
  """Decodes `targets` tokens with a cache, by an attention of transformers."""
  import transformers

  torch.manual_seed(0)
  config = transformers.T5Config(
    vocab_size=32128,
    d_model=D_MODEL,
    d_kv=D_KV,
    d_ff=3072,
    num_layers=12,
    num_decoder_layers=12,
    num_heads=HEADS,
    decoder_start_token_id=0,
    attn_implementation=attention,
  )
  model = transformers.T5ForConditionalGeneration(config).eval()
  inputs = torch.randint(2, 32128, seen.shape) * seen

  def run() -> object:
    with torch.inference_mode():
      output = model.generate(
        inputs,
        attention_mask=seen.long(),
        max_new_tokens=targets,
        min_new_tokens=targets,
        num_beams=beams,
        do_sample=False,
      )
    assert output.shape[1] == targets + 1
    return output

  return run


if __name__ == '__main__':
  torch.set_num_threads(os.cpu_count() or 1)
  section, shape, *names = sys.argv[1:]
  sizes = json.loads(shape)
  rows = [sizes.pop(name) for name in ('batch', 'length', 'fill')]
  steps: dict[str, Callable[[], object]] = {
    n: decode(n, tokens_seen(*rows), **sizes)
    if section == 'decode'
    else Layer(n, *rows).step
    for n in names
  }
  serve(steps)
