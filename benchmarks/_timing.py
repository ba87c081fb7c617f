"""Times several things in turn, so that a drift of the machine hits all."""

import statistics
import time
from collections.abc import Callable, Mapping

_WARM_UP = 2


def in_turn(
  runs: Mapping[str, Callable[[], object]], rounds: int
) -> dict[str, list[float]]:
  """Runs everything in the order A B C A B C ...

  Args:
    runs: what to time, by name.
    rounds: how often each is timed, after runs that are not.

  Returns:
    Seconds of each round, by name.
  """
  for _ in range(_WARM_UP):
    for run in runs.values():
      run()
  seconds = {name: [] for name in runs}
  for _ in range(rounds):
    for name, run in runs.items():
      start = time.perf_counter()
      run()
      seconds[name].append(time.perf_counter() - start)
  return seconds


def summary(values: list[float]) -> dict[str, float]:
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


def ratios(of: list[float], to: list[float]) -> list[float]:
  """How many times as fast `to` is as `of`, round by round."""
  return [a / b for a, b in zip(of, to)]
