"""Compares the demo's models by exact sign tests over pairs.

A pair is what two models scored on the same example or, of several seeds, with
the same seed. If either were as likely to be the better one, the number of
times it is would be binomial. The level is divided by the number of tests.
"""

import itertools
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import scipy.stats

from synth_mtf.errors import UserError
from synth_mtf.results import records
from synth_mtf.results.layouts import PREFIX

_LEVEL = 0.01
# By task or metric: the score of each example or seed.
Scores = Mapping[str, Mapping[int, float]]


def of_examples(folder: pathlib.Path) -> Scores:
  """Returns whether each example of a classification was answered right.

  Those of the checkpoint evaluated last; {} without predictions.
  """
  found: dict[str, dict[int, float]] = {}
  path = folder / records.PREDICTIONS
  lines = path.read_text('utf-8').split('\n')[:-1] if path.exists() else []
  try:
    for line in map(json.loads, lines):
      if isinstance(line['target_read_as'], int):
        is_right = line['read_as'] == line['target_read_as']
        found.setdefault(line['task'], {})[line['example']] = is_right
  except (ValueError, LookupError, TypeError) as error:
    raise UserError(
      f'{path} has a line that is cut or altered ({error!r:.99}): remove it '
      'and the evaluate.done of its run, and give the same command again.'
    ) from error
  return found


def of_seeds(measured: Sequence[Mapping[str, Any]]) -> Scores:
  """Returns the scores of each seed, as the demo's metrics.json has them."""
  return {
    name: {
      one['seed']: one['metrics'][name]
      for one in measured
      if one['metrics'].get(name) is not None
    }
    for name in measured[0]['metrics']
  }


def compared(models: Mapping[str, Scores], over: str) -> str:
  """Describes where two of the models differ, in a line each."""
  tests = [
    (name, pair)
    for pair in itertools.combinations(models, 2)
    for name in models[pair[0]]
    if name in models[pair[1]]
  ]
  lines = []
  for name, pair in tests:
    first, second = (models[model][name] for model in pair)
    both = [(first[key], second[key]) for key in first if key in second]
    better, worse = sum(a > b for a, b in both), sum(a < b for a, b in both)
    chance = scipy.stats.binom.cdf(min(better, worse), better + worse, 0.5)
    if 2 * chance * len(tests) < _LEVEL:
      means = (sum(one) / len(both) for one in zip(*both))
      shown = ', '.join(f'{m} {mean:.3g}' for m, mean in zip(pair, means))
      lines.append(f'  {name.removeprefix(PREFIX)}: {shown} (n = {len(both)})')
  title = f'Sign tests over {over}, p < {_LEVEL} over all {len(tests)}:'
  lines = lines or ['  no significant difference']
  return '\n'.join([title, *lines]) if tests else ''
