"""Layouts of result tables: those of the paper, and an overview.

They are in layouts.json. A column there shows the first of its `tasks` that a
run has scores of, and for each number the first of its metrics that the task
has; or it is an average `over` other columns. In a layout, `?` marks a column
that is left out if no run has it. This module needs neither TensorFlow nor
runs, so the command line can list the layouts quickly.
"""

import dataclasses
import json
import math
import pathlib
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

# Precedes T5's name for a task in the tasks that this package registers.
PREFIX = 'synth_'
VANILLA = ('T5 (V)', 'T5')  # plain T5: with our layer, and with the host's
LOG_PERPLEXITY = 'neg_log_perplexity'
PER_TOKEN = (LOG_PERPLEXITY, 'token_accuracy', 'sequence_accuracy')


@dataclasses.dataclass(frozen=True)
class Column:
  """A column: scores of a task, an average over tasks, or a fact about runs.

  Attributes:
    key: unique among all columns.
    header: printed above the column.
    tags: for each number in the column, by a name that is unique in a table,
      tags in `tables.frame`; the first one that a run has is used.
    over: the columns to average.
    shown: format of the numbers, or 'millions'.
    better: 1 if higher is better, -1 if lower is better, 0 if neither.
    scale: multiplies values and standard errors.
    is_exponent: whether the number is e to the power of the scaled value; only
      for metrics without a standard error.
    note: printed below the table.
    optional: whether the column is left out if no run has it.
  """

  key: str
  header: str
  tags: Mapping[str, Sequence[str]]
  over: Sequence['Column'] = ()
  shown: str = '{:.1f}'
  better: int = 1
  scale: float = 1.0
  is_exponent: bool = False
  note: str = ''
  optional: bool = False

  def number(self, value: float) -> float:
    """Converts a score or a fact to the number that is shown."""
    scaled = self.scale * value
    return math.exp(min(scaled, 709.0)) if self.is_exponent else scaled

  def text(self, number: float) -> str:
    """Formats a number."""
    if self.shown == 'millions':
      digits = 2 if number < 10e6 else 0
      return f'{number / 1e6:,.{digits}f}M'
    return self.shown.format(number)

  def average(self, numbers: Mapping[str, float]) -> float | None:
    """Returns the paper's average, which is T5's, of the columns in `over`.

    The numbers of each column are averaged first, so that MNLI counts once. The
    average is NaN if one of them is, and None if one is missing.
    """
    try:
      return statistics.fmean(
        statistics.fmean(numbers[name] for name in column.tags)
        for column in self.over
      )
    except KeyError:
      return None

  def is_among(self, tags: Collection[str]) -> bool:
    """Whether tags have one of this column's or, for an average, all parts."""
    if self.over:
      return all(column.is_among(tags) for column in self.over)
    return any(tag in tags for found in self.tags.values() for tag in found)


class Layout(NamedTuple):
  """A table's columns, whether it needs a score, and whose table it is."""

  title: str
  columns: Sequence[Column]
  needs_scores: bool = True
  source: str = 'the paper'


_DATA = json.loads(pathlib.Path(__file__).with_suffix('.json').read_text())


def _column(name: str) -> Column:
  """Makes a column of layouts.json."""
  about: dict[str, Any] = {
    'key': name.rstrip('?'),
    'tasks': '',
    'metrics': {'average': ''},
    **_DATA['columns'][name.rstrip('?')],
  }
  key, metrics = about['key'], about.pop('metrics')
  places = [f'{task}/' for task in about.pop('tasks').split()] or ['']
  about['tags'] = {
    key if len(metrics) == 1 else f'{key} {number}': [
      place + metric for place in places for metric in names.split()
    ]
    for number, names in metrics.items()
  }
  about['over'] = [_column(one) for one in about.get('over', ())]
  return Column(**{'header': key, **about, 'optional': name.endswith('?')})


# All score columns, in T5's order.
_KNOWN = [_column(name) for name in _DATA['overview']]
LAYOUTS = {
  name: Layout(**{**layout, 'columns': [*map(_column, layout['columns'])]})
  for name, layout in _DATA['layouts'].items()
}


def overview(found: Iterable[str]) -> Layout:
  """Returns a layout for all the tags that runs have."""
  known = {tag for x in _KNOWN for tags in x.tags.values() for tag in tags}
  unknown = {tag: tag.rpartition('/') for tag in sorted(set(found) - known)}
  tasks = [t for t, _, metric in unknown.values() if metric == LOG_PERPLEXITY]
  others = []
  for tag, (task, _, metric) in unknown.items():
    is_share = metric == 'sequence_accuracy'
    if task and (metric not in PER_TOKEN or is_share and task not in tasks):
      scale, better = 100.0 if is_share else 1.0, -metric.endswith('_edit')
      others.append(Column(tag, tag, {tag: [tag]}, better=better, scale=scale))
  c4 = _column('Log ppl')
  for task in tasks:
    tag = f'{task}/{LOG_PERPLEXITY}'
    header = f'Log ppl {task}' if len(tasks) > 1 else 'Log ppl'
    # Published numbers belong to the key 'Log ppl'.
    key = header if c4.is_among([tag]) else f'Log ppl {task}'
    others.append(
      dataclasses.replace(c4, key=key, header=header, tags={key: [tag]})
    )
  usual = [dataclasses.replace(column, optional=True) for column in _KNOWN]
  last = [*map(_column, ('Steps/s', 'Params'))]
  return Layout('Results', [*usual, *others, *last], needs_scores=False)
