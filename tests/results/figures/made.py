"""What figures are drawn of, made up, and what is read off them again."""

import types
from collections.abc import Iterable, Sequence
from typing import Any, Optional

import numpy as np

from synth_mtf.results.records import Result


def result(task: str, metric: str, value: Optional[float], step: int) -> Result:
  """A score of a task at a step."""
  return Result(task, 'validation', metric, value, 10, 'example', None, step)


def run(
  label: str,
  loss: Sequence[tuple[int, float]] = (),
  results: Iterable[Result] = (),
  speed: Optional[float] = None,
  parameters: Optional[int] = None,
  **bindings: str,
) -> Any:
  """What a figure asks a run for."""
  return types.SimpleNamespace(
    name='/'.join(['runs', label, *bindings.values()]),
    label=label,
    bindings={'d_model': '64', **bindings},
    curves={'loss': np.array(loss)} if len(loss) else {},
    results=list(results),
    steps_per_second=speed,
    parameters=parameters,
  )


def panel(figure: Any, title: str) -> Any:
  """The only panel of a figure with this title."""
  (found,) = [a for a in figure.axes if a.get_title() == title]
  return found


def legend(figure: Any) -> list[str]:
  """What a figure names above its panels."""
  return [text.get_text() for text in figure.legends[0].get_texts()]
