"""Renders a table as a grid with notes, as CSV and as JSON."""

import dataclasses
import json
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from synth_mtf import paths
from synth_mtf.results import layouts, paper as paper_tables, printing, records
from synth_mtf.results.tables import Table

MISSING = '-'


def grid(
  table: Table, errors: bool = False, paper: bool = False
) -> printing.Grid:
  """Returns a table as strings, with notes.

  `errors` adds standard errors to the scores; `paper` adds the paper's numbers
  and the differences below each model.
  """
  headers = ['Model', *(column.header for column in table.columns)]
  texts = pd.DataFrame(
    {
      name: _texts(table.numbers.xs(name, level='name'), column, errors)
      for name, column in table.named.items()
    }
  )
  rows = []
  for model in table.models:
    rows.append(_row(table, model, texts.loc[model].to_dict()))
    if paper:
      rows += _paper_rows(table, model)
  counts = [_count(table, column) for column in table.columns]
  if any(counts):
    rows.append(['n', *counts])
  return printing.Grid(
    _caption(table), headers, rows, notes(table, errors, paper)
  )


def csv(table: Table, errors: bool = False) -> str:
  """Returns CSV: one line per model, one field per number, without rounding.

  Missing and undefined numbers are empty fields. A name that starts with one of
  `=+-@` gets a `'` in front. `errors` adds fields for n and standard errors.
  """
  suffixes = {'mean': '', 'deviation': ' sd'}
  if errors:
    suffixes.update(n=' n', standard_error=' se')
  fields = {'runs': pd.Series(table.models).map(len)}
  for name in table.named:
    numbers = table.numbers.xs(name, level='name')
    for statistic, suffix in suffixes.items():
      fields[name + suffix] = numbers[statistic]
  rows = pd.DataFrame(fields)
  rows = rows.rename(index=_not_a_formula, columns=_not_a_formula)
  return rows.to_csv(index_label='model').rstrip('\n')


def _not_a_formula(name: str) -> str:
  """Quotes a name that a spreadsheet would take for a formula and run."""
  return f"'{name}" if name.startswith(tuple('=+-@\t\r')) else name


def as_json(table: Table, errors: bool = False, paper: bool = False) -> str:
  """Returns JSON: every number of every run, with its origin.

  The notes are the same as in a `grid` with these arguments.
  """
  content = {
    'title': table.layout.title,
    'checkpoint': table.checkpoint,
    'models': _models_of_json(table, paper),
    'notes': notes(table, errors, paper),
  }
  return json.dumps(content, indent=1, ensure_ascii=False)


def _models_of_json(table: Table, paper: bool) -> list[dict[str, Any]]:
  cells = {
    (cell['run'], cell['name']): _json_cell(cell)
    for cell in table.cells.to_dict('records')
  }
  models = []
  for model, runs in table.models.items():
    published = _published(table, model).numbers if paper else {}
    numbers = {}
    for name, number in table.numbers.loc[model].iterrows():
      numbers[name] = {
        'mean': _known(number['mean']),
        'standard_deviation': _known(number['deviation']),
        'runs': [cells.get((run.name, name)) for run in runs],
      }
      if paper:
        numbers[name]['paper'] = published.get(name)
    seeds = [{'name': run.name, 'seed': run.seed} for run in runs]
    models.append({'label': model, 'runs': seeds, 'numbers': numbers})
  return models


def _json_cell(cell: Mapping[Hashable, Any]) -> dict[str, Any]:
  """Returns the fields of a score, or the value of a fact or an average."""
  if isinstance(cell['task'], str):
    names = [field.name for field in dataclasses.fields(records.Result)]
  else:
    names = ['value']
  return {name: _known(cell[name]) for name in names}


def _known(value: Any) -> Any:
  """Converts a value to a JSON type; None if it is unknown."""
  return None if pd.isna(value) else np.asarray(value).item()


def _texts(
  numbers: pd.DataFrame, column: layouts.Column, errors: bool
) -> dict[str, str]:
  """Formats each model's number; marks the best, compared after rounding."""
  means = numbers['mean'].dropna()
  shown = means.map(column.text)
  best = None
  if column.better and shown.nunique() > 1:
    best = column.text((column.better * means).max() * column.better)
  texts = dict.fromkeys(numbers.index, MISSING)
  for model, mean in shown.items():
    deviation = numbers['deviation'][model]
    error = numbers['standard_error'][model]
    text = mean
    if deviation > 0:
      text += f'±{column.text(deviation)}'
    if errors and error >= 0:
      text += f' ({column.text(error)})'
    texts[model] = f'**{text}**' if mean == best else text
  return texts


def _row(table: Table, label: str, texts: Mapping[str, str]) -> list[str]:
  """Returns a row of a grid, given the texts of its numbers by name."""
  row = [label]
  for column in table.columns:
    row.append('/'.join(texts.get(name, MISSING) for name in column.tags))
  return row


def _count(table: Table, column: layouts.Column) -> str:
  """Formats how many examples, questions or tokens a column's tasks have."""
  if column.key not in table.scores_by_column:
    return ''
  scores = table.scores_by_column[column.key].dropna(subset='n')
  if scores.empty:
    return ''
  count = _range(scores.n, '{}')
  unit = scores.unit.iloc[0]
  return count if unit == 'example' else f'{count} {unit}s'


