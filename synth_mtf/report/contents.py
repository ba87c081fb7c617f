"""What a page says of runs: the summary, and where their settings differ."""

from collections.abc import Sequence

from synth_mtf.report.page import Configuration, Difference
from synth_mtf.results.printing import Grid, Piece, Row
from synth_mtf.results.runs import Run
from synth_mtf.results.tables.grid import MISSING
from synth_mtf.results.tables.layouts import millions


def names(runs: Sequence[Run]) -> list[str]:
  """Returns a name for each run, with its folder where labels are alike."""
  labels = [run.label for run in runs]
  return [
    label if labels.count(label) == 1 else f'{label}, {run.name}'
    for label, run in zip(labels, runs)
  ]


def summary(runs: Sequence[Run]) -> Grid:
  """Returns a table with a row for each run."""
  return Grid(
    caption=f'{len(runs)} run{"s" * (len(runs) > 1)}',
    headers=['Seed', 'Last step', 'Params', 'Steps/s', 'Folder'],
    rows=[
      Row(
        run.label,
        [
          [Piece(text)]
          for text in (
            MISSING if run.seed is None else str(run.seed),
            f'{run.steps[-1]:,}' if run.steps else MISSING,
            millions(run.parameters) if run.parameters else MISSING,
            f'{run.steps_per_second:.1f}' if run.steps_per_second else MISSING,
            run.name,
          )
        ],
      )
      for run in runs
    ],
    notes=[],
  )


def configurations(runs: Sequence[Run]) -> list[Configuration]:
  """Returns the configuration of each run that has one."""
  return [
    Configuration(name, run.gin.strip())
    for name, run in zip(names(runs), runs)
    if run.gin
  ]


def differences(runs: Sequence[Run]) -> list[Difference]:
  """Returns the settings that are not the same in all configurations."""
  bindings = [run.bindings for run in runs if run.gin]
  settings = sorted({name for bound in bindings for name in bound})
  return [
    Difference(name, values)
    for name in settings
    for values in [[bound.get(name) for bound in bindings]]
    if any(value != values[0] for value in values)
  ]
