"""Renders a table as a grid with notes, as CSV and as JSON."""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from synth_mtf import paths
from synth_mtf.results import layouts, paper as published, printing, records
from synth_mtf.results.tables import Table

MISSING = '-'


def grid(
  table: Table, errors: bool = False, paper: bool = False
) -> printing.Grid:
  """Returns a table as strings, with notes.

  `errors` adds standard errors to the scores; `paper` adds the paper's numbers
  and the differences below each model.
  """
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
    _caption(table),
    ['Model', *(column.header for column in table.columns)],
    rows,
    notes(table, errors, paper),
  )


def csv(table: Table, errors: bool = False) -> str:
  """Returns CSV: one line per model, one field per number, without rounding.

  Missing and undefined numbers are empty fields. A name that starts with one of
  `=+-@` gets a `'` in front. `errors` adds fields for n and standard errors.
  """
  kinds = {'mean': '', 'deviation': ' sd'}
  if errors:
    kinds.update(n=' n', standard_error=' se')
  fields = {
    name + suffix: table.numbers[kind].xs(name, level='name')
    for name in table.named
    for kind, suffix in kinds.items()
  }
  runs = pd.Series(table.models).map(len)
  found = pd.DataFrame({'runs': runs, **fields}).rename(
    index=_not_a_formula, columns=_not_a_formula
  )
  return found.to_csv(index_label='model').rstrip('\n')


def _not_a_formula(name: str) -> str:
  """Quotes a name that a spreadsheet would take for a formula and run."""
  return f"'{name}" if name.startswith(tuple('=+-@\t\r')) else name


def as_json(table: Table, errors: bool = False, paper: bool = False) -> str:
  """Returns JSON: every number of every run, with its origin.

  The notes are the same as in a `grid` with these arguments.
  """
  score = [field.name for field in dataclasses.fields(records.Result)]
  cells = {
    (cell['run'], cell['name']): {
      key: _known(cell[key])
      for key in (score if isinstance(cell['task'], str) else ['value'])
    }
    for cell in table.cells.to_dict('records')
  }
  models = []
  for model, runs in table.models.items():
    figures = _figures(table, model)[0] if paper else {}
    numbers = {
      name: {
        'mean': _known(number['mean']),
        'standard_deviation': _known(number['deviation']),
        'runs': [cells.get((run.name, name)) for run in runs],
        **({'paper': figures.get(name)} if paper else {}),
      }
      for name, number in table.numbers.loc[model].iterrows()
    }
    seeds = [{'name': run.name, 'seed': run.seed} for run in runs]
    models.append({'label': model, 'runs': seeds, 'numbers': numbers})
  content = {
    'title': table.layout.title,
    'checkpoint': table.checkpoint,
    'models': models,
    'notes': notes(table, errors, paper),
  }
  return json.dumps(content, indent=1, ensure_ascii=False)


def _known(value: Any) -> Any:
  """Converts a value to a JSON type; None if it is unknown."""
  return None if pd.isna(value) else np.asarray(value).item()


def _texts(
  numbers: pd.DataFrame, column: layouts.Column, errors: bool
) -> dict[str, str]:
  """Formats each model's number; marks the best, compared after rounding."""
  means = numbers['mean'].dropna()
  shown = means.map(column.text)
  best = column.text((column.better * means).max() * column.better)
  differ = column.better and shown.nunique() > 1
  texts = dict.fromkeys(numbers.index, MISSING)
  for model, text in shown.items():
    mark = '**' * (differ and text == best)
    deviation = numbers['deviation'][model]
    error = numbers['standard_error'][model]
    if deviation > 0:
      text += f'±{column.text(deviation)}'
    if errors and error >= 0:
      text += f' ({column.text(error)})'
    texts[model] = f'{mark}{text}{mark}'
  return texts


def _row(table: Table, label: str, texts: Mapping[str, str]) -> list[str]:
  """Returns a row of a grid, given the texts of its numbers by name."""
  cells = (
    '/'.join(texts.get(name, MISSING) for name in column.tags)
    for column in table.columns
  )
  return [label, *cells]


def _count(table: Table, column: layouts.Column) -> str:
  """Formats how many examples, questions or tokens a column's tasks have."""
  found = table.scores[table.scores.column == column.key].dropna(subset='n')
  if found.empty:
    return ''
  ends = dict.fromkeys([found.n.min(), found.n.max()])
  unit = found.unit.iloc[0]
  return '-'.join(map(str, ends)) + ('' if unit == 'example' else f' {unit}s')


