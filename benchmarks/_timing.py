"""Times several things in turn, so that a drift of the machine affects all."""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class Times(NamedTuple):
  """Seconds of each round.

  Attributes:
    wall: by the clock.
    cpu: of this process, over all cores; steadier if others use the machine.
  """

  wall: list[float]
  cpu: list[float]


def in_turn(
  runs: Mapping[str, Callable[[], object]], rounds: int
) -> dict[str, Times]:
  """Runs everything in the order A B C A B C ...

  Args:
    runs: what to time, by name.
    rounds: how often each is timed, after one round that is not.

  Returns:
    The times of each, by name.
  """
  times = {name: Times([], []) for name in runs}
  for run in runs.values():
    run()
  for _ in range(rounds):
    for name, run in runs.items():
      wall, cpu = time.perf_counter(), time.process_time()
      run()
      times[name].wall.append(time.perf_counter() - wall)
      times[name].cpu.append(time.process_time() - cpu)
  return times


def summary(values: list[float]) -> dict[str, Any]:
  """Median and spread (the middle half, and the whole) of some numbers."""
  quarters = (
    statistics.quantiles(values, n=4, method='inclusive')
    if len(values) > 1
    else values * 3
  )
  return {
    'median': statistics.median(values),
    'quartiles': [quarters[0], quarters[2]],
    'range': [min(values), max(values)],
  }


def speed(of: Times, beside: Times) -> dict[str, Any]:
  """How many times as fast `of` is as `beside`, compared round by round."""
  return {
    **summary([b / a for a, b in zip(of.wall, beside.wall)]),
    'cpu_median': statistics.median(
      [b / a for a, b in zip(of.cpu, beside.cpu)]
    ),
  }
