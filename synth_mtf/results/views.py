"""Shows a table to people, as texts with notes, and to programs."""

import json
import math
from collections.abc import Iterator
from typing import Any, Optional

import pandas as pd

from synth_mtf.results.layouts import PREFIX, Column, Measure
from synth_mtf.results.paper import SCORES
from synth_mtf.results.printing import Grid, Piece, Row
from synth_mtf.results.tables import BEST, LAST, Table

MISSING = '-'
_SIGNIFICANT = 3  # standard errors of a difference


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
      rows.extend(_paper_rows(table, model))
  counts = [_counts(table, column, errors) for column in table.columns]
  if any(counts):
    rows.append(Row('n', [[Piece(count)] for count in counts]))
  return Grid(
    caption=_caption(table),
    headers=[column.header for column in table.columns],
    rows=rows,
    notes=notes(table, errors, paper),
  )


def csv(table: Table, errors: bool = False) -> str:
  """Returns CSV: a line for each model, a field for each number in full.

  Args:
    table: the numbers; what is missing or not defined is an empty field.
    errors: whether n and standard errors have fields, too.
  """
  rows = []
  for model, runs in table.models.items():
    fields: dict[str, Any] = {'model': model, 'runs': len(runs)}
    for name, number in table.numbers.loc[model].iterrows():
      fields[name] = number['mean']
      if len(runs) > 1:
        fields[f'{name} sd'] = number['deviation']
      if errors:
        fields[f'{name} n'] = number['n']
        fields[f'{name} se'] = number['standard_error']
    rows.append(fields)
  return pd.DataFrame(rows, dtype=object).to_csv(index=False).rstrip('\n')


def as_json(table: Table, errors: bool = False, paper: bool = False) -> str:
  """Returns JSON: every number of every run, with where it comes from.

  Args:
    table: the numbers.
    errors: whether the notes are those of a table with standard errors.
    paper: whether the paper's figures are among the numbers.
  """
  content = {
    'title': table.title,
    'checkpoint': _checkpoint(table),
    'models': [_described(table, model, paper) for model in table.models],
    'notes': notes(table, errors, paper),
  }
  return json.dumps(content, indent=1, ensure_ascii=False)


def _described(table: Table, model: str, paper: bool) -> dict[str, Any]:
  runs = table.models[model]
  cells = {
    (row['run'], row['name']): row for row in table.cells.to_dict('records')
  }
  numbers = {}
  for column in table.columns:
    figures = SCORES.get((column.key, runs[0].label)) or [None] * len(
      column.measures
    )
    for name, figure in zip(column.names, figures):
      number = table.numbers.loc[model, name]
      numbers[name] = {
        'mean': _known(number['mean']),
        'standard_deviation': _known(number['deviation']),
        'runs': [_source(cells.get((run.name, name))) for run in runs],
        **({'paper': figure} if paper else {}),
      }
  return {
    'label': model,
    'runs': [{'name': run.name, 'seed': run.seed} for run in runs],
    'numbers': numbers,
  }


def _source(cell: Optional[dict[str, Any]]) -> Optional[dict[str, Any]]:
  if cell is None:
    return None
  keys = ['value']
  if isinstance(cell['task'], str):
    keys += 'n', 'unit', 'standard_error', 'task', 'split', 'metric', 'step'
  return {key: _known(cell[key]) for key in keys}


def _known(value: Any) -> Any:
  """A value as JSON has it; None where it is not known."""
  if pd.isna(value):
    return None
  return value.item() if hasattr(value, 'item') else value


def _row(table: Table, model: str, errors: bool) -> Row:
  return Row(
    model,
    [
      [
        Piece(
          _text(measure, table.numbers.loc[model, name], errors),
          _is_best(table, model, name, measure),
        )
        for name, measure in zip(column.names, column.measures)
      ]
      for column in table.columns
    ],
  )


def _text(measure: Measure, number: Any, errors: bool) -> str:
  if pd.isna(number['mean']):
    return MISSING
  text = measure.shown(number['mean'])
  if measure.varies and not pd.isna(number['deviation']):
    text += f'±{measure.shown(number["deviation"])}'
  if errors and not pd.isna(number['standard_error']):
    text += f' ({measure.shown(number["standard_error"])})'
  return text


def _is_best(table: Table, model: str, name: str, measure: Measure) -> bool:
  """Whether no other model's number is better in the digits that are shown."""
  means = table.numbers['mean'].xs(name, level='name').dropna()
  if measure.higher_is_better is None or model not in means:
    return False
  best = measure.shown(means.max() if measure.higher_is_better else means.min())
  shown = means.map(measure.shown)
  return shown.nunique() > 1 and bool(shown[model] == best)


def _counts(table: Table, column: Column, errors: bool) -> str:
  """The numbers of examples of a column, and of tokens if errors are shown."""
  found = table.scores[table.scores.column == column.key].dropna(subset='n')
  if not errors:
    found = found[found.unit == 'example']
  texts = {}  # the metrics of one task are of the same examples
  for _, of_number in found.groupby('name', sort=False):
    ends = dict.fromkeys([of_number.n.min(), of_number.n.max()])
    first = of_number.iloc[0]
    unit = ' tokens' if first.unit == 'token' else ''
    texts[first.task] = '-'.join(map(str, ends)) + unit
  return '/'.join(texts.values())


def _paper_rows(table: Table, model: str) -> Iterator[Row]:
  """Yields the paper's row and the difference, if the paper has the model."""
  theirs, differences = [], []
  for column in table.columns:
    figures = SCORES.get((column.key, table.models[model][0].label), ())
    both = list(zip(column.measures, column.names, figures))
    theirs.append([Piece(m.shown(figure)) for m, _, figure in both])
    differences.append(
      [
        Piece(_difference(m, table.numbers['mean'][model, name] - figure))
        for m, name, figure in both
      ]
    )
  if any(theirs):
    yield Row('  the paper', theirs)
    yield Row('  difference', differences)


