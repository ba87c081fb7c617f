r"""Trains the programs of `lower` on the same batches of the same text.

    python -m benchmarks.accelerator.train programs/small text.npz \
      --names vanilla random --out out/train.json

All start from the same values where they have the same variables, and take
turns: `--every` steps each, then the loss of the validation examples. So all
have taken the same number of steps when the time is over. The learning rate and
the dropout are those of the programs; without dropout, the training step also
evaluates, when its new state is ignored.

The JSON has, for each name, the loss of each step, `validation` (steps and
loss), `seconds` for its steps and those of each turn in `turns`, without
evaluation. Beside it, NAME.npz has the final values of the variables that match
--keep, in float16.
"""

import argparse
import os
import pathlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from benchmarks.accelerator import programs
from benchmarks.accelerator.report import Report
from benchmarks.accelerator.training import Batch, Training, tokens

_SPLITS = ('train', 'validation')


def batches(
  arrays: Mapping[str, programs.Array], split: str, size: int
) -> Iterator[Batch]:
  """Yields whole batches, in order."""
  chosen = {name: arrays[f'{split}_{name}'] for name in ('inputs', 'targets')}
  for start in range(0, len(chosen['inputs']) - size + 1, size):
    yield {name: ids[start : start + size] for name, ids in chosen.items()}


def _train(
  training: Training, found: dict[str, Any], turn: Sequence[Batch]
) -> None:
  """Trains for a turn."""
  start = time.perf_counter()
  found['losses'] += training.train(turn)
  seconds = time.perf_counter() - start
  found['seconds'] += seconds
  found['turns'].append(seconds)


def _evaluate(
  training: Training, found: dict[str, Any], held_out: Sequence[Batch]
) -> None:
  """Records the mean loss, weighted by the tokens of the targets."""
  weights = [tokens(batch) for batch in held_out]
  loss = np.average(training.losses(held_out), weights=weights)
  found['validation'].append([training.taken, float(loss)])


def table(results: Mapping[str, Any]) -> str:
  """Returns the last losses."""
  lines = ['name  steps  training loss  validation loss  steps/s']
  for name, found in results['runs'].items():
    if found.get('validation'):
      steps, loss = found['validation'][-1]
      last = float(np.mean(found['losses'][-100:]))
      rate = steps / found['seconds'] if steps else 0.0
      lines.append(f'{name:18} {steps:6} {last:8.4f} {loss:8.4f} {rate:6.1f}')
    if 'error' in found:
      lines.append(f'{name:18} failed: {found["error"].splitlines()[-1]}')
  return '\n'.join(lines)


def main(argv: Sequence[str] | None = None) -> Mapping[str, Any]:
  """Trains the programs on the command line."""
  args = _parse(argv)
  report = Report(args.out, args.seconds)
  loaded = _read(args, report)
  size = next(iter(loaded.values())).description['size']['batch']
  with np.load(args.text) as arrays:
    train, held_out = (list(batches(arrays, one, size)) for one in _SPLITS)
  trainings = _started(loaded, args, report)
  _take_turns(trainings, train, held_out[: args.validation], args, report)
  report.save()
  print(table(report.results), f'{report.elapsed:.0f} s', flush=True)
  if args.keep:
    _keep(trainings, args.keep, args.out)
  return report.results


def _read(
  args: argparse.Namespace, report: Report
) -> dict[str, programs.Program]:
  loaded = {}
  for name in args.names:
    with report.part('runs', name):
      loaded[name] = programs.Program.read(args.programs, name)
  return loaded


def _started(
  loaded: Mapping[str, programs.Program],
  args: argparse.Namespace,
  report: Report,
) -> dict[str, Training]:
  """Compiles the programs and draws their variables."""
  device = jax.devices()[0]
  report.results['device'] = device.device_kind
  compiled = programs.compile_all(loaded, device, args.compile_seconds)
  print(f'compiled {len(compiled)} in {report.elapsed:.0f} s', flush=True)
  trainings = {}
  for name, step in compiled.items():
    with report.part('runs', name) as found:
      if isinstance(step, Exception):
        raise step
      trainings[name] = Training(loaded[name], step, device, args.seed)
      found.update(losses=[], validation=[], seconds=0.0, turns=[])
  return trainings


def _take_turns(
  trainings: dict[str, Training],
  train: Sequence[Batch],
  held_out: Sequence[Batch],
  args: argparse.Namespace,
  report: Report,
) -> None:
  """Trains until the time or the steps are over; drops what fails."""
  for name, training in trainings.items():
    with report.part('runs', name) as found:
      _evaluate(training, found, held_out)
  longest = 0.0  # of a turn
  for start in range(0, args.max_steps, args.every):
    began = time.monotonic()
    if report.left < longest:
      break
    turn = [train[i % len(train)] for i in range(start, start + args.every)]
    for name in [*trainings]:
      with report.part('runs', name) as found:
        _train(trainings[name], found, turn)
        _evaluate(trainings[name], found, held_out)
        print(f'{name:18}', *found['validation'][-1], flush=True)
      if 'error' in report.results['runs'][name]:
        del trainings[name]
    longest = max(longest, time.monotonic() - began)


def _keep(
  trainings: Mapping[str, Training], pattern: str, beside: pathlib.Path
) -> None:
  """Writes variables of each training."""
  for name, training in trainings.items():
    kept = {
      key: value.astype(np.float16)
      for key, value in training.variables(pattern).items()
    }
    if kept:
      np.savez(beside.with_name(f'{name}.npz'), **kept)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add = parser.add_argument
  add('programs', type=pathlib.Path)
  add('text', type=pathlib.Path)
  add('--names', nargs='+', required=True)
  add('--out', type=pathlib.Path, required=True)
  add('--every', type=int, default=100, help='steps between evaluations')
  add('--validation', type=int, default=20, help='batches, at most')
  add('--max_steps', type=int, default=10_000)
  add('--seed', type=int, default=0)
  add('--compile_seconds', type=float, default=300, help='at most')
  add('--seconds', type=float, default=240, help='at most, roughly')
  add('--keep', metavar='REGEX', help='variables to write, see above')
  return parser.parse_args(argv)


if __name__ == '__main__':
  main()
  os._exit(0)  # do not wait for compilations that took too long
