"""Times decoding by T5 (Base) beside Hugging Face's T5 on PyTorch.

    python -m benchmarks.decoding --torch .torch/bin/python --json decoding.json
    python -m benchmarks.decoding --batch 1 --beams 4 --targets 20

Weights are random and no answer ends early. Encoding is included. The other T5
runs in a process of its own, with the interpreter of an environment that has
torch and transformers; all take turns and are compared round by round.

`bound` is the share of the time that memory alone would take: each step reads
the decoder's weights, the softmax's embedding and the keys and values of the
encoder's output once, at the rate of a stream of 1 GB, which takes its turn.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import json
import logging
import os
import pathlib
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')

import tensorflow.compat.v1 as tf

import synth_mtf  # noqa: F401  (readies the host)
from benchmarks import _cost, _options, _steps, _timing
from benchmarks._contestants import BASELINE, contestants, whole_models
from benchmarks._server import Worker

_HERE = pathlib.Path(__file__).resolve().parent.parent
_OURS = (
  BASELINE,
  f'{BASELINE}, fast_cpu',
  'vanilla, fast_cpu',
  'random, fast_cpu',
  'random_vanilla, fast_cpu',
)
_TORCH = ('eager', 'sdpa')
_STREAM = 'stream'


def main(argv: Sequence[str]) -> list[dict[str, Any]]:
  """Times each number of beams, prints and writes the results.

  Args:
    argv: the command line without the program.

  Returns:
    What is written as JSON.
  """
  args = _parse(argv)
  tf.disable_v2_behavior()
  tf.enable_resource_variables()
  shape = _steps.Shape(
    args.size, args.batch, args.length, args.targets, layers=args.layers
  )
  results = [
    _compare(args, dataclasses.replace(shape, beams=n)) for n in args.beams
  ]
  if args.json:
    pathlib.Path(args.json).write_text(json.dumps(results, indent=1) + '\n')
  return results


def _compare(args: argparse.Namespace, shape: _steps.Shape) -> dict[str, Any]:
  known = {**contestants(), **whole_models()}
  names = [BASELINE, *(n for n in args.ours if n != BASELINE)]
  steps = {name: _steps.decoding(known[name], shape) for name in names}
  stream = _cost.memory_stream(args.stream_bytes)
  runs: dict[str, Callable[[], object]] = {
    **{name: step.run for name, step in steps.items()},
    _STREAM: stream.run,
  }
  with contextlib.ExitStack() as stack:
    if args.torch:
      worker = Worker(
        [
          *(args.torch, '-m', 'benchmarks._torch_t5'),
          json.dumps(
            {
              'ids': _steps.tokens(shape).tolist(),
              'beams': shape.beams,
              'targets': shape.targets,
              'threads': args.threads,
            }
          ),
          *_TORCH,
        ],
        _HERE,
      )
      stack.callback(worker.close)
      for name in _TORCH:
        runs[f'Hugging Face, {name}'] = functools.partial(worker.seconds, name)
    times = _timing.in_turn(runs, args.rounds)
  rate = args.stream_bytes / statistics.median(times.pop(_STREAM).wall)
  entries = {
    name: {
      'seconds': _timing.summary(of.wall),
      'tokens_per_second': shape.batch
      * shape.targets
      / statistics.median(of.wall),
      'speed': _timing.speed(of, times[BASELINE]),
      'bound': (
        shape.targets
        * steps[name].bytes_read
        / rate
        / statistics.median(of.wall)
        if name in steps
        else None
      ),
    }
    for name, of in times.items()
  }
  for step in [*steps.values(), stream]:
    step.session.close()
  _print(shape, rate, entries)
  return {
    'shape': dataclasses.asdict(shape),
    'gbyte_per_second': rate / 1e9,
    'contestants': entries,
  }


def _print(
  shape: _steps.Shape, rate: float, entries: dict[str, dict[str, Any]]
) -> None:
  print(f'\n{shape}, {rate / 1e9:.1f} GB/s')
  print(f'{"":28} {"s":>7} {"tokens/s":>9} {"x":>6} {"quartiles":>13} bound')
  for name, entry in entries.items():
    low, high = entry['speed']['quartiles']
    bound = '' if entry['bound'] is None else f'{entry["bound"]:.0%}'
    print(
      f'{name:28} {entry["seconds"]["median"]:7.2f} '
      f'{entry["tokens_per_second"]:9.1f} {entry["speed"]["median"]:6.2f} '
      f'{low:6.2f}-{high:6.2f} {bound:>5}',
      flush=True,
    )


def _parse(argv: Sequence[str]) -> argparse.Namespace:
  parser = _options.parser(__doc__, rounds=5)
  add = parser.add_argument
  add('--torch', help='the python of an environment with torch, transformers')
  add('--threads', type=int, default=os.cpu_count(), help='of PyTorch')
  add('--ours', nargs='*', default=_OURS, help='as in benchmarks/attention.py')
  add('--layers', type=int, default=0, help='blocks, if not as in --size')
  add('--beams', type=int, nargs='+', default=[1, 4], help='1: greedy')
  add('--targets', type=int, default=40, help='tokens of the decoder')
  add('--stream_bytes', type=int, default=10**9)
  return parser.parse_args(argv)


if __name__ == '__main__':
  logging.disable(logging.CRITICAL)  # gin reports each folder that it searches
  main(sys.argv[1:])
