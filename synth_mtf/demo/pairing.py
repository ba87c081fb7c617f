"""Compares the demo's models by exact sign tests over pairs.

A pair is what two models scored on the same example or, of several seeds, with
the same seed. If either were as likely to be the better one, the number of
times it is would be binomial. The level is divided by the number of tests.
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
  """Returns whether each example was answered right, by classification task.

  Predictions are those of the checkpoint evaluated last, if there are any.
  """
  path, found = folder / records.PREDICTIONS, {}
  lines = path.read_text('utf-8').split('\n') if path.exists() else []
  try:
    for line in map(json.loads, filter(None, lines)):
      target, place = line['target_read_as'], (line['task'], line['example'])
      if isinstance(target, int):
        found[place] = float(line['read_as'] == target)
  except (ValueError, LookupError, TypeError) as error:
    raise UserError(
      f'{path} has a line that is cut or altered ({error!r:.99}): remove it '
      'and the evaluate.done of its run, and give the same command again.'
    ) from error
  return pd.Series(found, dtype=float).unstack(0) if found else pd.DataFrame()


def compared(models: Mapping[str, pd.DataFrame], over: str) -> str:
  """Describes in which columns two of the models differ, in a line each."""
  tests = [
    (name, pair, models[pair[0]][name], models[pair[1]][name])
    for pair in itertools.combinations(models, 2)
    for name in models[pair[0]].columns.intersection(models[pair[1]].columns)
  ]
  lines = [f'Sign tests over {over}, p < {_LEVEL} over all {len(tests)}:']
  for name, pair, *scores in tests:
    both = pd.concat(scores, axis=1, keys=pair).dropna()
    better = [int((both[a] > both[b]).sum()) for a, b in (pair, pair[::-1])]
    chance = binomtest(better[0], sum(better)).pvalue if any(better) else 1
    if len(tests) * chance < _LEVEL:
      means = ', '.join(f'{m} {mean:.3g}' for m, mean in both.mean().items())
      lines.append(f'  {name.removeprefix(PREFIX)}: {means} (n = {len(both)})')
  lines += ['  no significant difference'] * (len(lines) == 1)
  return '\n'.join(lines) if tests else ''
