"""Layouts of result tables: those of the paper, and an overview.

They are in layouts.json. A column there shows the first of its `tasks` that a
run has scores of, and for each number the first of its metrics that the task
has; or it is an average `over` other columns. In a layout, `?` marks a column
that is left out if no run has it. This module needs neither TensorFlow nor
runs, so the command line can list the layouts quickly.
"""

import dataclasses
import itertools
import json
import math
import pathlib
import re
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

# Precedes T5's name for a task in the tasks that this package registers.
PREFIX = 'synth_'
VANILLA = ('T5 (V)', 'T5')  # plain T5: with our layer, and with the host's
LOG_PERPLEXITY = 'neg_log_perplexity'
LOG_PERPLEXITY_PER_WORD = 'neg_log_perplexity_per_word'
PER_TOKEN = (
  LOG_PERPLEXITY,
  LOG_PERPLEXITY_PER_WORD,
  'token_accuracy',
  'sequence_accuracy',
)
ALL = 'all'  # the layout with a column for all that runs have
_MOST_PERPLEXITIES = 3  # in separate columns, by default


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
    average is NaN if one of them is or if their sum is too large, and None if
    one is missing.
    """
    try:
      return statistics.fmean(
        statistics.fmean(numbers[name] for name in column.tags)
        for column in self.over
      )
    except KeyError:
      return None
    except OverflowError:
      return math.nan

  @property
  def all_tags(self) -> set[str]:
    """The tags of this column, or of those that it averages."""
    own = {tag for tags in self.tags.values() for tag in tags}
    return own.union(*(column.all_tags for column in self.over))

  def is_among(self, tags: Collection[str]) -> bool:
    """Whether tags have one of this column's or, for an average, all parts."""
    if self.over:
      return all(column.is_among(tags) for column in self.over)
    own = itertools.chain.from_iterable(self.tags.values())
    return any(tag in tags for tag in own)


class Layout(NamedTuple):
  """A table's columns, whether it needs a score, and whose table it is.

  Columns in `hidden` are averaged, but not shown.
  """

  title: str
  columns: Sequence[Column]
  needs_scores: bool = True
  source: str = 'the paper'
  hidden: Sequence[Column] = ()


# What is said by the name of a metric that no layout has.
_BETTER_IF_HIGHER = re.compile(
  r'accuracy|f1|\bem\b|exact_match|bleu|rouge|meteor|cider|corrcoef|precision'
  r'|recall|auc'
)
_BETTER_IF_LOWER = re.compile(r'_edit$|error|perplexity|\b[wct]er\b')
_DATA = json.loads(pathlib.Path(__file__).with_suffix('.json').read_text())


def _column(name: str) -> Column:
  """Makes a column of layouts.json; a `?` at its end makes it optional."""
  key = name.rstrip('?')
  fields = {'header': key, **_DATA['columns'][key]}
  metrics = fields.pop('metrics', {'average': ''})
  tasks = fields.pop('tasks', '').split()
  tags = {}
  for number, names in metrics.items():
    unique = key if len(metrics) == 1 else f'{key} {number}'
    tags[unique] = _tags(tasks, names.split())
  over = [_column(part) for part in fields.pop('over', ())]
  return Column(
    key=key, tags=tags, over=over, optional=name.endswith('?'), **fields
  )


def _tags(tasks: Sequence[str], metrics: Sequence[str]) -> Sequence[str]:
  """Returns the tags of all metrics of a task, then those of the next.

  Without tasks, the metrics are tags: facts, or scores with their task.
  """
  if not tasks:
    return metrics
  return [f'{task}/{metric}' for task in tasks for metric in metrics]


def _layout(fields: Mapping[str, Any]) -> Layout:
  columns = [_column(name) for name in fields['columns']]
  return Layout(**{**fields, 'columns': columns})


LAYOUTS = {name: _layout(fields) for name, fields in _DATA['layouts'].items()}
# All score columns, in T5's order.
_KNOWN = [
  dataclasses.replace(_column(name), optional=True)
  for name in _DATA['overview']
]


def overview(tags: Iterable[str], each: bool = False) -> Layout:
  """Returns a layout for all the tags that runs have.

  The log perplexities of a mixture's tasks are one column, their mean. With
  `each`, they are separate columns.
  """
  known: set[str] = set()
  for column in _KNOWN:
    known.update(*column.tags.values())
  unknown = sorted(set(tags) - known)
  tags_of_perplexity = [
    tag for tag in unknown if tag.endswith(f'/{LOG_PERPLEXITY}')
  ]
  perplexities = list(_log_perplexities(tags_of_perplexity))
  hidden: list[Column] = []
  if not each:
    perplexities, hidden = _averaged_perplexities(perplexities)
  return Layout(
    'Results',
    [
      *_KNOWN,
      *_unknown_scores(unknown),
      *perplexities,
      _column('Steps/s'),
      _column('Params'),
    ],
    needs_scores=False,
    hidden=hidden,
  )


def _averaged_perplexities(
  columns: Sequence[Column],
) -> tuple[list[Column], list[Column]]:
  """Returns the columns of log perplexity to show, and those in their mean.

  What models are pretrained on does not count in the mean.
  """
  c4 = _column('Log ppl')
  pretraining = [c for c in columns if c4.is_among(c.all_tags)]
  of_mixture = [c for c in columns if c not in pretraining]
  if len(of_mixture) <= _MOST_PERPLEXITIES:
    return list(columns), []
  header = f'Log ppl, mean of {len(of_mixture)} tasks'
  note = (
    f'{header}: each task is the column "Log ppl <task>" of --layout={ALL}.'
  )
  mean = dataclasses.replace(
    c4, key=header, header=header, tags={header: ()}, over=of_mixture, note=note
  )
  return [*pretraining, mean], of_mixture


def _unknown_scores(tags: Collection[str]) -> Iterator[Column]:
  """Yields columns for scores of tasks that no layout has.

  Of what is measured per token, there is only the accuracy of sequences, and
  only if their task has no log perplexity.
  """
  for tag in tags:
    task, _, metric = tag.rpartition('/')
    if not task:  # a fact
      continue
    if metric == 'sequence_accuracy':
      if f'{task}/{LOG_PERPLEXITY}' not in tags:
        yield Column(tag, tag, {tag: [tag]}, scale=100.0)
    elif metric not in PER_TOKEN:
      yield Column(tag, tag, {tag: [tag]}, better=_better(metric))


def _better(metric: str) -> int:
  """Returns the `better` of a column by the name of its metric."""
  if _BETTER_IF_LOWER.search(metric):
    return -1
  return 1 if _BETTER_IF_HIGHER.search(metric) else 0


def _log_perplexities(tags: Collection[str]) -> Iterator[Column]:
  """Yields a column for each log perplexity."""
  c4 = _column('Log ppl')
  for tag in tags:
    task = tag.rpartition('/')[0]
    unique = f'Log ppl {task}'
    header = unique if len(tags) > 1 else 'Log ppl'
    # Published numbers belong to the key 'Log ppl'.
    key = header if c4.is_among([tag]) else unique
    yield dataclasses.replace(c4, key=key, header=header, tags={key: [tag]})
