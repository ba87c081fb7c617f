"""What each cell of a table says, which is best, and what is to be noted."""

from collections.abc import Iterator

from synth_mtf.results.paper_scores import SCORES
from synth_mtf.results.printing import Grid, Piece, Row
from synth_mtf.results.tables.apart import apart
from synth_mtf.results.tables.columns import (
  PREFIX,
  AverageColumn,
  Column,
  Measure,
)
from synth_mtf.results.tables.table import Model, Numbers, Table

MISSING = '-'


def grid(table: Table, errors: bool = False, paper: bool = False) -> Grid:
  """Returns a table as texts.

  Args:
    table: the numbers.
    errors: whether scores have their standard errors beside them.
    paper: whether the paper's figures and the differences follow each model.
  """
  rows = []
  for model in table.models:
    rows.append(_row(table, model, errors))
    if paper:
      rows.extend(_beside_paper(table, model))
  counts = [_counts(table, column, errors) for column in table.columns]
  if any(counts):
    rows.append(Row('n', [[Piece(count)] for count in counts]))
  return Grid(
    caption=_caption(table),
    headers=[column.header for column in table.columns],
    rows=rows,
    notes=list(_notes(table, errors, paper)),
  )


def _row(table: Table, model: Model, errors: bool) -> Row:
  return Row(
    model.label,
    [
      [
        Piece(
          _text(measure, numbers, errors),
          _is_best(table, column.key, i, numbers),
        )
        for i, (measure, numbers) in enumerate(
          zip(column.measures, model.cells[column.key])
        )
      ]
      for column in table.columns
    ],
  )


def _text(measure: Measure, numbers: Numbers, errors: bool) -> str:
  if numbers.mean is None:
    return MISSING
  text = measure.shown(numbers.mean)
  if numbers.deviation is not None and measure.varies:
    text += f'±{measure.shown(numbers.deviation)}'
  if errors and numbers.standard_error is not None:
    text += f' ({measure.shown(numbers.standard_error)})'
  return text


def _is_best(table: Table, key: str, index: int, numbers: Numbers) -> bool:
  """Whether, as it is shown, no other model's number is better."""
  columns = {column.key: column for column in table.columns}
  measure = columns[key].measures[index]
  means = [model.cells[key][index].mean for model in table.models]
  known = [mean for mean in means if mean is not None]
  if measure.higher_is_better is None or numbers.mean is None:
    return False
  best = max(known) if measure.higher_is_better else min(known)
  shown = {measure.shown(mean) for mean in known}
  return len(shown) > 1 and measure.shown(numbers.mean) == measure.shown(best)


def _counts(table: Table, column: Column, errors: bool) -> str:
  """How many examples a column's scores are of, or tokens where errors are."""
  texts = []
  for index in range(len(column.measures)):
    found = [
      one.result
      for model in table.models
      for one in model.cells[column.key][index].found
      if one and one.result and (errors or one.result.unit == 'example')
    ]
    counts = sorted({one.n for one in found if one.n is not None})
    if counts:
      ends = dict.fromkeys([counts[0], counts[-1]])
      unit = ' tokens' if found[0].unit == 'token' else ''
      # The metrics of one task are of the same examples.
      texts.append((found[0].task, '-'.join(map(str, ends)) + unit))
  return '/'.join(dict(texts).values())


def _beside_paper(table: Table, model: Model) -> Iterator[Row]:
  """Yields the paper's row and the difference, if the paper has the model."""
  theirs, apart = [], []
  for column in table.columns:
    figures = SCORES.get((column.key, model.known_as), ())
    pairs = list(zip(column.measures, model.cells[column.key], figures))
    theirs.append(
      [Piece(measure.shown(figure)) for measure, _, figure in pairs]
    )
    apart.append([Piece(_difference(*pair)) for pair in pairs])
  if any(theirs):
    yield Row('  the paper', theirs)
    yield Row('  difference', apart)


