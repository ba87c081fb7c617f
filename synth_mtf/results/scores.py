"""All scores of some runs as one pandas DataFrame."""

from collections.abc import Sequence

import pandas as pd

from synth_mtf.results.layouts import PREFIX
from synth_mtf.results.runs import Run
from synth_mtf.results.seeds import by_model

COLUMNS = (
  'model',  # its name in tables, unlike that of any other model
  'run',
  'seed',
  'tag',  # T5's name of the score, <task>/<metric>, also for our tasks
  'task',
  'split',
  'metric',
  'step',
  'value',  # NaN if it is not defined
  'n',
  'unit',
  'standard_error',
)


def frame(runs: Sequence[Run]) -> pd.DataFrame:
  """Returns a row for each score of each run."""
  rows = [
    {
      **vars(result),
      'model': model,
      'run': run.name,
      'seed': run.seed,
      'tag': f'{result.task.removeprefix(PREFIX)}/{result.metric}',
    }
    for model, same in by_model(runs).items()
    for run in same
    for result in run.results
  ]
  return pd.DataFrame(rows, columns=COLUMNS).astype(
    {'step': int, 'value': float, 'n': 'Int64', 'standard_error': float}
  )
