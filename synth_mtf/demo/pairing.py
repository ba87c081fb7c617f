"""Compares the demo's models by exact sign tests over pairs.

A pair is two models' scores on the same example or, with several seeds, their
scores with the same seed. If both models were equally good, each would win half
of the pairs that differ: the test is binomial. The level is divided by the
number of tests (Bonferroni).
"""

import itertools
import json
import pathlib
from collections.abc import Mapping

import pandas as pd
from scipy.stats import binomtest

from synth_mtf.errors import UserError
from synth_mtf.results import records
from synth_mtf.results.layouts import PREFIX

_LEVEL = 0.01


def of_examples(folder: pathlib.Path) -> pd.DataFrame:
  """Returns 100 for each right answer and 0 for others, by classification task.

  Predictions are those of the checkpoint evaluated last, if there are any.
  """
  path = folder / records.PREDICTIONS
  text = path.read_text('utf-8', 'replace') if path.exists() else ''
  scores = {}
  try:
    for line in text.split('\n'):
      if line:
        prediction = json.loads(line)
        target = prediction['target_read_as']
        key = prediction['task'], prediction['example']
        if isinstance(target, int):
          scores[key] = 100.0 * (prediction['read_as'] == target)
  except (ValueError, LookupError, TypeError) as error:
    raise UserError(
      f'{path} has a line that is cut or altered ({error!r:.99}): remove this '
      'file and the evaluate.done of its run, and run the same command again.'
    ) from error
  if not scores:
    return pd.DataFrame()
  return pd.Series(scores, dtype=float).unstack(0)


def compared(models: Mapping[str, pd.DataFrame], over: str) -> str:
  """Describes in which columns two of the models differ, in a line each.

  Args:
    models: the scores of each model, in percent, by its name in the table.
    over: what the scores are of.
  """
  tests = []
  for first, second in itertools.combinations(models, 2):
    columns = models[first].columns.intersection(models[second].columns)
    tests += [(first, second, column) for column in columns]
  if not tests:
    return ''
  lines = []
  for first, second, column in tests:
    pairs = pd.concat(
      [models[first][column], models[second][column]],
      axis=1,
      keys=[first, second],
    ).dropna()
    if len(tests) * _p_value(pairs[first], pairs[second]) < _LEVEL:
      means = ', '.join(f'{m} {mean:.1f}' for m, mean in pairs.mean().items())
      task = column.removeprefix(PREFIX)
      lines.append(f'  {task}: {means} (n = {len(pairs)})')
  title = (
    f'Sign tests over {over}, in percent, p < {_LEVEL}, corrected for '
    f'{len(tests)}:'
  )
  return '\n'.join([title, *(lines or ['  no significant difference'])])


def _p_value(first: pd.Series, second: pd.Series) -> float:
  """Returns the probability of such a difference between equal models."""
  wins = int((first > second).sum())
  losses = int((first < second).sum())
  if wins + losses == 0:
    return 1.0
  return binomtest(wins, wins + losses).pvalue
