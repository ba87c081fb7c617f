"""Times our layers beside those of other frameworks and other checkouts.

    python -m benchmarks.anchors --torch .torch/bin/python --json anchors.json
    python -m benchmarks.anchors --checkout ../older --ours vanilla random

Each framework runs in a process of its own, with the interpreter of an
environment that has it, as does each checkout of this project. The processes
take turns, a step each (A B C A B C ...), and are compared round by round.
What is timed is an encoder layer of T5 base, forward and backward, on rows that
are 60 to 100 % full, as in the section `layer` of `benchmarks/attention.py`.
"""

import argparse
import contextlib
import dataclasses
import json
import pathlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks import _options, _timing
from benchmarks._server import Worker
from benchmarks._timing import Times

BASELINE = 'SelfAttention'
_HERE = pathlib.Path(__file__).resolve().parent.parent
_OURS = (
  BASELINE,
  'vanilla',
  'random',
  'factorized_random',
  'dense',
  'factorized_dense',
  'random_vanilla',
  'dense_vanilla',
  'mtf random',
  'mtf dense_minus',
  'mtf random_plus_alpha',
  'mtf dense_plus_alpha',
)
_TORCH = (
  'torch V',
  'torch V, its own dropout',
  'torch R+V',
  'torch R+V, fused',
  'torch R',
)
_JAX = ('jax V', 'jax V, dropout of weights', 'jax R+V', 'jax R')


@dataclasses.dataclass(frozen=True)
class Entry:
  """A layer of a worker.

  Attributes:
    name: as it stands in the results.
    layer: what the worker calls it.
    worker: runs it.
  """

  name: str
  layer: str
  worker: Worker

  def time(self, times: Times) -> None:
    """Runs a step and adds its seconds."""
    wall, cpu = self.worker.seconds(self.layer)
    times.wall.append(wall)
    times.cpu.append(cpu)


def main(argv: Sequence[str]) -> dict[str, Any]:
  """Times all layers in turn, prints and writes the results.

  Args:
    argv: the command line without the program.

  Returns:
    What is written as JSON.
  """
  args = _parse(argv)
  with contextlib.ExitStack() as stack:
    entries = list(_entries(args, stack))
    times = {entry.name: Times([], []) for entry in entries}
    for _ in range(args.rounds):
      for entry in entries:
        entry.time(times[entry.name])
  results = {
    'settings': vars(args),
    'layers': {
      name: {
        'seconds': _timing.summary(of.wall),
        'speed': _timing.speed(of, times[BASELINE]),
        'over': {
          other: _timing.speed(of, beside)['median']
          for other, beside in times.items()
        },
      }
      for name, of in times.items()
    },
  }
  _print(results['layers'])
  if args.json:
    pathlib.Path(args.json).write_text(json.dumps(results, indent=1) + '\n')
  return results


def _entries(
  args: argparse.Namespace, stack: contextlib.ExitStack
) -> Iterator[Entry]:
  """Starts a worker for each framework and checkout."""
  shape = {
    name: getattr(args, name) for name in ('size', 'batch', 'length', 'packed')
  }
  ours = [BASELINE, *(n for n in args.ours if n != BASELINE)]
  for python, module, folder, names, ending in (
    (sys.executable, '_serve_layer', _HERE, ours, ''),
    (
      sys.executable,
      '_serve_layer',
      args.checkout,
      [n for n in ours[1:] if not n.startswith('mtf ')],
      ' of the other checkout',
    ),
    (args.torch, '_torch_layers', _HERE, args.of_torch, ''),
    (args.jax, '_jax_layers', _HERE, args.of_jax, ''),
  ):
    if not (python and folder and names):
      continue
    worker = Worker(
      [python, '-m', f'benchmarks.{module}', json.dumps(shape), *names], folder
    )
    stack.callback(worker.close)
    for name in names:
      yield Entry(name + ending, name, worker)


def _print(layers: dict[str, Any]) -> None:
  print(f'{"":36} {"ms":>8} {"x":>6} {"quartiles":>13} {"cpu x":>6}')
  for name, layer in layers.items():
    speed = layer['speed']
    low, high = speed['quartiles']
    print(
      f'{name:36} {1e3 * layer["seconds"]["median"]:8.1f} '
      f'{speed["median"]:6.2f} {low:6.2f}-{high:6.2f} '
      f'{speed["cpu_median"]:6.2f}',
      flush=True,
    )


def _parse(argv: Sequence[str]) -> argparse.Namespace:
  parser = _options.parser(__doc__, rounds=7)
  add = parser.add_argument
  add('--torch', help='the python of an environment with torch')
  add('--jax', help='the python of an environment with jax')
  add('--checkout', help='the folder of another checkout of this project')
  add('--ours', nargs='*', default=_OURS, help='files of gin/variants, or mtf')
  add('--of_torch', nargs='*', default=_TORCH, help='layers of torch')
  add('--of_jax', nargs='*', default=_JAX, help='layers of jax')
  add('--packed', action='store_true', help='two sequences in each row; ours')
  return parser.parse_args(argv)


if __name__ == '__main__':
  main(sys.argv[1:])
