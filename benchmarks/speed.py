"""Times our layers and models against T5's, other frameworks and checkouts.

    python -m benchmarks.speed layer packed --json speed.json
    python -m benchmarks.speed layer --torch .torch/bin/python
    python -m benchmarks.speed layer packed model memory --checkout ../older
    python -m benchmarks.speed memory --lengths 4096 --names random vanilla

The sections are

  layer    one encoder layer of T5 (Base), forward and backward, on unpacked
           rows with padding, dropout as in T5
  packed   the same with two sequences per row
  model    a training step of a whole T5: loss, gradients and Adafactor
  decode   decoding with a whole T5, including the encoder (--beams 1 is greedy)
  memory   a layer at batch 1 for each N, in rows as --fill has them and in full
           ones (`NAME, full rows`): time, and peak memory of the process; a
           curve ends where the next length would exceed --limit_gb

A name is `SelfAttention` (T5's own layer, the baseline), a file in gin/variants
or `mtf MODE` (mesh_tensorflow's Synthesizer). In whole models, `NAME, fast_cpu`
adds all of common/fast_cpu.gin; everything else is T5's. `NAME, devices` is
computed by JAX on one CPU device, as with --device=cpu. --checkout times the
same names in another checkout of this project (`before: NAME`), or in this one
in another environment (`--checkout . --python ../other/bin/python`). --torch
and --jax give the Python of an environment that has the framework, and
transformers for decoding (`torch: V fused`).

Each framework and checkout has its own process; in `memory`, each layer and
length has one. The processes take turns, one step each, and are compared round
by round. The JSON has the settings and, for each section and name, `seconds`
(the median), `speed` (how many times as fast as SelfAttention: median and
quartiles), `cpu_speed` (the same in processor time), `over` (how many times as
fast as each other name) and, in `memory`, the peak `bytes` of the process.
"""

import argparse
import contextlib
import itertools
import json
import pathlib
import re
import statistics
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks._worker import HERE, Worker

BASELINE = 'SelfAttention'
_MODES = (
  *('random', 'factorized', 'dense_minus', 'random_plus', 'dense_plus'),
  *('random_plus_alpha', 'dense_plus_alpha'),
)
_WHOLE = [
  f'{name}, fast_cpu'
  for name in (BASELINE, 'vanilla', 'random', 'random_vanilla')
]
_TORCH_LAYERS = ('V fused', 'V own dropout', 'R+V', 'R+V fused', 'R')
_JAX_LAYERS = ('V', 'V weights', 'R+V', 'R')
_FULL = ', full rows'
_SETTINGS = ('size', 'batch', 'length', 'targets', 'fill', 'layers')


class Entry(NamedTuple):
  """A step to time."""

  name: str  # in the results
  step: str  # the worker's name for it
  worker: Worker


def names() -> dict[str, Sequence[str]]:
  """Returns the names that each section times by default."""
  variants = sorted((HERE / 'gin' / 'variants').glob('*.gin'))
  own = [p.stem for p in variants if 'synthetic_attention' in p.read_text()]
  return {
    'layer': [*own, *(f'mtf {mode}' for mode in _MODES)],
    'packed': (
      *('vanilla', 'random', 'factorized_random', 'dense', 'random_vanilla'),
      *('mtf random', 'mtf factorized', 'mtf random_plus_alpha'),
    ),
    'model': (*_WHOLE, 'random', 'dense_vanilla, fast_cpu', 'mtf random'),
    'decode': (*_WHOLE, 'random', 'mtf random'),
    'memory': (
      *('vanilla', 'random', 'factorized_random', 'random_vanilla'),
      'factorized_random_vanilla',
    ),
  }


def main(argv: Sequence[str]) -> dict[str, Any]:
  """Runs the sections on the command line; prints and writes the results."""
  args = _parse(argv)
  results: dict[str, Any] = {'settings': vars(args)}
  for section in args.sections:
    chosen = [
      BASELINE,
      *(n for n in args.names or names()[section] if n != BASELINE),
    ]
    print(f'\n{section}', flush=True)
    if section == 'memory':
      results[section] = _memory(chosen, args)
    else:
      results[section] = _turns(section, chosen, args)
    if args.json:
      pathlib.Path(args.json).write_text(json.dumps(results, indent=1) + '\n')
  return results


def _turns(
  section: str, chosen: Sequence[str], args: argparse.Namespace
) -> dict[str, Any]:
  """Times all entries in turns, one step per round."""
  with contextlib.ExitStack() as stack:
    entries = list(_entries(section, chosen, args, stack))
    rounds = range(args.rounds)
    times = np.array(
      [[e.worker.seconds(e.step) for e in entries] for _ in rounds]
    )
  wall, cpu = times[..., 0], times[..., 1]  # [rounds, entries]
  found = {}
  for i, entry in enumerate(entries):
    over = np.median(wall / wall[:, i : i + 1], axis=0)
    quartiles = np.quantile(wall[:, 0] / wall[:, i], [0.5, 0.25, 0.75])
    found[entry.name] = {
      'seconds': statistics.median(wall[:, i]),
      'speed': quartiles.tolist(),
      'cpu_speed': statistics.median(cpu[:, 0] / cpu[:, i]),
      'over': dict(zip((e.name for e in entries), over.tolist(), strict=True)),
    }
    line = (
      f'{entry.name:36} {1e3 * found[entry.name]["seconds"]:9.1f} ms '
      f'{quartiles[0]:6.2f} x ({quartiles[1]:.2f}-{quartiles[2]:.2f}), '
      f'{found[entry.name]["cpu_speed"]:.2f} in processor time'
    )
    if entry.name.startswith('before: '):
      line += f'; now {1 / over[chosen.index(entry.step)]:.2f} x as fast'
    print(line, flush=True)
  return found