def _range(values: pd.Series, shown: str) -> str:
  """Formats the least and the greatest value, or the only one."""
  least = shown.format(values.min())
  greatest = shown.format(values.max())
  return least if least == greatest else f'{least}-{greatest}'


def _published(table: Table, model: str) -> paper_tables.Published:
  """Returns the published numbers of a model, or why there are none."""
  facts = table.models[model][0].facts
  if facts.kind is None:
    return paper_tables.Published({}, facts.fault)
  cells = table.cells[table.cells.model == model]
  tasks = cells.task.str.removeprefix(layouts.PREFIX)
  is_other = tasks.isin(paper_tables.OTHER_DATA)
  others = set(cells.name[is_other])
  names = [name for name in table.named if name not in others]
  return paper_tables.published(table.layout.source, facts.kind, names)


def _paper_rows(table: Table, model: str) -> list[list[str]]:
  """Returns the published row and the differences, or a row that says no."""
  source = table.layout.source
  published = _published(table, model).numbers
  if not published:
    return [[f'  no row of {source}', *('' for _ in table.columns)]]
  theirs = {}
  differences = {}
  for name, number in published.items():
    column = table.named[name]
    theirs[name] = column.text(number)
    difference = table.numbers['mean'][model, name] - number
    if not pd.isna(difference):
      sign = '+' if difference >= 0 else '-'
      differences[name] = sign + column.text(abs(difference))
  return [
    _row(table, f'  {source}', theirs),
    _row(table, '  difference', differences),
  ]


def _caption(table: Table) -> str:
  scores = table.scores
  if scores.empty:
    return f'{table.layout.title}. Nothing has been evaluated.'
  steps = _range(scores.step, '{:,}')
  data = f'Data: {paths.GENERATED}. ' if table.is_generated else ''
  splits = ', '.join(sorted(set(scores.split)))
  return (
    f'{table.layout.title}. {data}Split: {splits}; '
    f'checkpoint: {table.checkpoint} (step {steps}).'
  )


def notes(table: Table, errors: bool = False, paper: bool = False) -> list[str]:
  """Returns the notes below a table, one paragraph each."""
  paragraphs = [
    *_notes_on_columns(table),
    *_notes_on_models(table),
    *_notes_on_tasks(table),
  ]
  if errors:
    paragraphs.append(
      'In brackets: the standard error of a score over the examples; for '
      'several runs, their root mean square.'
    )
  if paper:
    paragraphs += _notes_on_paper(table)
  return paragraphs


def _notes_on_columns(table: Table) -> Iterator[str]:
  several = [
    '/'.join(column.tags).replace(f'/{column.key} ', '/')
    for column in table.columns
    if len(column.tags) > 1
  ]
  if several:
    yield f'Columns with several metrics: {", ".join(several)}.'
  # GLUE and SuperGLUE share one.
  for note in dict.fromkeys(column.note for column in table.columns):
    if note:
      yield note


def _notes_on_models(table: Table) -> Iterator[str]:
  numbers_of_runs = [len(runs) for runs in table.models.values()]
  if len(table.models) > 1 and min(numbers_of_runs) == 1:
    yield (
      'One run says nothing about its model, as another seed may give other '
      'scores: to compare models, train each with several seeds.'
    )
  undefined = table.cells[table.cells.value.isna()]
  for model, runs in table.models.items():
    if len(runs) > 1:
      names = ', '.join(run.name for run in runs)
      yield f'{model}: mean±standard deviation over {len(runs)} runs ({names}).'
    cells = undefined[undefined.model == model]
    columns = [
      _with_reasons(column.key, cells.reason[cells.column == column.key])
      for column in table.columns
      if (cells.column == column.key).any()
    ]
    if columns:
      yield f'{model}: not defined in at least one run: {", ".join(columns)}.'


def _with_reasons(name: str, reasons: pd.Series) -> str:
  """Returns a column's name, and why its numbers are undefined, if known."""
  known = [reason for reason in reasons.dropna().unique() if reason]
  return f'{name} ({"; ".join(known)})' if known else name


def _notes_on_tasks(table: Table) -> Iterator[str]:
  for column in table.columns:
    if column.key not in table.scores_by_column:
      continue
    scores = table.scores_by_column[column.key]
    scores = scores[scores.name == next(iter(column.tags))]
    tasks = scores.task.str.removeprefix(layouts.PREFIX)
    places = sorted(set(tasks + ' (' + scores.split + ')'))
    if len(places) > 1:
      yield (
        f'{column.key} has scores of different tasks or splits: '
        f'{", ".join(places)}.'
      )
  if (table.scores.split == 'train').any():
    yield (
      'Warning: some scores are of the training split, which the host '
      "evaluates unless utils.run.dataset_split = 'validation' is set."
    )


def _notes_on_paper(table: Table) -> Iterator[str]:
  source = table.layout.source
  yield (
    f'{source.capitalize()} is arXiv {paper_tables.ARXIV[source]}; its data '
    'and training steps may differ from these.'
  )
  for model in table.models:
    reason = _published(table, model).reason
    if reason:
      yield f'{model}: no row of {source}: {reason}.'
