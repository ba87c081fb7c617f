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
  """Returns whether each example was answered right, by classification task.

  Predictions are those of the checkpoint evaluated last, if there are any.
  """
  path, found = folder / records.PREDICTIONS, {}
  text = path.read_text('utf-8', 'replace') if path.exists() else ''
  try:
    for line in map(json.loads, filter(None, text.split('\n'))):
      target, place = line['target_read_as'], (line['task'], line['example'])
      if isinstance(target, int):
        found[place] = float(line['read_as'] == target)
  except (ValueError, LookupError, TypeError) as error:
    raise UserError(
      f'{path} has a line that is cut or altered ({error!r:.99}): remove this '
      'file and the evaluate.done of its run, and run the same command again.'
    ) from error
  return pd.Series(found, dtype=float).unstack(0) if found else pd.DataFrame()


def compared(models: Mapping[str, pd.DataFrame], over: str) -> str:
  """Describes in which columns two of the models differ, in a line each."""
  tests = [
    (name, pair, models[pair[0]][name], models[pair[1]][name])
    for pair in itertools.combinations(models, 2)
    for name in models[pair[0]].columns.intersection(models[pair[1]].columns)
  ]
  if not tests:
    return ''
  lines = []
  for name, pair, *scores in tests:
    both = pd.concat(scores, axis=1, keys=pair).dropna()
    better = [int((both[a] > both[b]).sum()) for a, b in (pair, pair[::-1])]
    chance = binomtest(better[0], sum(better)).pvalue if any(better) else 1
    if len(tests) * chance < _LEVEL:
      means = ', '.join(f'{m} {mean:.3g}' for m, mean in both.mean().items())
      lines.append(f'  {name.removeprefix(PREFIX)}: {means} (n = {len(both)})')
  title = f'Sign tests over {over}, p < {_LEVEL}, corrected for {len(tests)}:'
  return '\n'.join([title, *(lines or ['  no significant difference'])])