def _figures(table: Table, model: str) -> tuple[dict[str, float], str]:
  """Returns the published numbers of a model, or why there are none."""
  cells = table.cells[table.cells.model == model]
  tasks = dict(
    zip(cells.name, cells.task.str.removeprefix(layouts.PREFIX), strict=True)
  )
  names = [n for n in table.named if tasks.get(n) not in published.OTHER_DATA]
  facts = table.models[model][0].facts
  if facts.kind is None:
    return {}, facts.fault
  return published.figures(table.layout.source, facts.kind, names)


def _paper_rows(table: Table, model: str) -> list[list[str]]:
  """Returns the published row and the differences, or a row that says no."""
  source, (figures, _) = table.layout.source, _figures(table, model)
  if not figures:
    return [[f'  no row of {source}', *('' for _ in table.columns)]]
  theirs, differences = {}, {}
  for name, figure in figures.items():
    show = table.named[name].text
    theirs[name] = show(figure)
    difference = table.numbers['mean'][model, name] - figure
    if not pd.isna(difference):
      sign = '+' if difference >= 0 else '-'
      differences[name] = sign + show(abs(difference))
  return [
    _row(table, f'  {source}', theirs),
    _row(table, '  difference', differences),
  ]


def _caption(table: Table) -> str:
  scores = table.scores
  if scores.empty:
    return f'{table.layout.title}. Nothing has been evaluated.'
  ends = dict.fromkeys([scores.step.min(), scores.step.max()])
  steps = '-'.join(f'{step:,}' for step in ends)
  data = f'Data: {paths.GENERATED}. ' if table.is_generated else ''
  splits = ', '.join(sorted(set(scores.split)))
  return (
    f'{table.layout.title}. {data}Split: {splits}; '
    f'checkpoint: {table.checkpoint} (step {steps}).'
  )


def notes(table: Table, errors: bool = False, paper: bool = False) -> list[str]:
  """Returns the notes below a table, one paragraph each."""
  several = [
    '/'.join(column.tags).replace(f'/{column.key} ', '/')
    for column in table.columns
    if len(column.tags) > 1
  ]
  source = table.layout.source
  # Each note, and whether it applies.
  found = {
    f'Columns with several metrics: {", ".join(several)}.': several,
    **{column.note: column.note for column in table.columns},
    'One run says nothing about its model, as another seed may give other '
    'scores: to compare models, train each with several seeds.': (
      len(table.models) > 1 and min(map(len, table.models.values())) == 1
    ),
    **dict.fromkeys(_notes_on_models(table), True),
    **dict.fromkeys(_notes_on_tasks(table), True),
    'Warning: some scores are of the training split, which the host evaluates '
    "unless utils.run.dataset_split = 'validation' is set.": (
      table.scores.split == 'train'
    ).any(),
    'In brackets: the standard error of a score over the examples; for several '
    'runs, their root mean square.': errors,
    f'{source.capitalize()} is arXiv {published.ARXIV[source]}; its data and '
    'training steps may differ from these.': paper,
    **{
      f'{model}: no row of {source}: {why}.': why
      for model in (table.models if paper else ())
      for _, why in [_figures(table, model)]
    },
  }
  return [note for note, applies in found.items() if applies]


def _notes_on_models(table: Table) -> Iterator[str]:
  undefined = table.cells[table.cells.value.isna()]
  for model, runs in table.models.items():
    if len(runs) > 1:
      names = ', '.join(run.name for run in runs)
      yield f'{model}: mean±standard deviation over {len(runs)} runs ({names}).'
    keys = undefined.column[undefined.model == model]
    if len(keys):
      names = ', '.join(c.key for c in table.columns if c.key in set(keys))
      yield f'{model}: not defined in at least one run: {names}.'


def _notes_on_tasks(table: Table) -> Iterator[str]:
  for column in table.columns:
    found = table.scores[table.scores.name == next(iter(column.tags))]
    tasks = found.task.str.removeprefix(layouts.PREFIX)
    places = sorted(set(tasks + ' (' + found.split + ')'))
    if len(places) > 1:
      yield (
        f'{column.key} has scores of different tasks or splits: '
        f'{", ".join(places)}.'
      )
