"""Compares the demo's trained models on the same examples, by sign tests.

A test counts the units (standard_error.py) that only one of two models answers
right. If either were as likely to be that one, the count would be binomial with
probability 1/2. The level is divided by the number of tests: every two models
in every task. What another seed would give, no such test can say.
"""

import itertools
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import scipy.stats
from t5.evaluation.qa_utils import normalize_squad

from synth_mtf.errors import UserError
from synth_mtf.results import records
from synth_mtf.results.layouts import PREFIX

_LEVEL = 0.01
# By task: whether each unit was answered right.
Answers = Mapping[str, Mapping[str, bool]]


def read(folder: pathlib.Path) -> Answers:
  """Reads the predictions of the last step; {} if there are none.

  A unit is right if all its examples are. Similarities (STS-B) are left out.

  Raises:
    UserError: a line is cut or altered.
  """
  path, last = folder / records.PREDICTIONS, -1
  found: dict[str, dict[str, bool]] = {}
  if not path.exists():
    return found
  with path.open(encoding='utf-8') as lines:
    for number, text in enumerate(lines, 1):
      try:
        line = json.loads(text)
        step, unit = int(line['step']), line['example']
        target, read_as = line['target_read_as'], line['read_as']
        if isinstance(target, dict):
          unit, target = target['group'], target['value']
          read_as = read_as['value']
        if step > last:
          found, last = {}, step
        if step == last and not isinstance(target, float):
          of_task = found.setdefault(line['task'], {})
          is_right = _is_right(target, read_as)
          of_task[str(unit)] = of_task.get(str(unit), True) and is_right
      except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(
          f'{path}:{number}: cut or altered ({error!r:.99}); remove the file '
          'and the evaluate.done of its run, and give the same command again.'
        ) from error
  return found


def _is_right(target: Any, read_as: Any) -> bool:
  if isinstance(target, list):  # the answers to a question
    return normalize_squad(read_as) in map(normalize_squad, target)
  return bool(target == read_as)


def compared(models: Mapping[str, Answers]) -> str:
  """Describes, in a paragraph, the tasks in which two models differ."""
  tests = [
    (task, first, second)
    for first, second in itertools.combinations(models, 2)
    for task in models[first]
    if task in models[second]
  ]
  lines = []
  for task, *pair in tests:
    pairs = [
      (right, models[pair[1]][task][unit])
      for unit, right in models[pair[0]][task].items()
      if unit in models[pair[1]][task]
    ]
    only = [pairs.count((True, False)), pairs.count((False, True))]
    p = min(1.0, 2 * scipy.stats.binom.cdf(min(only), sum(only), 0.5))
    if p * len(tests) < _LEVEL:
      rights = (sum(one) for one in zip(*pairs))
      shown = ', '.join(f'{m} {n}' for m, n in zip(pair, rights))
      lines.append(f'  {task.removeprefix(PREFIX)}: {shown} of {len(pairs)}')
  if not tests:
    return ''
  lines = lines or ['  no significant difference']
  return '\n'.join(
    [
      'Right answers of these runs to the same examples (sign tests, '
      f'p < {_LEVEL} over all {len(tests)}):',
      *lines,
    ]
  )
