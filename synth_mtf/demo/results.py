"""The results in the form of the paper's Tables 5 and 6.

There is a row per model and a column per task, with both metrics where the
benchmark has two. Metrics, their order and the averages are T5's
(t5.evaluation.eval_utils). Where a model ran with several seeds, a cell has
mean and standard deviation.
"""

import collections
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

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

Row = Mapping[str, Any]  # what the stages of a run measured


def columns(rows: Mapping[str, Sequence[Row]]) -> list[Column]:
  """Returns the table column by column.

  Args:
    rows: a model's label -> for each of its seeds 'metrics' (T5's tags with our
      prefix), 'n' (the examples of each task), 'steps_per_second',
      'parameters' and, where it was pretrained, 'log_perplexity'.

  Returns:
    (header, a text per model and one for n) pairs, first the models' names.
  """

  def of(key: str, shown: Callable[[float], str]) -> list[str]:
    return [
      _cell([one.get(key) for one in runs], shown) for runs in rows.values()
    ]

  return [
    ('Model', [*rows, 'n']),
    *_task_columns(rows),
    ('Log ppl', [*of('log_perplexity', '{:.3f}'.format), '']),
    ('Steps/s', [*of('steps_per_second', '{:.1f}'.format), '']),
    (
      'Params',
      [*(_millions(runs[0]['parameters']) for runs in rows.values()), ''],
    ),
  ]


def _task_columns(rows: Mapping[str, Sequence[Row]]) -> list[Column]:
  runs = [(model, run) for model in rows for run in rows[model]]
  values = pd.DataFrame(
    [
      {_tag(key): value for key, value in run['metrics'].items()}
      for _, run in runs
    ],
    dtype=float,
  )
  examples = {
    task: n for _, run in runs for task, n in run.get('n', {}).items()
  }
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
  values.index = [model for model, _ in runs]
  return [
    (
      _AVERAGES.get(group) or _HEADERS.get(group, group),
      [
        *(
          '/'.join(_scores(values.loc[[model], tag]) for tag in tags)
          for model in rows
        ),
        _examples(tags, examples),
      ],
    )
    for group, tags in grouped.items()
  ]


def _tag(metric: str) -> str:
  """T5's name of a metric, without the prefix of our tasks."""
  return metric[len(_PREFIX) :]


def _averages(by_name: pd.DataFrame) -> pd.DataFrame:
  """T5's averages of GLUE and SuperGLUE, if all of their metrics are there.

  A correlation that is undefined, because a model gives the same answer to all
  examples, counts as 0.
  """
  averaged = eval_utils.compute_avg_glue(by_name.fillna(0.0))
  return averaged[[name for name in _AVERAGES if name in averaged.columns]]


def _examples(tags: Sequence[str], examples: Mapping[str, int]) -> str:
  """How many examples a column's tasks have: one number for each of them."""
  tasks = dict.fromkeys(_PREFIX + tag.rpartition('/')[0] for tag in tags)
  return '/'.join(str(examples[task]) for task in tasks if task in examples)


def _scores(values: Sequence[float]) -> str:
  return _cell(list(values), '{:.1f}'.format)


def _cell(
  values: Sequence[Optional[float]], shown: Callable[[float], str]
) -> str:
  """Shows a number, or mean and standard deviation of several."""
  known = [one for one in values if one is not None and not math.isnan(one)]
  if len(known) < len(values):
    return UNDEFINED
  mean = shown(statistics.fmean(known))
  if len(known) == 1:
    return mean
  return f'{mean}±{shown(statistics.stdev(known))}'


def _millions(number: int) -> str:
  return f'{number / 1e6:.2f}M' if number < 10e6 else f'{number / 1e6:.0f}M'
