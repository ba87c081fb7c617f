"""Which scores differ by more than the number of examples explains.

With the standard errors s_1 and s_2 of two scores, that of their difference is
sqrt(s_1^2 + s_2^2): they count as apart where they differ by three of these.
"""

import math
from collections.abc import Iterator

from synth_mtf.analysis.tables.columns import Measure
from synth_mtf.analysis.tables.table import Model, Numbers, Table

_ERRORS = 3


def apart(table: Table) -> Iterator[str]:
  """Yields, for each score, the best and the worst model if they are apart.

  Of a task with several metrics, the first one that tells them apart counts.
  """
  for column in table.columns:
    for index, measure in enumerate(column.measures):
      text = _of(table, column.key, index, measure)
      if text:
        yield f'{column.header} ({text})'
        break


def _of(table: Table, key: str, index: int, measure: Measure) -> str:
  if measure.higher_is_better is None:
    return ''
  known = [
    (numbers.mean, numbers.standard_error, model, numbers)
    for model in table.models
    for numbers in [model.cells[key][index]]
    if numbers.mean is not None and numbers.standard_error is not None
  ]
  if len(known) < 2:
    return ''
  known.sort(key=lambda one: one[0])
  ends = [known[0], known[-1]]
  (low, low_error, *_), (high, high_error, *_) = ends
  if high - low <= _ERRORS * math.hypot(low_error, high_error):
    return ''
  best = int(measure.higher_is_better)
  texts = [_shown(measure, *ends[i][2:]) for i in (best, 1 - best)]
  n = ends[0][3].n
  return ', '.join([*texts, *([f'n = {n:,}'] if n else [])])


def _shown(measure: Measure, model: Model, numbers: Numbers) -> str:
  assert numbers.mean is not None
  return f'{model.label} {measure.shown(numbers.mean)}'
