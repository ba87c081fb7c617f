"""Collects the numbers of runs in one pandas DataFrame."""

import os
import re
from collections.abc import Hashable, Sequence
from typing import Any

import pandas as pd

from synth_mtf.results.layouts import PREFIX, VANILLA
from synth_mtf.results.runs import Run

# Runs of one model may differ in these settings.
_SEED = re.compile(r'(^|[./_])seed$')
_START = re.compile(r'(^|[./])init_checkpoint$')
_SEED_IN_A_NAME = re.compile(r'((?:^|[^a-zA-Z])(?:seed|s)[-_=]?)\d+')

COLUMNS: dict[str, Any] = {
  'model': object,  # the model's unique name in tables
  'run': object,
  # T5's name for a score, <task>/<metric>, also of our tasks; or a fact
  'tag': object,
  'task': object,  # None for a fact
  'split': object,
  'metric': object,
  'step': int,
  'value': float,  # NaN if undefined
  'n': 'Int64',
  'unit': object,
  'standard_error': float,
  'data': object,
  'digest': object,
}


def frame(runs: Sequence[Run], products: bool = False) -> pd.DataFrame:
  """Returns one row for each score of each run, and for each fact about it.

  The facts are `parameters`, `steps_per_second`, `speed_over_t5` (relative to
  the mean of plain T5, if it is among the runs) and, if requested, `products`.
  """
  t5 = [
    run.steps_per_second
    for run in runs
    if run.label in VANILLA and run.steps_per_second
  ]
  rows = []
  for model, same in by_model(runs).items():
    for run in same:
      about = {'model': model, 'run': run.name}
      for score in run.results:
        tag = f'{score.task.removeprefix(PREFIX)}/{score.metric}'
        rows.append({**about, **vars(score), 'tag': tag})
      speed = run.steps_per_second
      for fact, value in (
        ('parameters', run.parameters),
        ('products', run.products if products else None),
        ('steps_per_second', speed),
        ('speed_over_t5', speed * len(t5) / sum(t5) if t5 and speed else None),
      ):
        if not pd.isna(value):
          found = {'split': '', 'step': 0, 'unit': '', 'value': value}
          rows.append({**about, **found, 'tag': fact})
  return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)


def by_model(runs: Sequence[Run]) -> dict[str, list[Run]]:
  """Groups runs by model, under a unique name for each model.

  Runs belong to one model if their labels and all settings but seeds agree. Of
  models with the same label, the names have the folders of their first runs.
  """
  groups: dict[Hashable, list[Run]] = {}
  for run in runs:
    groups.setdefault(_identity(run), []).append(run)
  labels = [first.label for first, *_ in groups.values()]
  common = os.path.commonprefix([run.name for run in runs])
  folder = common[: common.rfind('/') + 1]
  models = {}
  for label, same in zip(labels, groups.values()):
    if labels.count(label) > 1:
      label += f', {same[0].name.removeprefix(folder)}'
    models[label] = same
  return models


def _identity(run: Run) -> Hashable:
  """Returns a key that runs share if and only if they are of the same model."""
  if not run.bindings:
    return run.name
  settings = {
    name: _SEED_IN_A_NAME.sub(r'\1', value) if _START.search(name) else value
    for name, value in run.bindings.items()
    if not _SEED.search(name)
  }
  return run.label, frozenset(settings.items())
