"""Times the Synthesizer family beside the layers that it is compared with.

    python benchmarks/attention.py --json results.json
    python benchmarks/attention.py --sections layer --rounds 9
    python benchmarks/attention.py --sections layer --variants random dense

The sections are

  layer    one encoder layer, forward and backward, unpacked rows with padding,
           dropout as in T5
  packed   the same with two sequences in each row
  growth   the same for N = 128 ... 2048 and several batches, with the largest
           tensor of the graph
  model    a train step of a whole T5: loss, gradients and Adafactor, by the
           host's own model function
  decode   greedy decoding by the host's own decoder, the encoder included

All run in turn in one process (A B C A B C ...) and are compared round by
round. All results are fetched, so that nothing that a step must compute is
pruned. What takes part is every file of gin/variants that puts
SyntheticAttention into T5, T5's SelfAttention, and each mode of
mesh_tensorflow's Synthesizer ('mtf ...'). Whole models may have more than their
attention from us: 'random, fast_cpu' has all of `common/fast_cpu.gin`, 'random,
embedding by index' that part of it; without such an ending all else is T5's.

The JSON file has, for each section and contestant: `seconds` and `cpu_seconds`
(median, quartiles, range), `speed` (how many times as fast as SelfAttention,
round by round, with quartiles; `cpu_median` is the same in processor time,
which other work on the machine disturbs less), `over_rival` (how many times as
fast as mesh_tensorflow's mode that does the same), `parameters`, `gflop` of
matrix products, `gbyte` that operations read and write, `bound` (the share of
the time that the products alone would take at the machine's rate), and
`largest_tensor`. The rate, `matrix_gflop_per_second`, is that of a large square
product, which takes its turn among the contestants.
"""

import argparse
import dataclasses
import gc
import json
import logging
import os
import pathlib
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import tensorflow.compat.v1 as tf

import synth_mtf  # noqa: F401  (readies the host)
from benchmarks import _cost, _options, _steps, _timing
from benchmarks._contestants import (
  BASELINE,
  Contestant,
  contestants,
  whole_models,
)
from benchmarks._cost import Cost
from benchmarks._steps import Shape, Step
from benchmarks._timing import Times

SECTIONS = ('layer', 'packed', 'growth', 'model', 'decode')
_WHOLE_MODEL = (
  BASELINE,
  f'{BASELINE}, embedding by index',
  f'{BASELINE}, fast_cpu',
  'vanilla, fast_cpu',
  'random, fast_cpu',
  'random_vanilla, fast_cpu',
  'dense_vanilla, fast_cpu',
  'random',
  'mtf random',
)
_DECODE = (
  BASELINE,
  f'{BASELINE}, fast_cpu',
  'vanilla, fast_cpu',
  'random, fast_cpu',
  'random_vanilla, fast_cpu',
  'random',
  'mtf random',
)
_PACKED = (
  BASELINE,
  'vanilla',
  'random',
  'factorized_random',
  'dense',
  'random_vanilla',
  'mtf random',
  'mtf factorized',
  'mtf random_plus_alpha',
)
_GROWTH = (BASELINE, 'vanilla', 'random', 'factorized_random', 'dense')
_PRODUCT = 'matrix product'
_LENGTHS = (128, 256, 512, 1024, 2048)
_BATCHES = (1, 2, 4, 8)


def main(argv: list[str]) -> dict[str, Any]:
  """Runs the sections that were asked for, prints and writes the results.

  Args:
    argv: the command line without the program.

  Returns:
    What is written as JSON.
  """
  args = _parse(argv)
  tf.disable_v2_behavior()
  tf.enable_resource_variables()
  results = {
    'settings': vars(args),
    'versions': {'tensorflow': tf.__version__},
  }
  shape = Shape(
    args.size,
    args.batch,
    args.length,
    args.targets,
    fill=tuple(args.fill),
    layers=args.layers,
  )
  for section in args.sections:
    results[section] = _RUN[section](args, shape)
    if args.json:
      pathlib.Path(args.json).write_text(json.dumps(results, indent=1) + '\n')
  return results


def _layer(args: argparse.Namespace, shape: Shape) -> dict[str, Any]:
  return _compare(args, _steps.layer, shape, tuple(contestants()))


def _packed(args: argparse.Namespace, shape: Shape) -> dict[str, Any]:
  shape = dataclasses.replace(shape, packed=True)
  return _compare(args, _steps.layer, shape, _PACKED)


def _growth(args: argparse.Namespace, shape: Shape) -> list[dict[str, Any]]:
  shapes = [
    dataclasses.replace(shape, batch=1, length=n) for n in args.lengths
  ] + [dataclasses.replace(shape, batch=b) for b in args.batches]
  return [_compare(args, _steps.layer, s, _GROWTH) for s in shapes]


def _model(args: argparse.Namespace, shape: Shape) -> dict[str, Any]:
  return _compare(args, _steps.training, shape, _WHOLE_MODEL)