def _entries(
  section: str,
  chosen: Sequence[str],
  args: argparse.Namespace,
  stack: contextlib.ExitStack,
) -> Iterator[Entry]:
  """Starts a worker per checkout and framework; yields its entries."""
  build = 'layer' if section == 'packed' else section
  shape = {name: getattr(args, name) for name in _SETTINGS}
  shape |= {'packed': section == 'packed', 'beams': args.beams}
  same = {name: shape[name] for name in ('batch', 'length', 'fill')}
  torch_layers: Sequence[str] = _TORCH_LAYERS
  if section == 'decode':
    same |= {'beams': args.beams, 'targets': args.targets}
    torch_layers = ('eager', 'sdpa')
  has_layers = section in ('layer', 'decode')
  before = args.checkout and args.python
  ours = [name for name in chosen if not name.startswith('mtf ')]
  for prefix, python, module, checkout, sizes, steps in (
    ('', sys.executable, '_ours', '', shape, chosen),
    ('before: ', before, '_ours', args.checkout, shape, ours),
    ('torch: ', has_layers and args.torch, '_torch', '', same, torch_layers),
    ('jax: ', section == 'layer' and args.jax, '_jax', '', same, _JAX_LAYERS),
  ):
    if python:
      words = [python, '-m', f'benchmarks.{module}', build, json.dumps(sizes)]
      worker = Worker([*words, *steps], checkout)
      stack.callback(worker.close)
      for step in steps:
        yield Entry(prefix + step, step, worker)


def _memory(
  chosen: Sequence[str], args: argparse.Namespace
) -> dict[str, dict[int, dict[str, float]]]:
  """Measures time and memory over N; `nothing` is a process without a step."""
  curves: dict[str, dict[int, dict[str, float]]] = {}
  fills = {'': args.fill, _FULL: (1.0, 1.0)}
  for prefix, checkout in (('', ''), ('before: ', args.checkout)):
    if prefix and not checkout:
      continue
    empty = _process('', 0, args.fill, checkout, args)['bytes']
    curves[f'{prefix}nothing'] = {0: {'bytes': empty}}
    for name, (rows, fill) in itertools.product(chosen, fills.items()):
      label = prefix + name + rows
      curve = curves[label] = {}
      for length in sorted(args.lengths):
        shorter, known = max(curve.items(), default=(length, {'bytes': empty}))
        growth = (known['bytes'] - empty) * (length / shorter) ** 2
        if empty + growth > args.limit_gb * 1e9:
          break
        curve[length] = _process(name, length, fill, checkout, args)
        print(
          f'{label:36} N {length:5} {curve[length]["seconds"]:8.3f} s '
          f'{curve[length]["bytes"] / 1e6:8.0f} MB',
          flush=True,
        )
  return curves


def _process(
  name: str,
  length: int,
  fill: Sequence[float],
  checkout: str,
  args: argparse.Namespace,
) -> dict[str, float]:
  """Returns median seconds and peak bytes of a process with one or no step."""
  shape = {'size': args.size, 'batch': 1, 'length': length, 'fill': fill}
  python = args.python if checkout else sys.executable
  words = [python, '-m', 'benchmarks._ours', 'layer', json.dumps(shape)]
  worker = Worker([*words, *filter(None, [name])], checkout)
  seconds = [worker.seconds(name)[0] for _ in range(args.rounds) if name]
  peak = float(worker.peak())
  worker.close()
  if not name:
    return {'bytes': peak}
  return {'bytes': peak, 'seconds': statistics.median(seconds)}


def _parse(argv: Sequence[str]) -> argparse.Namespace:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add = parser.add_argument
  add('sections', nargs='*', default=['layer'], metavar='SECTION')
  add('--names', nargs='+', help='default: as the section has')
  add('--checkout', default='', help='the folder of another checkout')
  add('--python', default=sys.executable, help='which runs that checkout')
  add('--torch', help='the python of an environment with torch')
  add('--jax', help='the python of an environment with jax')
  add('--size', default='base', help='a file of gin/sizes; of ours alone')
  add('--batch', type=int, default=4)
  add('--length', type=int, default=512, help='tokens of the encoder')
  add('--targets', type=int, default=114, help='tokens of the decoder')
  fill = 'shares of a row that are tokens, from and to'
  add('--fill', type=float, nargs=2, default=(0.6, 1.0), help=fill)
  add('--layers', type=int, default=0, help='blocks, if not as in --size')
  add('--beams', type=int, default=1, help='of decode')
  add('--lengths', type=int, nargs='+', default=(512, 1024, 2048, 4096, 8192))
  add('--limit_gb', type=float, default=16.0, help='of memory')
  add('--rounds', type=int, default=5, help='timed steps of each')
  add('--json', help='file to write')
  args = parser.parse_args(argv)
  layers = [BASELINE, *names()['layer'], 'lightconv', 'dyconv']
  for asked, known in (args.sections, list(names())), (args.names, layers):
    for name in asked or ():
      if re.sub(', (fast_cpu|devices)$', '', name) not in known:
        parser.error(f'{name}: expected some of {", ".join(known)}')
  return args


if __name__ == '__main__':
  main(sys.argv[1:])
