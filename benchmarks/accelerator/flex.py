"""Checks and times our model's R+V in one kernel, FlexAttention.

    python benchmarks/accelerator/flex.py --out out/flex.json \
      --model synth_mtf/huggingface/modeling_synthesizer.py

`check` compares models of two blocks whose `attn_implementation` is
'flex_attention' or 'sdpa', in float32, with and without torch.compile: for the
logits and the gradient of each parameter, the largest difference from 'sdpa' in
float64, relative to the largest value. Half of the rows have padding.

The other sections are lengths. They time forward and backward of one encoder
layer's attention, R+V of T5 (Base), in bfloat16 (weights, too) or by autocast
(float32 weights), with a constant number of tokens: quartiles of the seconds,
and the peak of allocated bytes beyond weights and input. It needs PyTorch and
transformers.
"""

import argparse
import copy
import functools
import os
import pathlib
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from benchmarks.accelerator.report import Report
from benchmarks.accelerator.torch_speed import modeling

_FLEX, _MASK = 'flex_attention', 'sdpa'
_CHECKED = ('random_vanilla', 'factorized_random_vanilla', 'vanilla')
Values = Mapping[str, Tensor]


def small_model(ours: Any, variant: str, n: int, device: str) -> nn.Module:
  """Makes a model of two blocks with alphas that differ."""
  torch.manual_seed(0)
  config = ours.SynthesizerConfig(
    variant=variant,
    max_position_embeddings=n,
    vocab_size=512,
    d_model=256,
    d_ff=512,
    d_kv=64,
    num_heads=4,
    num_layers=2,
    num_decoder_layers=2,
    dropout_rate=0.0,
    use_cache=False,
  )
  model = ours.SynthesizerForConditionalGeneration(config).to(device)
  for name, parameter in model.named_parameters():
    if name.endswith('alpha'):
      nn.init.normal_(parameter)
  return model


def batch_of(n: int, device: str) -> dict[str, Tensor]:
  """Draws four examples, two of them with padding."""
  torch.manual_seed(1)
  ids = {
    name: torch.randint(2, 512, (4, n)) for name in ('input_ids', 'labels')
  }
  ids['attention_mask'] = torch.ones_like(ids['input_ids'])
  ids['attention_mask'][2:, n // 2 :] = 0
  return {name: value.to(device) for name, value in ids.items()}


def results(
  model: Any, implementation: str, batch: Values, compiled: bool
) -> dict[str, Tensor | None]:
  """Returns the logits and the gradient of each parameter."""
  model.set_attn_implementation(implementation)
  model.zero_grad(set_to_none=True)
  torch._dynamo.reset()  # noqa: SLF001  it has no public name
  called = torch.compile(model) if compiled else model
  outputs = called(**batch)
  outputs.loss.backward()
  gradients = {name: p.grad for name, p in model.named_parameters()}
  return {'logits': outputs.logits.detach(), **gradients}


def check(ours: Any, variant: str, n: int, device: str) -> dict[str, Any]:
  """Returns the error of each result, by implementation."""
  torch.set_float32_matmul_precision('highest')  # not TF32
  model = small_model(ours, variant, n, device).train()
  batch = batch_of(n, device)
  exact = results(copy.deepcopy(model).double(), _MASK, batch, compiled=False)
  ways = {
    'sdpa': (_MASK, False),
    'flex': (_FLEX, False),
    'flex compiled': (_FLEX, True),
  }
  found: dict[str, Any] = {}
  for way, (implementation, compiled) in ways.items():
    try:
      values = results(model, implementation, batch, compiled)
    except Exception as error:
      found[way] = {'error': f'{type(error).__name__}: {error!s:.1500}'}
      continue
    errors = {name: _error(values[name], exact[name]) for name in exact}
    found[way] = {'worst': max(errors.values()), **errors}
    print(variant, way, found[way]['worst'], flush=True)
  return found


def _error(value: Tensor | None, exact: Tensor | None) -> float:
  """The largest difference, relative to the largest value."""
  if exact is None:
    return 0.0 if value is None else float('inf')
  if value is None:
    return float('inf')
  difference = (value.double() - exact).abs().max()
  return (difference / exact.abs().max()).item()


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


def layer_of(ours: Any, n: int, device: str) -> nn.Module:
  """Makes the attention of an encoder's first block."""
  torch.manual_seed(0)
  config = ours.SynthesizerConfig(
    variant='random_vanilla',
    max_position_embeddings=n,
    d_model=768,
    num_heads=12,
    d_kv=64,
    dropout_rate=0.0,
  )
  layer = ours.SyntheticAttention(config, 'encoder', 0).to(device)
  layer.apply(ours.initialize)
  return layer


def time_at(
  ours: Any, n: int, args: argparse.Namespace, device: str
) -> dict[str, Any]:
  """Times all ways at one length."""
  batch = max(1, args.tokens // n)
  found: dict[str, Any] = {'batch': batch}
  ways = {
    'sdpa, autocast': (False, True, True),
    'flex, autocast': (True, True, True),
    'flex, autocast, R fixed': (True, True, False),
    'sdpa, bfloat16': (False, False, True),
    'flex, bfloat16': (True, False, True),
  }
  for way, (fuses, by_autocast, trains_r) in ways.items():
    layer: Any = layer_of(ours, n, device)
    layer.fuses = fuses
    layer.random.R.requires_grad_(trains_r)
    if not by_autocast:
      layer.to(torch.bfloat16)
    dtype = layer.o.weight.dtype
    x = torch.randn(batch, n, 768, device=device, dtype=dtype)
    step = functools.partial(_forward_and_backward, layer, x, by_autocast)
    try:
      if device == 'cpu':
        found[way] = {'seconds': seconds(step, device, args.steps)}
      else:
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        found[way] = {'seconds': seconds(step, device, args.steps)}
        found[way]['bytes'] = torch.cuda.max_memory_allocated() - before
    except Exception as error:
      found[way] = {'error': f'{type(error).__name__}: {error!s:.1500}'}
    print(n, way, found[way], flush=True)
    del layer, x, step
  return found


def _forward_and_backward(layer: Any, x: Tensor, by_autocast: bool) -> None:
  layer.zero_grad(set_to_none=True)
  with torch.autocast(x.device.type, torch.bfloat16, enabled=by_autocast):
    y, *_ = layer(x)
  y.backward(torch.ones_like(y))


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
  """Checks and times."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add = parser.add_argument
  add('--model', type=pathlib.Path, required=True, help='our model')
  add('--out', type=pathlib.Path, required=True)
  add('--lengths', type=int, nargs='*', default=(512, 4096))
  add('--tokens', type=int, default=16384, help='of a batch')
  add('--steps', type=int, default=5)
  add('--check', type=int, default=256, help='length of the comparison')
  add('--seconds', type=float, default=150, help='at most, roughly')
  args = parser.parse_args(argv)
  device = 'cuda' if torch.cuda.is_available() else 'cpu'
  report = Report(args.out, args.seconds)
  report.results['torch'] = torch.__version__
  ours = modeling(args.model)
  for variant in _CHECKED:
    if report.time_for('check', variant):
      with report.part('check', variant) as found:
        found.update(check(ours, variant, args.check, device))
  for n in args.lengths:
    if report.time_for(str(n)):
      with report.part(str(n)) as found:
        found.update(time_at(ours, n, args, device))
  return report.results


if __name__ == '__main__':
  main()
  sys.stdout.flush()
  os._exit(0)