def _decode(args: argparse.Namespace, shape: Shape) -> dict[str, Any]:
  result = _compare(args, _steps.decoding, shape, _DECODE)
  for entry in result['contestants'].values():
    entry['tokens_per_second'] = (
      shape.batch * shape.targets / entry['seconds']['median']
    )
  return result


_RUN: dict[str, Callable[[argparse.Namespace, Shape], Any]] = dict(
  zip(SECTIONS, (_layer, _packed, _growth, _model, _decode))
)


def _compare(
  args: argparse.Namespace,
  build: Callable[[Contestant, Shape], Step],
  shape: Shape,
  default: Sequence[str],
) -> dict[str, Any]:
  """Times contestants side by side; prints a table."""
  chosen = _choose(args.variants, default)
  steps = {c.name: build(c, shape) for c in chosen}
  steps[_PRODUCT] = _cost.matrix_product(args.matrix_size)
  costs = {name: _cost.cost(step) for name, step in steps.items()}
  times = _timing.in_turn(
    {name: step.run for name, step in steps.items()}, args.rounds
  )
  parameters = {name: step.parameters for name, step in steps.items()}
  for step in steps.values():
    step.session.close()
  del steps
  gc.collect()
  entries = {
    c.name: {
      'seconds': _timing.summary(times[c.name].wall),
      'cpu_seconds': _timing.summary(times[c.name].cpu),
      'speed': _timing.speed(times[c.name], times[BASELINE]),
      'over_rival': (
        {'rival': c.rival, **_timing.speed(times[c.name], times[c.rival])}
        if c.rival in times
        else None
      ),
      'parameters': parameters[c.name],
      **_bound(costs, times, c.name),
    }
    for c in chosen
  }
  _print(build.__name__, shape, entries)
  return {
    'shape': dataclasses.asdict(shape),
    'matrix_gflop_per_second': costs[_PRODUCT].flops
    / 1e9
    / statistics.median(times[_PRODUCT].wall),
    'contestants': entries,
  }


def _choose(
  variants: Optional[Sequence[str]], default: Sequence[str]
) -> list[Contestant]:
  """The contestants of a section; the baseline always takes part."""
  known = {**contestants(), **whole_models()}
  names = variants or default
  unknown = [name for name in names if name not in known]
  if unknown:
    raise SystemExit(f'--variants {unknown}: expected names of {list(known)}')
  return [known[BASELINE]] + [known[n] for n in names if n != BASELINE]


def _bound(
  costs: Mapping[str, Cost], times: Mapping[str, Times], name: str
) -> dict[str, Any]:
  """The time of the products at the rate that was measured beside them."""
  cost, product = costs[name], costs[_PRODUCT]
  shares = [
    cost.flops / product.flops * one / all_
    for one, all_ in zip(times[_PRODUCT].wall, times[name].wall)
  ]
  return {
    'gflop': cost.flops / 1e9,
    'gbyte': cost.bytes / 1e9,
    'bound': statistics.median(shares),
    'largest_tensor': {
      'elements': cost.largest,
      'shape': cost.largest_shape,
    },
  }


def _print(
  title: str, shape: Shape, entries: Mapping[str, Mapping[str, Any]]
) -> None:
  print(f'\n{title}: {shape}')
  print(
    f'{"":28} {"ms":>9} {"x":>6} {"quartiles":>13} {"cpu x":>6} '
    f'{"x rival":>8} {"GFLOP":>8} {"bound":>6} {"largest tensor":>24}'
  )
  for name, entry in entries.items():
    speed, rival = entry['speed'], entry['over_rival']
    low, high = speed['quartiles']
    print(
      f'{name:28} {1e3 * entry["seconds"]["median"]:9.1f} '
      f'{speed["median"]:6.2f} {low:6.2f}-{high:6.2f} '
      f'{speed["cpu_median"]:6.2f} '
      f'{rival["median"] if rival else float("nan"):8.2f} '
      f'{entry["gflop"]:8.1f} {entry["bound"]:6.0%} '
      f'{str(entry["largest_tensor"]["shape"]):>24}',
      flush=True,
    )


def _parse(argv: Sequence[str]) -> argparse.Namespace:
  parser = _options.parser(__doc__, rounds=5)
  add = parser.add_argument
  add('--sections', nargs='+', choices=SECTIONS, default=list(SECTIONS))
  add('--variants', nargs='+', help='contestants; default: as the section has')
  add('--targets', type=int, default=114, help='tokens of the decoder')
  add(
    '--fill',
    type=float,
    nargs=2,
    default=(0.6, 1.0),
    help='shares of a row that are tokens, from and to',
  )
  add('--layers', type=int, default=0, help='blocks, if not as in --size')
  add('--lengths', type=int, nargs='+', default=_LENGTHS, help='of growth')
  add('--batches', type=int, nargs='+', default=_BATCHES, help='of growth')
  add('--matrix_size', type=int, default=2048, help='of the measured product')
  return parser.parse_args(argv)


if __name__ == '__main__':
  logging.disable(logging.CRITICAL)  # gin reports each folder that it searches
  main(sys.argv[1:])