def _difference(measure: Measure, numbers: Numbers, figure: float) -> str:
  if numbers.mean is None:
    return MISSING
  apart = numbers.mean - figure
  return ('+' if apart >= 0 else '-') + measure.shown(abs(apart))


def _caption(table: Table) -> str:
  results = [one.result for one in table.found if one.result]
  if not results:
    return f'{table.title}. Nothing has been evaluated.'
  splits = ', '.join(sorted({one.split for one in results}))
  steps = sorted({one.step for one in results})
  span = '-'.join(f'{step:,}' for step in dict.fromkeys([steps[0], steps[-1]]))
  return f'{table.title}. Split: {splits}; {table.checkpoint} (step {span}).'


def _notes(table: Table, errors: bool, paper: bool) -> Iterator[str]:
  pairs = [
    f'{column.key} {"/".join(measure.name for measure in column.measures)}'
    for column in table.columns
    if len(column.measures) > 1
  ]
  if pairs:
    yield f'Where a column has several metrics: {", ".join(pairs)}.'
  if any(isinstance(column, AverageColumn) for column in table.columns):
    yield (
      "Averages are T5's: over the metrics of a task, then over the tasks. A "
      'correlation that is not defined, since all answers are alike, is "-" '
      'and counts as 0 there.'
    )
  meanings = [column.meaning for column in table.columns if column.meaning]
  if meanings:
    yield ' '.join(dict.fromkeys(meanings))
  different = list(apart(table))
  if different:
    yield (
      'Best and worst are apart by more than three standard errors of their '
      f'difference in {"; ".join(different)}.'
    )
  yield from _several_runs(table)
  yield from _holes(table)
  yield from _several_tasks(table)
  for model in table.models:
    for run, step in model.ahead.items():
      yield f'{run} is at step {step:,}, which has not been evaluated.'
  if any(one.result and one.result.split == 'train' for one in table.found):
    yield (
      'Warning: some scores are of the training split, which the host '
      "evaluates unless utils.run.dataset_split = 'validation' is given."
    )
  if errors:
    yield (
      'In brackets: the standard error of a score over the examples; of '
      'several runs, their root mean square.'
    )
  if paper:
    yield (
      'The paper is arXiv 2005.00743; what it trained and what was trained '
      'here may differ in size, data and steps.'
    )


def _several_runs(table: Table) -> Iterator[str]:
  for model in table.models:
    if len(model.runs) > 1:
      seeds = [str(seed) for seed in model.seeds if seed is not None]
      which = (
        f'seeds {", ".join(seeds)}'
        if len(set(seeds)) == len(model.runs)
        else ', '.join(model.runs)
      )
      yield (
        f'{model.label}: mean±standard deviation over {len(model.runs)} runs '
        f'({which}).'
      )


def _holes(table: Table) -> Iterator[str]:
  """Says what a dash stands for, where only some of it is missing."""
  for model in table.models:
    undefined, missing = [], []
    for column in table.columns:
      found = [
        one for numbers in model.cells[column.key] for one in numbers.found
      ]
      if any(one and one.value is None for one in found):
        undefined.append(column.key)
      if any(one is None for one in found) and any(found):
        missing.append(column.key)
    if undefined:
      yield f'{model.label}: not defined, of some run: {", ".join(undefined)}.'
    if missing:
      yield f'{model.label}: missing, of some run: {", ".join(missing)}.'


def _several_tasks(table: Table) -> Iterator[str]:
  """Says where the rows of a column are not of the same task."""
  for column in table.columns:
    for index in range(len(column.measures)):
      tasks = {
        (one.result.task.removeprefix(PREFIX), one.result.split)
        for model in table.models
        for one in model.cells[column.key][index].found
        if one and one.result
      }
      if len(tasks) > 1:
        named = ', '.join(f'{task} ({split})' for task, split in sorted(tasks))
        yield f'{column.key} is of several tasks or splits: {named}.'
        break
