"""The checkpoint of a run at which a number of its table is best."""

from synth_mtf.errors import UserError
from synth_mtf.results import layouts, tables
from synth_mtf.results.runs import Run


def best_step(run: Run, name: str) -> int:
  """Returns the step with the best score; the first one, if several are equal.

  Args:
    run: a run that was evaluated.
    name: the header of a column of `synth-mtf table`, such as 'GLUE', whose
      numbers are averaged; or a task and a metric, such as
      'glue_cola_v002/matthews_corrcoef'.

  Raises:
    UserError: no column has this name, its numbers cannot be compared, or
      they are defined at no step.
  """
  qualities = {}
  headers: dict[str, None] = {}  # in the order of the table
  for step in sorted({result.step for result in run.results}):
    table = tables.make([run], checkpoint=str(step))
    headers.update(dict.fromkeys(c.header for c in _scores(table)))
    column = _column(table, name)
    quality = None if column is None else _quality(table, column)
    if quality is not None:
      qualities[step] = quality
  if not qualities and name in headers:
    raise UserError(
      f'{run.name}: {name!r} does not say whether it is better when higher or '
      'lower, or is defined at no step: choose another column of its table, '
      f'which has {", ".join(headers)}'
    )
  if not qualities:
    raise UserError(
      f'{run.name}: no evaluated checkpoint has a number {name!r}. Its table '
      f'has {", ".join(headers) or "no scores"} (synth-mtf table).'
    )
  return max(qualities, key=lambda step: qualities[step])


def _scores(table: tables.Table) -> list[layouts.Column]:
  """Returns the columns of scores, and their averages."""
  of_tasks = set(table.scores.column)
  return [
    column for column in table.columns if column.over or column.key in of_tasks
  ]


def _column(table: tables.Table, name: str) -> layouts.Column | None:
  for column in _scores(table):
    tags = [tag for of_number in column.tags.values() for tag in of_number]
    if column.better and (name == column.header or name in tags):
      return column
  return None


def _quality(table: tables.Table, column: layouts.Column) -> float | None:
  """Returns a number that is higher for a better score, if all are defined."""
  values = table.cells[table.cells.column == column.key].value.dropna()
  if len(values) < len(column.tags):
    return None
  return column.better * float(values.mean())