def _difference(measure: Measure, value: float) -> str:
  if pd.isna(value):
    return MISSING
  return ('+' if value >= 0 else '-') + measure.shown(abs(value))


def _checkpoint(table: Table) -> str:
  return {
    LAST: 'at the last checkpoint evaluated',
    BEST: 'at the best checkpoint of each task',
  }.get(str(table.checkpoint), f'at step {table.checkpoint}')


def _caption(table: Table) -> str:
  scores = table.scores
  if scores.empty:
    return f'{table.title}. Nothing has been evaluated.'
  ends = dict.fromkeys([int(scores.step.min()), int(scores.step.max())])
  return (
    f'{table.title}. Split: {", ".join(sorted(set(scores.split)))}; '
    f'{_checkpoint(table)} (step {"-".join(f"{step:,}" for step in ends)}).'
  )


def notes(table: Table, errors: bool = False, paper: bool = False) -> list[str]:
  """Returns what a reader of a table must know, a paragraph each."""
  found = []
  pairs = [
    f'{column.key} {"/".join(measure.name for measure in column.measures)}'
    for column in table.columns
    if len(column.measures) > 1
  ]
  if pairs:
    found.append(f'Columns with several metrics: {", ".join(pairs)}.')
  if any(column.over for column in table.columns):
    found.append(
      "Averages are T5's: over the metrics of each task, then over tasks. A "
      'correlation is not defined if all answers are alike: it is shown as '
      f'"{MISSING}" and counts as 0.'
    )
  column_notes = [column.note for column in table.columns if column.note]
  if column_notes:
    found.append(' '.join(dict.fromkeys(column_notes)))
  differences = [
    f'{column.header} ({text})'
    for column in table.columns
    for text in [_difference_of_best_and_worst(table, column)]
    if text
  ]
  if differences:
    found.append(
      'Significant differences between best and worst (more than three '
      f'standard errors of the difference): {"; ".join(differences)}.'
    )
  for model in table.models:
    found += _notes_on_model(table, model)
  found += _notes_on_tasks(table)
  for run in (run for runs in table.models.values() for run in runs):
    evaluated = [result.step for result in run.results]
    if evaluated and run.steps and run.steps[-1] > max(evaluated):
      found.append(
        f'{run.name} is at step {run.steps[-1]:,}, which has not been '
        'evaluated.'
      )
  if (table.scores.split == 'train').any():
    found.append(
      'Warning: some scores are of the training split, which the host '
      "evaluates unless utils.run.dataset_split = 'validation' is set."
    )
  if errors:
    found.append(
      'In brackets: the standard error of a score over the examples; for '
      'several runs, their root mean square.'
    )
  if paper:
    found.append(
      'The paper is arXiv 2005.00743; its models may differ from these in '
      'size, data and training steps.'
    )
  return found


def _difference_of_best_and_worst(table: Table, column: Column) -> str:
  """Best and worst model by the first measure in which they differ, or ''.

  With the standard errors s1 and s2 of two scores, that of their difference is
  sqrt(s1^2 + s2^2). Scores without a standard error are left out.
  """
  for name, measure in zip(column.names, column.measures):
    numbers = table.numbers.xs(name, level='name')
    known = numbers.dropna(subset=['mean', 'standard_error'])
    if len(known) < 2 or measure.higher_is_better is None:
      continue
    ordered = known.sort_values(
      'mean', ascending=not measure.higher_is_better, kind='stable'
    )
    best, worst = ordered.iloc[0], ordered.iloc[-1]
    error = math.hypot(best['standard_error'], worst['standard_error'])
    if abs(best['mean'] - worst['mean']) > _SIGNIFICANT * error:
      texts = [f'{x.name} {measure.shown(x["mean"])}' for x in (best, worst)]
      if pd.notna(best['n']) and best['n'] == worst['n']:
        texts.append(f'n = {best["n"]:,.0f}')
      return ', '.join(texts)
  return ''


def _notes_on_model(table: Table, model: str) -> Iterator[str]:
  """Yields what is said of a row: its seeds, and what its dashes stand for."""
  runs = table.models[model]
  if len(runs) > 1:
    seeds = [str(run.seed) for run in runs if run.seed is not None]
    which = (
      f'seeds {", ".join(seeds)}'
      if len(set(seeds)) == len(runs)
      else ', '.join(run.name for run in runs)
    )
    yield (f'{model}: mean±standard deviation over {len(runs)} runs ({which}).')
  cells = table.cells[table.cells.model == model]
  undefined, missing = [], []
  for column in table.columns:
    found = cells[cells.column == column.key]
    if found.value.isna().any():
      undefined.append(column.key)
    if 0 < len(found) < len(runs) * len(column.measures):
      missing.append(column.key)
  if undefined:
    yield f'{model}: not defined in at least one run: {", ".join(undefined)}.'
  if missing:
    yield f'{model}: missing in at least one run: {", ".join(missing)}.'


def _notes_on_tasks(table: Table) -> Iterator[str]:
  """Yields which columns have scores of different tasks or splits."""
  for column in table.columns:
    found = table.scores[table.scores.column == column.key]
    for _, of_number in found.groupby('name', sort=False):
      tasks = of_number.task.str.removeprefix(PREFIX)
      places = sorted(set(tasks + ' (' + of_number.split + ')'))
      if len(places) > 1:
        yield (
          f'{column.key} has scores of different tasks or splits: '
          f'{", ".join(places)}.'
        )
        break
