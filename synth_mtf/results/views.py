"""Renders a table as a grid with notes, as CSV and as JSON."""

import dataclasses
import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from synth_mtf import paths
from synth_mtf.results import paper as published
from synth_mtf.results.layouts import PREFIX, Column
from synth_mtf.results.printing import Grid
from synth_mtf.results.records import Result
from synth_mtf.results.tables import BEST, LAST, Table

MISSING = '-'


def grid(table: Table, errors: bool = False, paper: bool = False) -> Grid:
  """Returns a table as strings, with notes.

  `errors` adds standard errors to the scores; `paper` adds the paper's numbers
  and the differences below each model.
  """
  texts = [_texts(table, column, errors) for column in table.columns]
  rows = []
  for model in table.models:
    rows.append([model, *(of_models[model] for of_models in texts)])
    if paper:
      rows += _paper_rows(table, model)
  counts = [_counts(table, column) for column in table.columns]
  if any(counts):
    rows.append(['n', *counts])
  headers = ['Model', *(column.header for column in table.columns)]
  return Grid(_caption(table), headers, rows, notes(table, errors, paper))


def csv(table: Table, errors: bool = False) -> str:
  """Returns CSV: one line per model, one field per number, without rounding.

  Missing and undefined numbers are empty fields. A name that starts with one of
  `=+-@` gets a `'` in front. `errors` adds fields for n and
  standard errors.
  """
  kinds = {'mean': ''}
  if any(len(runs) > 1 for runs in table.models.values()):
    kinds['deviation'] = ' sd'
  if errors:
    kinds.update(n=' n', standard_error=' se')
  fields = {'runs': pd.Series(table.models).map(len)}
  for name in table.numbers.index.unique('name'):
    numbers = table.numbers.xs(name, level='name')
    fields.update({name + kinds[kind]: numbers[kind] for kind in kinds})
  found = pd.DataFrame(fields).rename(_not_a_formula, axis=0)
  found = found.rename(_not_a_formula, axis=1)
  return found.to_csv(index_label='model').rstrip('\n')


def _not_a_formula(name: str) -> str:
  """Quotes a name that a spreadsheet would take for a formula and run."""
  return f"'{name}" if name.startswith(tuple('=+-@\t\r')) else name


def as_json(table: Table, errors: bool = False, paper: bool = False) -> str:
  """Returns JSON: every number of every run, with its origin.

  The notes are the same as in a `grid` with these arguments.
  """
  score = [field.name for field in dataclasses.fields(Result)]
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
    'checkpoint': _checkpoint(table),
    'models': models,
    'notes': notes(table, errors, paper),
  }
  return json.dumps(content, indent=1, ensure_ascii=False)


def _known(value: Any) -> Any:
  """Converts a value to a JSON type; None if it is unknown."""
  return None if pd.isna(value) else np.asarray(value).item()


def _texts(table: Table, column: Column, errors: bool) -> pd.Series:
  """Formats each model's numbers; marks the best, compared after rounding."""
  texts = []
  for name, measure in column.named.items():
    numbers = table.numbers.xs(name, level='name')
    forms = {'mean': '{}', 'deviation': '±{}' * measure.varies}
    parts = pd.DataFrame(index=numbers.index, dtype=object)
    for kind, form in {**forms, 'standard_error': ' ({})' * errors}.items():
      parts[kind] = [
        '' if pd.isna(number) else form.format(measure.shown(number))
        for number in numbers[kind]
      ]
    text = parts.agg(''.join, axis=1).replace('', MISSING)
    means, shown = numbers['mean'], parts['mean']
    best = measure.shown(means.max() if measure.better > 0 else means.min())
    differ = measure.better and shown[means.notna()].nunique() > 1
    is_best = (shown == best) & bool(differ)
    texts.append(text.mask(is_best, '**' + text + '**'))
  return pd.concat(texts, axis=1).agg('/'.join, axis=1)


def _counts(table: Table, column: Column) -> str:
  """Formats how many examples, questions or tokens a column's tasks have."""
  found = table.scores[table.scores.column == column.key].dropna(subset='n')
  texts = {}  # all metrics of a task use the same examples
  for _, of_number in found.groupby('name', sort=False):
    ends = dict.fromkeys([of_number.n.min(), of_number.n.max()])
    first = of_number.iloc[0]
    plural = '' if of_number.n.max() == 1 else 's'
    unit = '' if first.unit == 'example' else f' {first.unit}{plural}'
    texts[first.task] = '-'.join(map(str, ends)) + unit
  return '/'.join(texts.values())


