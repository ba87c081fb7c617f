"""The results in the form of the paper's Tables 5 and 6.

There is a row per model and a column per task, with both metrics where the
benchmark has two. Metrics, their order and the averages are T5's
(t5.evaluation.eval_utils).
"""

import collections
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from t5.evaluation import eval_utils

from synth_mtf.demo.table import Column

UNDEFINED = '-'
_PREFIX = 'synth_'
_AVERAGES = {
  'Average GLUE Score': 'GLUE',
  'Average SuperGLUE Score': 'SuperGLUE',
}
_HEADERS = {  # T5's names -> the paper's
  'SST-2': 'SST',
  'GLUE RTE': 'RTE',
  'BoolQ (accuracy)': 'BoolQ',
  'SuperGLUE RTE': 'RTE',
}

Row = Mapping[str, Any]  # what the stages of a variant measured


def columns(rows: Mapping[str, Row]) -> list[Column]:
  """Returns the table column by column.

  Args:
    rows: a model's label -> 'metrics' (T5's tags with our prefix),
      'log_perplexity', 'steps_per_second' and 'parameters'.

  Returns:
    (header, a text per variant) pairs, first the models' names.
  """
  return [
    ('Model', list(rows)),
    *_task_columns([row['metrics'] for row in rows.values()]),
    ('Log ppl', [f'{row["log_perplexity"]:.3f}' for row in rows.values()]),
    ('Steps/s', [f'{row["steps_per_second"]:.1f}' for row in rows.values()]),
    ('Params', [_millions(row['parameters']) for row in rows.values()]),
  ]


def _task_columns(metrics: Sequence[Mapping[str, Any]]) -> list[Column]:
  values = pd.DataFrame(
    [{tag[len(_PREFIX) :]: one[tag] for tag in one} for one in metrics],
    dtype=float,
  )
  known = {**eval_utils.METRIC_NAMES}
  for tag in values.columns:
    known.setdefault(tag, eval_utils.Metric(tag))
  present = [tag for tag in known if tag in values.columns]
  averages = _averages(values[present].rename(columns=lambda t: known[t].name))
  grouped = collections.defaultdict(list)
  for tag in known:
    if tag in present:
      grouped[known[tag].group].append(tag)
    elif known[tag].name in averages:
      grouped[known[tag].name].append(tag)
      values[tag] = averages[known[tag].name]
  return [
    (
      _AVERAGES.get(group) or _HEADERS.get(group, group),
      [_scores(row) for row in values[tags].itertuples(index=False)],
    )
    for group, tags in grouped.items()
  ]


def _averages(by_name: pd.DataFrame) -> pd.DataFrame:
  """T5's averages of GLUE and SuperGLUE, if all of their metrics are there.

  A correlation that is undefined, because a model gives the same answer to all
  examples, counts as 0.
  """
  averaged = eval_utils.compute_avg_glue(by_name.fillna(0.0))
  return averaged[[name for name in _AVERAGES if name in averaged.columns]]


def _scores(values: Sequence[float]) -> str:
  return '/'.join(
    UNDEFINED if math.isnan(value) else f'{value:.1f}' for value in values
  )


def _millions(number: int) -> str:
  return f'{number / 1e6:.2f}M' if number < 10e6 else f'{number / 1e6:.0f}M'
