"""Time and memory of a layer over the length of its input.

    python -m benchmarks.growth --json growth.json --picture docs/growth.svg

Each layer and length has a process of its own, whose peak memory is that of the
step, variables and TensorFlow included (`nothing` is a process without a step).
Batch 1, T5 base, forward and backward, on a row that is 60 to 100 % full. A
layer's curve ends where the next length would need more than `--limit_gb`, if
memory grew with the square of the length. The picture takes matplotlib.
"""

import argparse
import json
import pathlib
import statistics
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks._server import Worker

_HERE = pathlib.Path(__file__).resolve().parent.parent
_LAYERS = (
  'SelfAttention',
  'vanilla',
  'random',
  'factorized_random',
  'random_vanilla',
  'factorized_random_vanilla',
)
_LENGTHS = (512, 1024, 2048, 4096, 8192)
_NOTHING = 'nothing'

# By layer and length: seconds of a step and bytes.
Curves = dict[str, dict[int, dict[str, float]]]


def main(argv: Sequence[str]) -> Curves:
  """Measures all layers, prints and writes the results.

  Args:
    argv: the command line without the program.

  Returns:
    What is written as JSON.
  """
  args = _parse(argv)
  shape = {'size': args.size, 'batch': 1}
  curves: Curves = {_NOTHING: {0: _measure('', shape, 0)}}
  empty = curves[_NOTHING][0]['bytes']
  print(f'{_NOTHING:28} {empty / 1e6:14.0f} MB')
  for name in args.layers:
    curves[name] = {}
    for length in sorted(args.lengths):
      shorter, known = max(curves[name].items(), default=(length, {}))
      used = known.get('bytes', empty) - empty
      if empty + used * (length / shorter) ** 2 > args.limit_gb * 1e9:
        break
      found = curves[name][length] = _measure(
        name, {**shape, 'length': length}, args.rounds
      )
      print(
        f'{name:28} N {length:5} {found["seconds"]:8.3f} s '
        f'{found["bytes"] / 1e6:8.0f} MB',
        flush=True,
      )
      if args.json:
        pathlib.Path(args.json).write_text(json.dumps(curves, indent=1) + '\n')
  if args.picture:
    draw(curves, args.picture)
  return curves


def _measure(
  name: str, shape: Mapping[str, Any], rounds: int
) -> dict[str, float]:
  """Seconds (the median) and peak memory of a process; '' runs no step."""
  names = [name] if name else []
  module = 'benchmarks._serve_layer'
  worker = Worker(
    [sys.executable, '-m', module, json.dumps(shape), *names], _HERE
  )
  seconds = [worker.seconds(name)[0] for _ in range(rounds)]
  peak = worker.peak()
  worker.close()
  found: dict[str, float] = {'bytes': peak}
  if seconds:
    found['seconds'] = statistics.median(seconds)
  return found


def draw(
  curves: Mapping[str, Mapping[int, Mapping[str, float]]], path: str
) -> None:
  """Draws time and memory over N, both axes logarithmic.

  Args:
    curves: what `main` returns.
    path: the picture's file; its ending says what kind it is.
  """
  from matplotlib import pyplot

  figure, axes = pyplot.subplots(1, 2, figsize=(9, 4), layout='constrained')
  for axis, key, label, unit in zip(
    axes, ('seconds', 'bytes'), ('seconds a step', 'peak memory, MB'), (1, 1e6)
  ):
    for name, curve in curves.items():
      if name != _NOTHING:
        values = [point[key] / unit for point in curve.values()]
        axis.loglog(list(curve), values, marker='o', label=name, base=2)
    axis.set_xlabel('N')
    axis.set_ylabel(label)
    axis.set_yscale('log', base=10)
    axis.grid(alpha=0.3)
  axes[0].legend(fontsize='small')
  figure.savefig(path, metadata={'Date': None} if path.endswith('svg') else {})


def _parse(argv: Sequence[str]) -> argparse.Namespace:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add: Any = parser.add_argument
  add('--layers', nargs='+', default=_LAYERS, help='as in attention.py')
  add('--size', default='base', help='a file of gin/sizes')
  add('--lengths', type=int, nargs='+', default=_LENGTHS)
  add('--rounds', type=int, default=2, help='timed runs of each layer')
  add('--limit_gb', type=float, default=16.0, help='memory of the machine')
  add('--json', help='file to write')
  add('--picture', help='file to write, .svg or .png')
  return parser.parse_args(argv)


if __name__ == '__main__':
  main(sys.argv[1:])
