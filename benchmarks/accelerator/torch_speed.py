r"""Times T5 and our exported model in PyTorch, as `speed` does in XLA.

    python benchmarks/accelerator/torch_speed.py out/base/SelfAttention.json \
      --model synth_mtf/huggingface/modeling_synthesizer.py --out torch.json

It needs PyTorch and transformers. The description of a program has the sizes.
A name is `T5`, Hugging Face's, with `eager` or `sdpa` attention, or a variant
of our model in the file `--model`, such as `R+V`; `compiled` after it stands
for torch.compile. A step is the loss, gradients and AdamW (fused, if there is a
GPU): float32 weights, and products in bfloat16 by autocast. Dropout is 0.1 as
in the programs, but Hugging Face's drops single weights.

The JSON has the seconds of a step (median) and the peak of allocated bytes.
"""

import argparse
import importlib
import json
import os
import pathlib
import statistics
import sys
import time
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from benchmarks.accelerator import yardstick
from benchmarks.accelerator.report import Report

VARIANTS = {
  'V': 'vanilla',
  'R': 'random',
  'FR': 'factorized_random',
  'D': 'dense',
  'R+V': 'random_vanilla',
  'D+V': 'dense_vanilla',
}
NAMES = (
  *('T5 sdpa compiled', 'R+V compiled', 'R compiled', 'D compiled'),
  *('T5 sdpa', 'R+V', 'R', 'D', 'T5 eager', 'T5 eager compiled'),
)
_DROPOUT = 0.1


def model_of(
  name: str, size: Mapping[str, int], file: pathlib.Path
) -> torch.nn.Module:
  """Makes a model with its initial weights."""
  letters, *options = name.split()
  sizes = {
    key: size[key] for key in ('d_model', 'd_ff', 'd_kv', 'num_heads')
  } | {
    'vocab_size': size['vocab'],
    'num_layers': size['layers'],
    'num_decoder_layers': size['layers'],
    'dropout_rate': _DROPOUT,
    'decoder_start_token_id': 0,
    'use_cache': False,
  }
  torch.manual_seed(0)
  if letters == 'T5':
    config = transformers.T5Config(**sizes)
    config._attn_implementation = options[0]  # noqa: SLF001  set by from_pretrained
    return transformers.T5ForConditionalGeneration(config)
  ours = modeling(file)
  config = ours.SynthesizerConfig(
    variant=VARIANTS[letters], max_position_embeddings=size['inputs'], **sizes
  )
  return ours.SynthesizerForConditionalGeneration(config)


def modeling(file: pathlib.Path) -> Any:
  """Imports our modeling file, which needs only the files next to it."""
  package = types.ModuleType('model')
  package.__path__ = [str(file.parent)]
  sys.modules[package.__name__] = package
  return importlib.import_module(f'{package.__name__}.{file.stem}')


def step_of(
  name: str, size: Mapping[str, int], file: pathlib.Path, device: str
) -> Callable[[], torch.Tensor]:
  """Makes a training step on one batch of random ids without padding."""
  model = model_of(name, size, file).to(device).train()
  optimizer = torch.optim.AdamW(
    model.parameters(), lr=1e-4, fused=device == 'cuda'
  )
  called = torch.compile(model, dynamic=False) if 'compiled' in name else model
  ids = {
    key: torch.randint(2, size['vocab'], (size['batch'], size[length]))
    for key, length in (('input_ids', 'inputs'), ('labels', 'targets'))
  }
  ids['attention_mask'] = torch.ones_like(ids['input_ids'])
  ids = {key: value.to(device) for key, value in ids.items()}

  def step() -> torch.Tensor:
    with torch.autocast(device, torch.bfloat16):
      loss = called(**ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.detach()

  return step


def measure(
  step: Callable[[], torch.Tensor], device: str, rounds: int, steps: int
) -> dict[str, Any]:
  """Times a step and finds its peak memory."""
  start = time.perf_counter()
  loss = float(step())
  for _ in range(2):
    loss = float(step())
  warm = time.perf_counter() - start
  if device == 'cuda':
    torch.cuda.reset_peak_memory_stats()
  samples = []
  for _ in range(rounds):
    start = time.perf_counter()
    for _ in range(steps - 1):
      step()
    loss = float(step())  # waits for it
    samples.append((time.perf_counter() - start) / steps)
  found: dict[str, Any] = {
    'seconds': statistics.median(samples),
    'samples': samples,
    'loss': loss,
    'warm_up_seconds': warm,
  }
  if device == 'cuda':
    found['bytes'] = torch.cuda.max_memory_allocated()
  return found


def main(argv: Sequence[str] | None = None) -> Mapping[str, Any]:
  """Times the names on the command line."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add = parser.add_argument
  add('descriptions', nargs='+', type=pathlib.Path, metavar='DESCRIPTION')
  add('--model', type=pathlib.Path, required=True, help='our model')
  add('--names', nargs='+', default=NAMES)
  add('--out', type=pathlib.Path, required=True)
  add('--rounds', type=int, default=6)
  add('--steps', type=int, default=5, help='of each round')
  add('--seconds', type=float, default=200, help='at most, roughly')
  args = parser.parse_args(argv)
  device = 'cuda' if torch.cuda.is_available() else 'cpu'
  report = Report(args.out, args.seconds)
  report.results['device'] = {
    'kind': torch.cuda.get_device_name() if device == 'cuda' else 'cpu',
    'torch': torch.__version__,
    'transformers': transformers.__version__,
  }
  for path in args.descriptions:
    size, title = json.loads(path.read_text())['size'], path.parent.name
    flops = yardstick.t5_flops(size)
    for name in args.names:
      if not report.time_for(title, name):
        continue
      with report.part(title, name) as found:
        found.update(
          measure(
            step_of(name, size, args.model, device),
            *(device, args.rounds, args.steps),
          )
        )
        found['flops'] = {'t5': flops}
        median = found['seconds']
        found['tflops'] = flops / median / 1e12
        found['gb'] = found.get('bytes', 0) / 1e9
        print(
          f'{title} {name:18} {1e3 * median:8.2f} ms '
          f'{found["tflops"]:7.1f} T5 TFLOP/s '
          f'{found["gb"]:6.2f} GB, '
          f'warm-up {found["warm_up_seconds"]:.0f} s',
          flush=True,
        )
      torch._dynamo.reset()  # noqa: SLF001  it has no public name
      if device == 'cuda':
        torch.cuda.empty_cache()
  return report.results


if __name__ == '__main__':
  main()
  sys.stdout.flush()
  os._exit(0)
