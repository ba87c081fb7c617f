"""The numbers of a table for programs: CSV and JSON."""

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

from synth_mtf.results.paper_scores import SCORES
from synth_mtf.results.tables.columns import Found
from synth_mtf.results.tables.table import Model, Numbers, Table


def comma_separated(table: Table, errors: bool = False) -> str:
  """Returns CSV: a line for each model, a field for each number in full.

  Args:
    table: the numbers; what is missing or not defined is an empty field.
    errors: whether n and standard errors have fields, too.
  """
  rows = [_fields(table, model, errors) for model in table.models]
  names = list(dict.fromkeys(name for row in rows for name in row))
  stream = io.StringIO()
  writer = csv.DictWriter(stream, names, lineterminator='\n')
  writer.writeheader()
  writer.writerows(rows)
  return stream.getvalue().rstrip('\n')


def as_json(table: Table, notes: Sequence[str], paper: bool = False) -> str:
  """Returns JSON: every number of every run, with where it comes from.

  Args:
    table: the numbers.
    notes: what is to be noted.
    paper: whether the paper's figures are among them.
  """
  content = {
    'title': table.title,
    'checkpoint': table.checkpoint,
    'models': [_described(table, model, paper) for model in table.models],
    'notes': list(notes),
  }
  return json.dumps(content, indent=1, ensure_ascii=False)


def _fields(
  table: Table, model: Model, errors: bool
) -> dict[str, Optional[object]]:
  fields: dict[str, Optional[object]] = {
    'model': model.label,
    'runs': len(model.runs),
  }
  for name, numbers in _named(table, model):
    fields[name] = numbers.mean
    if len(model.runs) > 1:
      fields[f'{name} sd'] = numbers.deviation
    if errors:
      fields[f'{name} n'] = numbers.n
      fields[f'{name} se'] = numbers.standard_error
  return fields


def _named(table: Table, model: Model) -> Iterator[tuple[str, Numbers]]:
  """Yields the numbers of a model with names that no two of them share."""
  for column in table.columns:
    for measure, numbers in zip(column.measures, model.cells[column.key]):
      several = len(column.measures) > 1
      yield f'{column.key} {measure.name}' if several else column.key, numbers


def _described(table: Table, model: Model, paper: bool) -> dict[str, Any]:
  figures = [
    figure
    for column in table.columns
    for figure in SCORES.get(
      (column.key, model.known_as), [None] * len(column.measures)
    )
  ]
  return {
    'label': model.label,
    'runs': [
      {'name': name, 'seed': seed}
      for name, seed in zip(model.runs, model.seeds)
    ],
    'numbers': {
      name: {
        'mean': numbers.mean,
        'standard_deviation': numbers.deviation,
        'runs': [_of_a_run(found) for found in numbers.found],
        **({'paper': figure} if paper else {}),
      }
      for (name, numbers), figure in zip(_named(table, model), figures)
    },
  }


def _of_a_run(found: Optional[Found]) -> Optional[Mapping[str, Any]]:
  if found is None:
    return None
  result = found.result
  if result is None:
    return {'value': found.value}
  return {
    'value': found.value,
    'n': result.n,
    'unit': result.unit,
    'standard_error': found.standard_error,
    'task': result.task,
    'split': result.split,
    'metric': result.metric,
    'step': result.step,
  }
