"""Layouts of result tables: those of the paper, and an overview.

They are in layouts.json. A column there has scores of the first of its `tasks`
that a run has, and for each of its numbers the first of some metrics; or it is
an average `over` columns. In a layout, `?` marks a column that is left out if
no run has it. Neither TensorFlow nor runs are needed, so the command line can
list the layouts without them.
"""

import dataclasses
import itertools
import json
import math
import pathlib
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Optional

# Precedes T5's name for a task in the tasks that this package registers.
PREFIX = 'synth_'
VANILLA = ('T5 (V)', 'T5')  # plain T5: with our layer, and with the host's
LOG_PERPLEXITY = 'neg_log_perplexity'
PER_TOKEN = (LOG_PERPLEXITY, 'token_accuracy', 'sequence_accuracy')


@dataclasses.dataclass(frozen=True)
class Measure:
  """A number in a column.

  Attributes:
    name: unique within the column.
    tags: tags in `scores.frame`; the first one that a run has is used.
    shown: formats the number.
    better: 1 if higher is better, -1 if lower is better, 0 if neither.
    scale: multiplies the metric's value and standard error.
    of: converts the scaled value; only for metrics without a standard error.
    varies: whether the number may differ between runs of one model.
  """

  name: str
  tags: Sequence[str]
  shown: Callable[[float], str] = '{:.1f}'.format
  better: int = 1
  scale: float = 1.0
  of: Callable[[float], float] = float
  varies: bool = True


@dataclasses.dataclass(frozen=True)
class Column:
  """A column: scores of a task, an average over tasks, or a fact about runs.

  Attributes:
    header: printed above the column.
    measures: the numbers in the column.
    key: unique among all columns.
    over: the columns to average.
    note: printed below the table.
    optional: whether the column is left out if no run has it.
  """

  header: str
  measures: Sequence[Measure]
  key: str
  over: Sequence['Column'] = ()
  note: str = ''
  optional: bool = False

  @property
  def named(self) -> dict[str, Measure]:
    """The measures, by names that are unique in a table."""
    if len(self.measures) == 1:
      return {self.key: self.measures[0]}
    return {f'{self.key} {measure.name}': measure for measure in self.measures}

  def average(self, numbers: Mapping[str, float]) -> Optional[float]:
    """Returns the paper's average, which is T5's, of the columns in `over`.

    The numbers of each column are averaged first, so that MNLI counts once. The
    average is NaN if one of them is, and None if one is missing.
    """
    try:
      return statistics.fmean(
        statistics.fmean(numbers[name] for name in column.named)
        for column in self.over
      )
    except KeyError:
      return None

  @property
  def tags(self) -> set[str]:
    return {tag for measure in self.measures for tag in measure.tags}


class Layout(NamedTuple):
  """A table's columns, whether it needs a score, and whose table it is."""

  title: str
  columns: Sequence[Column]
  needs_scores: bool = True
  source: str = 'the paper'


def millions(number: float) -> str:
  """Formats a parameter count in millions."""
  return f'{number / 1e6:.2f}M' if number < 10e6 else f'{number / 1e6:.0f}M'


def _products(number: float) -> str:
  return f'{number / 1e9:.3g}G' if number > 1e8 else f'{number / 1e6:.3g}M'


_SHOWN = {'millions': millions, 'products': _products}
_DATA = json.loads(pathlib.Path(__file__).with_suffix('.json').read_text())


def _column(name: str) -> Column:
  """Makes a column of layouts.json."""
  is_optional, name = name.endswith('?'), name.rstrip('?')
  about: dict[str, Any] = {'metrics': {'average': ''}, **_DATA['columns'][name]}
  key, shown = about.get('key', name), about.get('shown', '{:.1f}')
  tasks = about.get('tasks', '').split()
  return Column(
    header=about.get('header', key),
    measures=[
      Measure(
        number,
        ['/'.join(tag) for tag in itertools.product(tasks, metrics.split())]
        if tasks
        else metrics.split(),
        _SHOWN.get(shown, shown.format),
        about.get('better', 1),
        about.get('scale', 1),
        math.exp if about.get('is_exponent') else float,
        about.get('varies', True),
      )
      for number, metrics in about['metrics'].items()
    ],
    key=key,
    over=[_column(one) for one in about.get('over', ())],
    note=about.get('note', ''),
    optional=is_optional,
  )


# All score columns, in T5's order.
_KNOWN = [_column(name) for name in _DATA['overview']]
LAYOUTS = {
  name: Layout(**{**layout, 'columns': [*map(_column, layout['columns'])]})
  for name, layout in _DATA['layouts'].items()
}


def _log_perplexity(task: str, header: str) -> Column:
  column = _column('Log ppl')
  tags = [f'{task}/{LOG_PERPLEXITY}']
  measure = dataclasses.replace(column.measures[0], tags=tags)
  return dataclasses.replace(
    column, header=header, key=header, measures=[measure]
  )


def overview(tags: Iterable[str]) -> Layout:
  """Returns a layout for all the tags that runs have."""
  known = {tag for column in _KNOWN for tag in column.tags}
  unknown = {tag: tag.rpartition('/') for tag in sorted(set(tags) - known)}
  others = [
    Column(tag, [Measure(metric, [tag], better=0)], tag)
    for tag, (task, _, metric) in unknown.items()
    if task and metric not in PER_TOKEN
  ]
  tasks = [t for t, _, metric in unknown.values() if metric == LOG_PERPLEXITY]
  log_perplexities = [
    _log_perplexity(task, f'Log ppl {task}' if len(tasks) > 1 else 'Log ppl')
    for task in tasks
  ]
  usual = [dataclasses.replace(column, optional=True) for column in _KNOWN]
  columns = [*usual, *others, *log_perplexities]
  last = map(_column, ('Steps/s', 'Params'))
  return Layout('Results', [*columns, *last], needs_scores=False)
