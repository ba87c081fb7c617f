"""Standard errors of our tasks' metrics: by formulas and by the bootstrap."""

import collections
import warnings
from typing import Any

import numpy as np
import pytest
import seqio

import synth_mtf.tasks  # noqa: F401  registers them
from synth_mtf.results import standard_error
from synth_mtf.results.layouts import PREFIX
from synth_mtf.results.standard_error import spread

WORDS = ['old', 'red', 'boat', 'house', 'ran', 'saw', 'found', 'we', 'she']
N = 60


def classes(number):
  def make(rng, n):
    targets = rng.integers(number, size=n)
    guesses = rng.integers(-1, number, size=n)  # -1 names no class
    read_as = np.where(rng.random(n) < 0.6, targets, guesses)
    return targets.tolist(), read_as.tolist()

  return make


def similarities(rng, n):
  targets = 5 * rng.random(n)
  read_as = np.round((targets + rng.normal(0, 2, n)) * 5) / 5
  return targets.tolist(), read_as.tolist()


def texts(rng, n):
  targets = [list(rng.choice(WORDS, rng.integers(4, 12))) for _ in range(n)]
  read_as = [
    [word if rng.random() < 0.8 else rng.choice(WORDS) for word in words]
    for words in targets
  ]
  return list(map(' '.join, targets)), list(map(' '.join, read_as))


def questions(rng, n):
  targets, read_as = texts(rng, n)
  return [[text, 'boat'] for text in targets], read_as


def grouped(make):
  """One to four examples of each question, not side by side."""

  def of_questions(rng, n):
    groups = rng.permutation(np.repeat(range(n), rng.integers(1, 5, n)))
    targets, read_as = make(rng, len(groups))
    return (
      [
        {'value': v, 'group': g}
        for v, g in zip(targets, groups.tolist(), strict=True)
      ],
      [{'value': value} for value in read_as],
    )

  return of_questions


# By a part of the task's name.
MAKERS = {
  **dict.fromkeys(['mnli', '_cb_'], classes(3)),
  'stsb': similarities,
  'multirc': grouped(classes(2)),
  'record': grouped(questions),
  **dict.fromkeys(['squad', 'web_questions'], questions),
  **dict.fromkeys(['xsum', 'cnn', 'wmt', 'personachat'], texts),
  '': classes(2),
}


def every_metric():
  """Each metric of our tasks, once for each kind of examples."""
  found: dict[Any, Any] = {}
  for task in filter(
    lambda n: n.startswith(PREFIX), seqio.TaskRegistry.names()
  ):
    make = next(make for part, make in MAKERS.items() if part in task)
    for metric in seqio.TaskRegistry.get(task).metric_fns:
      name = f'{metric.__module__}.{metric.__qualname__}'
      marks = pytest.mark.slow if metric.__name__ == 'rouge' else ()
      one = pytest.param(metric, make, marks=marks, id=f'{task}-{name}')
      found.setdefault((name, make), one)
  return found.values()


def closed_forms(targets, read_as):
  """Of what is the share of right examples, or questions."""
  by_unit = collections.defaultdict(list)
  for number, (target, found) in enumerate(zip(targets, read_as, strict=True)):
    if isinstance(target, dict):
      number, target, found = target['group'], target['value'], found['value']
    is_right = found in target if isinstance(target, list) else found == target
    by_unit[number].append(100 * is_right)
  first, least = (
    np.std([pick(one) for one in by_unit.values()], ddof=1)
    / len(by_unit) ** 0.5
    for pick in (lambda one: one[0], min)
  )
  return {'accuracy': first, 'em': first, 'exact_match': least}


def bootstrap(metric, targets, read_as, rng, draws):
  """The spread of a metric over units drawn with replacement."""
  every, values = standard_error.units(targets), []
  for _ in range(draws):
    drawn = [
      ({**target, 'group': group} if len(every) < len(targets) else target, one)
      for group, chosen in enumerate(rng.choice(len(every), len(every)))
      for index in every[chosen]
      for target, one in [(targets[index], read_as[index])]
    ]
    values.append(metric(*map(list, zip(*drawn, strict=True))))
  return {n: np.std([one[n] for one in values], ddof=1) for n in values[0]}


@pytest.mark.sampled
@pytest.mark.parametrize(('metric', 'make'), every_metric())
def test_every_metric_of_our_tasks(metric, make, tmp_path, monkeypatch):
  draws = 60 if metric.__name__ == 'rouge' else 150
  monkeypatch.setattr(standard_error, '_MOST_SECONDS', 99.0)
  monkeypatch.setattr(standard_error, 'DRAWS', draws)
  rng = np.random.default_rng(3)
  vectors = tmp_path / 'vectors.txt'
  lines = (f'{word} {" ".join(map(str, rng.random(5)))}\n' for word in WORDS)
  vectors.write_text(''.join(lines))
  monkeypatch.setenv('SYNTH_MTF_WORD_VECTORS', str(vectors))
  targets, read_as = make(rng, N)
  if metric.__name__ == 'meteor' or metric(targets, read_as) == {}:
    pytest.skip('its package is missing, or it starts Java at each call')
  found = spread(metric, targets, read_as).errors
  exact = closed_forms(targets, read_as)
  with warnings.catch_warnings():
    warnings.simplefilter('ignore')
    drawn = bootstrap(metric, targets, read_as, rng, draws)
  assert found and found.keys() == drawn.keys()
  for name, error in found.items():
    assert error == pytest.approx(drawn[name], rel=0.3)
    assert error == pytest.approx(exact.get(name, error))


def mean(targets, predictions):
  return {'mean': float(np.mean(predictions))}


def strict(targets, predictions):
  assert sorted(targets) == [1, 2], 'all examples are expected'
  return mean(targets, predictions)


@pytest.mark.parametrize(
  ('metric', 'targets', 'expected'),
  [
    (mean, [1], {'mean': None}),
    (mean, [{'group': 7, 'value': 1}] * 2, {'mean': None}),  # one question
    (lambda *_: {'r': float('nan')}, [1, 2], {'r': None}),
    (strict, [1, 2], {}),
  ],
)
def test_where_there_is_none(metric, targets, expected):
  assert spread(metric, targets, [1, 2][: len(targets)]).errors == expected


def test_a_slow_metric_has_none(monkeypatch):
  monkeypatch.setattr(standard_error, '_MOST_SECONDS', -1.0)
  assert spread(mean, [1, 2], [1, 2]).errors == {}


@pytest.mark.parametrize('positives', [1, 2, 30])
def test_where_a_model_gives_almost_the_same_answer_to_all(positives):
  """Leaving out the only other answer would change everything."""
  metric = seqio.TaskRegistry.get('synth_glue_cola_v002').metric_fns[0]
  targets, read_as = [1, 0] * 32, [1] * positives + [0] * (64 - positives)
  rng = np.random.default_rng(4)
  drawn = bootstrap(metric, targets, read_as, rng, 200)
  found = spread(metric, targets, read_as).errors
  assert found == {n: pytest.approx(e, rel=0.25) for n, e in drawn.items()}