def _figures(table: Table, model: str) -> tuple[dict[str, float], str]:
  """Returns the published numbers of a model, or why there are none."""
  cells = table.cells[table.cells.model == model]
  tasks = dict(zip(cells.name, cells.task.str.removeprefix(PREFIX)))
  names = table.numbers.index.unique('name')
  names = [n for n in names if tasks.get(n) not in published.OTHER_DATA]
  run = table.models[model][0]
  if run.kind is None:
    return {}, run.fault
  return published.figures(table.layout.source, run.kind, names)


def _paper_rows(table: Table, model: str) -> list[list[str]]:
  """Returns the published row and the differences, or a row that says no."""
  source, (figures, _) = table.layout.source, _figures(table, model)
  if not figures:
    return [[f'  no row of {source}', *('' for _ in table.columns)]]
  theirs, rows = pd.Series(figures), []
  difference = table.numbers['mean'][model] - theirs
  for label, numbers in ((source, theirs), ('difference', difference)):
    row = [f'  {label}']
    for column in table.columns:
      texts = []
      for name, measure in column.named.items():
        value = numbers.get(name, math.nan)
        sign = ('+' if value >= 0 else '-') * (numbers is difference)
        text = sign + measure.shown(abs(value))
        texts.append(MISSING if pd.isna(value) else text)
      row.append('/'.join(texts))
    rows.append(row)
  return rows


def _checkpoint(table: Table) -> str:
  return {
    LAST: 'at the last checkpoint evaluated',
    BEST: 'at the best checkpoint of each task',
  }.get(table.checkpoint, f'at step {table.checkpoint}')


def _caption(table: Table) -> str:
  scores = table.scores
  if scores.empty:
    return f'{table.layout.title}. Nothing has been evaluated.'
  ends = dict.fromkeys([scores.step.min(), scores.step.max()])
  data = f'Data: {paths.GENERATED}. ' if table.is_generated else ''
  splits = ', '.join(sorted(set(scores.split)))
  return (
    f'{table.layout.title}. {data}Split: {splits}; '
    f'{_checkpoint(table)} (step {"-".join(f"{step:,}" for step in ends)}).'
  )


def notes(table: Table, errors: bool = False, paper: bool = False) -> list[str]:
  """Returns the notes below a table, one paragraph each."""
  several = [
    f'{column.key} {"/".join(measure.name for measure in column.measures)}'
    for column in table.columns
    if len(column.measures) > 1
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
  for model, runs in table.models.items():
    if len(runs) > 1:
      seeds = [run.seed for run in runs]
      is_known = len({*seeds} - {None}) == len(runs)
      names = [str(run.seed) if is_known else run.name for run in runs]
      which = f'{"seeds " * is_known}{", ".join(names)}'
      yield f'{model}: mean±standard deviation over {len(runs)} runs ({which}).'
    for run in runs:
      last = max((result.step for result in run.results), default=math.inf)
      if run.steps and run.steps[-1] > last:
        step = f'{run.steps[-1]:,}'
        yield f'{run.name} is at step {step}, which has not been evaluated.'
    cells = table.cells[table.cells.model == model]
    found = [(c, cells.value[cells.column == c.key]) for c in table.columns]
    faults = {
      'not defined': [c.key for c, values in found if values.isna().any()],
      'missing': [
        c.key
        for c, values in found
        if 0 < len(values) < len(runs) * len(c.measures)
      ],
    }
    for what, keys in faults.items():
      if keys:
        yield f'{model}: {what} in at least one run: {", ".join(keys)}.'


def _notes_on_tasks(table: Table) -> Iterator[str]:
  for column in table.columns:
    found = table.scores[table.scores.name == next(iter(column.named))]
    tasks = found.task.str.removeprefix(PREFIX)
    places = sorted(set(tasks + ' (' + found.split + ')'))
    if len(places) > 1:
      yield (
        f'{column.key} has scores of different tasks or splits: '
        f'{", ".join(places)}.'
      )
