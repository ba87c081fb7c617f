"""Which scores differ by more than the number of examples explains.

With the standard errors s_1 and s_2 of two scores, that of their difference is
sqrt(s_1^2 + s_2^2): they count as apart where they differ by three of these.
"""

import dataclasses
import math
from collections.abc import Iterator
from typing import Optional

from synth_mtf.results.tables.columns import Measure
from synth_mtf.results.tables.table import Table

_ERRORS = 3


def apart(table: Table) -> Iterator[str]:
  """Yields, for each score, the best and the worst model if they are apart.

  Of a task with several metrics, the first one that tells them apart counts. A
  score without a standard error is compared with none.
  """
  for column in table.columns:
    for index, measure in enumerate(column.measures):
      text = _of(table, column.key, index, measure)
      if text:
        yield f'{column.header} ({text})'
        break


@dataclasses.dataclass(frozen=True)
class _Score:
  model: str
  mean: float
  error: float
  n: Optional[int]


def _of(table: Table, key: str, index: int, measure: Measure) -> str:
  scores = [
    _Score(model.label, numbers.mean, numbers.standard_error, numbers.n)
    for model in table.models
    for numbers in [model.cells[key][index]]
    if numbers.mean is not None and numbers.standard_error is not None
  ]
  if len(scores) < 2 or measure.higher_is_better is None:
    return ''
  scores.sort(key=lambda one: one.mean, reverse=measure.higher_is_better)
  best, worst = scores[0], scores[-1]
  error = math.hypot(best.error, worst.error)
  if abs(best.mean - worst.mean) <= _ERRORS * error:
    return ''
  texts = [f'{one.model} {measure.shown(one.mean)}' for one in (best, worst)]
  if best.n is not None and best.n == worst.n:
    texts.append(f'n = {best.n:,}')
  return ', '.join(texts)
