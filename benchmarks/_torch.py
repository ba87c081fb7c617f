"""Runs the layers of `_layer`, and decoding, in PyTorch; see `_worker`.

    python -m benchmarks._torch layer '{"batch": 4, "length": 512}' V R
    python -m benchmarks._torch decode '{"targets": 40, ...}' eager sdpa

Layers run forward and backward with T5's dropout, which draws one value per key
and head and is applied to the values. Decoding runs Hugging Face's T5 with
random weights and needs transformers.
"""

import json
import os
import sys
from collections.abc import Callable

import torch
from torch.nn.functional import dropout, scaled_dot_product_attention

from benchmarks._layer import D_KV, D_MODEL, HEADS, RATE, arrays, tokens_seen
from benchmarks._worker import serve


def layer(name: str, seen: torch.Tensor) -> Callable[[], object]:
  """T5's projections around softmax(B) V, forward and backward.

  A name is `V`, `R` or `R+V`; ` fused` after it uses PyTorch's fused attention,
  ` own dropout` the same with its built-in dropout of each weight.
  """
  letters, _, way = name.partition(' ')
  call, weights = (
    {key: torch.from_numpy(value) for key, value in part.items()}
    for part in arrays(letters, seen.numpy())
  )
  sources = [call['x'], *weights.values()]
  for source in sources:
    source.requires_grad_()

  def step() -> object:
    y = _attend(way, weights, call['x'], call['bias'])
    y = y.transpose(1, 2).reshape(call['x'].shape)
    loss = ((y @ weights['o']) * call['cotangent']).sum()
    return [g.sum().item() for g in torch.autograd.grad(loss, sources)]

  return step


def _attend(
  way: str, w: dict[str, torch.Tensor], x: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
  """Returns Y, [batch, heads, length, d_kv]."""

  def heads(name: str) -> torch.Tensor:
    return (x @ w[name]).view(*x.shape[:2], HEADS, D_KV).transpose(1, 2)

  q = heads('q') if 'q' in w else None
  if 'alpha' in w:
    of_table, of_product = torch.softmax(w['alpha'], 0)
    q, bias = of_product * q, of_table * w['R'] + bias
  elif 'R' in w:
    bias = w['R'] + bias
  v = heads('v')
  if way == 'own dropout':
    return scaled_dot_product_attention(q, heads('k'), v, bias, RATE, scale=1.0)
  v = v * dropout(torch.ones(*v.shape[:-1], 1), RATE)
  if way == 'fused':
    return scaled_dot_product_attention(q, heads('k'), v, bias, scale=1.0)
  if q is not None:
    bias = q @ heads('k').transpose(2, 3) + bias
  return torch.softmax(bias, -1) @ v


def decode(
  attention: str, seen: torch.Tensor, beams: int, targets: int
) -> Callable[[], object]:
  """Decodes `targets` tokens with a cache and transformers' `attention`."""
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

  def step() -> object:
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

  return step


if __name__ == '__main__':
  torch.set_num_threads(os.cpu_count() or 1)
  section, shape, *names = sys.argv[1:]
  sizes = json.loads(shape)
  rows = [sizes.pop(name) for name in ('batch', 'length', 'fill')]
  seen = torch.from_numpy(tokens_seen(*rows))
  make = decode if section == 'decode' else layer
  serve({name: make(name, seen, **sizes) for name in names})
