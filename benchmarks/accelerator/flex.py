"""Synthesizer's R+V as one kernel of PyTorch's FlexAttention.

    python benchmarks/accelerator/flex.py --out out/flex.json

    B = alpha_1 R + alpha_2 Q K^T + relative position bias, Y = softmax(B) V

`score_mod` reads R, [heads, length, length], the weights alpha of each head and
the bias of each bucket, so that no sum of them is made. The section `check`
compares outputs and gradients with scaled_dot_product_attention, which is given
the sum as its mask, in float32. The others are
lengths: quartiles of the seconds of forward and backward in bfloat16, and peak
memory. It needs only PyTorch.
"""

import argparse
import functools
import math
import os
import pathlib
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import flex_attention as flex
from torch.nn.functional import scaled_dot_product_attention

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from benchmarks.accelerator.report import Report

_BUCKETS = 32
_DISTANCE = 128  # T5's
_kernel = torch.compile(flex.flex_attention, dynamic=False)
NAMES = ('q', 'k', 'v', 'R', 'alpha', 'bias')


def inputs(
  batch: int, heads: int, n: int, d_kv: int, dtype: Any, device: str
) -> dict[str, Tensor]:
  """Draws what R+V depends on."""
  torch.manual_seed(0)
  shapes: dict[str, tuple[int, ...]] = dict.fromkeys(
    'qkv', (batch, heads, n, d_kv)
  )
  shapes |= {'R': (heads, n, n), 'alpha': (2, heads), 'bias': (heads, _BUCKETS)}
  scales = {'q': d_kv**-0.5}
  return {
    name: (scales.get(name, 1.0) * torch.randn(shapes[name], device=device))
    .to(dtype)
    .requires_grad_()
    for name in NAMES
  }


def buckets(n: int, device: str) -> Tensor:
  """T5's buckets of the encoder, [length, memory_length]."""
  at = torch.arange(n, device=device)
  ahead = at - at[:, None]
  half = _BUCKETS // 2
  near = half // 2
  distance = ahead.abs()
  far = near + (
    torch.log(distance.clamp(min=1).float() / near)
    / math.log(_DISTANCE / near)
    * (half - near)
  ).to(torch.int64)
  far = far.clamp(max=half - 1)
  return (half * (ahead > 0) + torch.where(distance < near, distance, far)).to(
    torch.int32
  )


