"""Tables of runs that are made up, and what their cells say."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Optional

import synth_mtf.progress  # noqa: F401  registers a name with gin
from synth_mtf.results import runs
from synth_mtf.results.printing import Grid
from synth_mtf.results.tables import checkpoints, grid, layouts, table
from synth_mtf.results.tables.checkpoints import Choice
from synth_mtf.results.tables.table import Table
from tests.results import made_runs
from tests.results.made_runs import COLA, Folder

GLUE = {
  'glue_cola_v002': {'matthews_corrcoef': 10.0},
  'glue_sst2_v002': {'accuracy': 20.0},
  'glue_mrpc_v002': {'f1': 30.0, 'accuracy': 50.0},
  'glue_stsb_v002': {'pearson_corrcoef': 70.0, 'spearman_corrcoef': 50.0},
  'glue_qqp_v002': {'f1': 60.0, 'accuracy': 60.0},
  'glue_mnli_matched_v002': {'accuracy': 70.0},
  'glue_mnli_mismatched_v002': {'accuracy': 90.0},
  'glue_qnli_v002': {'accuracy': 90.0},
  'glue_rte_v002': {'accuracy': 100.0},
}
LAST = checkpoints.Last()


def write(
  folder: Folder,
  scores: Mapping[str, Mapping[str, float]],
  step: int = 100,
  prefix: str = 'synth_',
) -> None:
  """Writes the scores of tasks whose names have a prefix."""
  for task, values in scores.items():
    made_runs.evaluated(folder, f'{prefix}{task}', step, values)


def cola(folder: Folder, value: float, step: int = 100) -> None:
  """Writes a score of CoLA."""
  made_runs.evaluated(folder, COLA, step, {'matthews_corrcoef': value})


def seeds(
  folder: pathlib.Path, values: Sequence[Optional[float]], *bindings: str
) -> list[pathlib.Path]:
  """Runs of one model, each with a seed and a score."""
  for seed, value in enumerate(values):
    run = folder / f'run{seed}'
    setting = f'synth_mtf.train_with_progress.seed = {seed}'
    made_runs.trained(run, bindings=[setting, *bindings])
    if value is not None:
      cola(run, value)
  return [folder / f'run{seed}' for seed in range(len(values))]


def table_of(
  *folders: Folder, layout: Optional[str] = None, choice: Choice = LAST
) -> Table:
  """The numbers of runs."""
  found = runs.read_all(list(map(str, folders)))
  if layout:
    return table.make(found, layouts.LAYOUTS[layout](found), choice)
  return table.make(found, layouts.overview(found), choice)


def texts(
  *folders: Folder,
  layout: Optional[str] = None,
  choice: Choice = LAST,
  errors: bool = False,
  paper: bool = False,
) -> Grid:
  """The texts of runs."""
  return grid.grid(
    table_of(*folders, layout=layout, choice=choice), errors, paper
  )


def cells(shown: Grid) -> dict[str, dict[str, str]]:
  """The text of each cell, by label and header."""
  return {
    row.label: {
      header: '/'.join(piece.text for piece in cell)
      for header, cell in zip(shown.headers, row.cells)
    }
    for row in shown.rows
  }
