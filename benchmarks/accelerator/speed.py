"""Times the programs of `lower` on the accelerator that JAX finds.

    python -m benchmarks.accelerator.speed 512=programs/512 --out out/speed.json

A section, TITLE=FOLDER, holds programs that are compared with one another. All
are compiled first; then they take turns, `--steps` steps at a time, and only
the last of these is waited for. The JSON has, for each section and name, the
seconds of a step (median and quartiles), `speed` (how many times as fast as
SelfAttention, round by round), the memory that the compiler reserves, and two
counts of operations a step:

  own   those of the program itself, by XLA's cost analysis before optimization;
        it looks tokens up by a product with one-hot rows
  t5    the products of T5 without padding, forward and backward, whatever the
        program does: a yardstick for all names and frameworks

`peak` is what the device reaches in one product of bfloat16 matrices.
"""

import argparse
import os
import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.accelerator import programs, yardstick
from benchmarks.accelerator.report import Report

BASELINE = 'SelfAttention'


class Runner:
  """A program with its state on the device."""

  def __init__(
    self, program: programs.Program, step: programs.Step, device: Any
  ) -> None:
    self._step = step
    self._features = program.random_features(device)
    self._state = program.initial(device)

  def seconds(self, steps: int) -> float:
    """Runs so many steps; returns the seconds of one."""
    start = time.perf_counter()
    losses = []
    for _ in range(steps):
      loss, self._state = self._step(self._features, self._state)
      losses.append(loss)
    self.loss = float(np.asarray(losses[-1]))  # waits for it
    return (time.perf_counter() - start) / steps


def time_section(
  report: Report,
  title: str,
  runners: dict[str, Runner],
  rounds: int,
  steps: int,
) -> None:
  """Times the programs of a section in turns."""
  samples: dict[str, list[float]] = {name: [] for name in runners}
  for _ in range(rounds):
    for name in [*runners]:
      with report.part(title, name) as found:
        samples[name].append(runners[name].seconds(steps))
        found['loss'] = runners[name].loss
      if 'error' in report.results[title][name]:
        del runners[name]
    if report.left < 0:
      break
  peak = report.results['device'].get('matmul')
  for name in runners:
    with report.part(title, name) as found:
      found['samples'] = samples[name]
      found.update(summary(found, samples.get(BASELINE), peak))


def summary(
  found: Mapping[str, Any],
  baseline: Sequence[float] | None,
  peak: float | None,
) -> dict[str, Any]:
  """Returns the figures of docs/results.md from the samples of a name."""
  samples = np.array(found['samples'])
  seconds = float(np.median(samples))
  figures = {
    'seconds': seconds,
    'quartiles': np.quantile(samples, [0.25, 0.75]).tolist(),
    'tflops': found['flops']['t5'] / seconds / 1e12,
  }
  if baseline and len(baseline) == len(samples):
    ratios = np.array(baseline) / samples
    figures['speed'] = np.quantile(ratios, [0.5, 0.25, 0.75]).tolist()
  if peak:
    figures['share'] = found['flops']['t5'] / seconds / peak
  if 'memory' in found:
    figures['gb'] = found['memory']['peak'] / 1e9
  return figures


def matmul_peak(size: int, repetitions: int = 20) -> float:
  """Measures the operations per second of a product of bfloat16 matrices."""
  keys = jax.random.split(jax.random.PRNGKey(0))
  a, b = (jax.random.normal(key, (size, size), jnp.bfloat16) for key in keys)
  product = jax.jit(jnp.matmul)
  product(a, b).block_until_ready()
  best = float('inf')
  for _ in range(3):
    start = time.perf_counter()
    results = [product(a, b) for _ in range(repetitions)]
    jax.block_until_ready(results)
    best = min(best, (time.perf_counter() - start) / repetitions)
  return 2 * size**3 / best


def table(results: Mapping[str, Any]) -> str:
  """Returns a short table of all sections."""
  lines = []
  for title, section in results.items():
    if title == 'device':
      continue
    lines.append(f'{title}')
    for name, found in section.items():
      if 'seconds' not in found:
        reason = found.get('skipped') or found.get('error', '')
        lines.append(f'  {name:24} {reason.strip().splitlines()[-1:]}')
        continue
      low, high = found['quartiles']
      cells = [
        f'  {name:24} {1e3 * found["seconds"]:8.2f} ms',
        f'({1e3 * low:.2f}-{1e3 * high:.2f})',
        f'{found["tflops"]:7.1f} T5 TFLOP/s',
        f'{found["gb"]:6.2f} GB',
      ]
      if 'speed' in found:
        cells.append(f'{found["speed"][0]:5.2f} x')
      if 'share' in found:
        cells.append(f'{found["share"]:6.1%} of the peak')
      lines.append(' '.join(cells))
  return '\n'.join(lines)


def main(argv: Sequence[str] | None = None) -> Mapping[str, Any]:
  """Times the sections on the command line."""
  args = _parse(argv)
  report = Report(args.out, args.seconds)
  device = jax.devices()[0]
  with report.part('device') as found:
    found['kind'], found['jax'] = device.device_kind, jax.__version__
    found['matmul'] = matmul_peak(args.matmul)
    print(device.device_kind, f'{found["matmul"] / 1e12:.0f} TFLOP/s')
  loaded = {}
  for title, folder in args.sections:
    paths = {path.stem: path for path in folder.glob('*.json')}
    wanted = [name.replace(' ', '_') for name in args.names or sorted(paths)]
    for name in wanted:
      with report.part(title, name) as found:
        program = programs.Program.read(folder, name)
        loaded[title, name] = program
        found['flops'] = {
          'own': program.flops(),
          't5': yardstick.t5_flops(program.description['size']),
        }
  compiled = programs.compile_all(loaded, device, args.compile_seconds)
  print(f'compiled {len(compiled)} in {report.elapsed:.0f} s', flush=True)
  for title, _ in args.sections:
    runners = {}
    for key, step in compiled.items():
      if key[0] != title or not report.time_for(*key):
        continue
      with report.part(*key) as found:
        if isinstance(step, Exception):
          raise step
        found['memory'] = step.memory()
        runners[key[1]] = Runner(loaded[key], step, device)
        runners[key[1]].seconds(2)  # warm up
    time_section(report, title, runners, args.rounds, args.steps)
    print(f'{title}: done after {report.elapsed:.0f} s', flush=True)
  print(table(report.results), flush=True)
  return report.results


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add = parser.add_argument
  add('sections', nargs='+', type=_section, metavar='TITLE=FOLDER')
  add('--names', nargs='+', help='default: all in the folder')
  add('--out', type=pathlib.Path, required=True)
  add('--rounds', type=int, default=6)
  add('--steps', type=int, default=5, help='of each round')
  add('--matmul', type=int, default=8192, help='rows of the matrices')
  add('--compile_seconds', type=float, default=300, help='at most')
  add('--seconds', type=float, default=480, help='at most, roughly')
  return parser.parse_args(argv)


def _section(text: str) -> tuple[str, pathlib.Path]:
  title, _, folder = text.partition('=')
  return title, pathlib.Path(folder)


if __name__ == '__main__':
  main()
  os._exit(0)  # do not wait for compilations that took too long