def by_flex(table: Tensor, x: dict[str, Tensor]) -> Tensor:
  """Applies R+V in one kernel."""
  r, (of_table, of_product), bias = x['R'], x['alpha'].softmax(0), x['bias']

  def score(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return of_product[h] * s + of_table[h] * r[h, i, j] + bias[h, table[i, j]]

  return _kernel(x['q'], x['k'], x['v'], score_mod=score, scale=1.0)


def by_mask(table: Tensor, x: dict[str, Tensor]) -> Tensor:
  """Applies R+V with a sum of R and the bias as the mask."""
  of_table, of_product = x['alpha'].softmax(0)[..., None, None]
  mask = of_table * x['R'] + x['bias'][:, table.long()]
  q = of_product * x['q']
  return scaled_dot_product_attention(
    q, x['k'], x['v'], mask[None].to(q.dtype), scale=1.0
  )


def check(n: int, device: str) -> dict[str, Any]:
  """Returns the largest difference of each result, relative to its largest."""
  x = inputs(2, 4, n, 64, torch.float32, device)
  table = buckets(n, device)
  cotangent = torch.randn_like(x['q'])
  # Products of TF32 would differ from the fourth digit on.
  torch.set_float32_matmul_precision('highest')
  found: dict[str, Any] = {}
  fixed = {name: value.detach() for name, value in x.items()}
  found['y'] = _difference(by_flex(table, fixed), by_mask(table, fixed))
  expected = torch.autograd.grad(by_mask(table, x), list(x.values()), cotangent)
  # Together, or else those that are supported.
  for names in (NAMES, *((name,) for name in NAMES)):
    for name in NAMES:
      x[name].requires_grad_(name in names)
    try:
      gradients = torch.autograd.grad(
        by_flex(table, x), [x[name] for name in names], cotangent
      )
    except Exception as error:
      found[' '.join(names)] = f'{type(error).__name__}: {error!s:.1000}'
      continue
    for name, value in zip(names, gradients, strict=True):
      found[name] = _difference(value, expected[NAMES.index(name)])
    if names == NAMES:
      break
  return found


def _difference(value: Tensor, expected: Tensor) -> float:
  return ((value - expected).abs().max() / expected.abs().max()).item()


def seconds(step: Callable[[], object], device: str, count: int) -> list[float]:
  """Times so many calls, after three."""
  samples = []
  for i in range(count + 3):
    start = time.perf_counter()
    step()
    if device == 'cuda':
      torch.cuda.synchronize()
    if i >= 3:
      samples.append(time.perf_counter() - start)
  return statistics.quantiles(samples, n=4)


def time_at(n: int, args: argparse.Namespace, device: str) -> dict[str, Any]:
  """Times all ways at one length and a constant number of tokens."""
  x = inputs(
    max(1, args.tokens // n), args.heads, n, 64, torch.bfloat16, device
  )
  table = buckets(n, device)
  ways: dict[str, tuple[Any, Sequence[str]]] = {
    'flex': (by_flex, NAMES),
    'mask': (by_mask, NAMES),
    'mask, compiled': (torch.compile(by_mask, dynamic=False), NAMES),
    'V': (plain, ('q', 'k', 'v')),
    'flex, R fixed': (by_flex, [name for name in NAMES if name != 'R']),
  }
  found: dict[str, Any] = {'batch': x['q'].shape[0]}
  cotangent = torch.randn_like(x['q'])
  for way, (forward, names) in ways.items():
    for name in NAMES:
      x[name].requires_grad_(name in names)
    step = functools.partial(
      _forward_and_backward, forward, table, x, names, cotangent
    )
    try:
      if device == 'cuda':
        torch.cuda.reset_peak_memory_stats()
      found[way] = {'seconds': seconds(step, device, args.steps)}
      if device == 'cuda':
        found[way]['bytes'] = torch.cuda.max_memory_allocated()
    except Exception as error:
      found[way] = {'error': f'{type(error).__name__}: {error!s:.1500}'}
    print(n, way, found[way], flush=True)
  return found


def plain(table: Tensor, x: dict[str, Tensor]) -> Tensor:
  """Applies V without a bias, PyTorch's fastest."""
  return scaled_dot_product_attention(x['q'], x['k'], x['v'], scale=1.0)


def _forward_and_backward(
  forward: Callable[[Tensor, dict[str, Tensor]], Tensor],
  table: Tensor,
  x: dict[str, Tensor],
  names: Sequence[str],
  cotangent: Tensor,
) -> object:
  return torch.autograd.grad(
    forward(table, x), [x[name] for name in names], cotangent
  )


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
  """Checks and times."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add = parser.add_argument
  add('--out', type=pathlib.Path, required=True)
  add('--lengths', type=int, nargs='+', default=(512, 4096, 2048, 1024))
  add('--tokens', type=int, default=16384, help='of a batch')
  add('--heads', type=int, default=12)
  add('--steps', type=int, default=20)
  add('--check', type=int, default=256, help='length of the comparison')
  add('--seconds', type=float, default=150, help='at most, roughly')
  args = parser.parse_args(argv)
  device = 'cuda' if torch.cuda.is_available() else 'cpu'
  report = Report(args.out, args.seconds)
  report.results['torch'] = torch.__version__
  with report.part('check') as found:
    found.update(check(args.check, device))
    print(found, flush=True)
  for n in args.lengths:
    if report.time_for(str(n)):
      with report.part(str(n)) as found:
        found.update(time_at(n, args, device))
  return report.results


if __name__ == '__main__':
  main()
  sys.stdout.flush()
  os._exit(0)
