"""benchmarks/rule.py on made-up results, in NumPy, and its verdicts."""

import itertools

import numpy as np
import pytest

from benchmarks import rule, verdicts
from benchmarks.rule import Rule, Sample, Source
from tests.checkout import CHECKOUT

# Losses of three seeds each.
SEEDS = {
  'low': [1.00, 1.02, 1.01],
  'near low': [1.01, 1.03, 1.005],
  'high': [1.50, 1.52, 1.49],
  'wide': [0.9, 1.5, 1.4],
}


def source(**settings):
  found = {
    name: Sample(float(np.mean(losses)), float(np.std(losses, ddof=1)), 3)
    for name, losses in SEEDS.items()
  }
  return Source('translation', found, **settings)


def made_up(compared, kind='translation', **settings):
  """The verdict on a claim of the seeds above, from a source with settings."""
  return rule.verdict(Rule(kind, compared), {'x': lambda: source(**settings)})


def test_p_is_of_welchs_t():
  a, b = (np.array(SEEDS[name]) for name in ('low', 'wide'))
  x, y = (s.var(ddof=1) / 3 for s in (a, b))
  t = (a.mean() - b.mean()) / np.sqrt(x + y)
  freedom = (x + y) ** 2 / (x**2 / 2 + y**2 / 2)
  rng = np.random.default_rng(0)
  drawn = np.abs(rng.standard_t(freedom, 400_000)) > abs(t)
  assert source().p('low', 'wide') == pytest.approx(drawn.mean(), abs=3e-3)


def test_ahead():
  assert made_up(rule.ahead('x', 'low', 'high')) == 'holds'
  assert made_up(rule.ahead('x', 'high', 'low')) == (
    'does not hold: high ahead of low (low is ahead)'
  )
  assert made_up(rule.ahead('x', 'low', 'wide')).startswith(
    'not decided: p = 0.'
  )
  assert made_up(rule.ahead('x', 'low', 'high', 'wide')).startswith(
    'in part: low ahead of wide (p = 0.'
  )


def test_like():
  assert made_up(rule.like('x', 'low', 'near low')) == 'holds'
  assert made_up(rule.like('x', 'low', 'high')) == (
    'does not hold: high like low (low is ahead)'
  )
  assert made_up(rule.like('x', 'high', 'wide')) == 'holds'
  assert made_up(rule.like('x', 'wide', 'low')).startswith('holds')
  assert made_up(rule.no_worse('x', 'low', 'high')) == 'holds'
  assert made_up(rule.no_worse('x', 'high', 'low')).startswith('does not')


def test_beyond_one_spread_but_not_significant_is_open(monkeypatch):
  monkeypatch.setitem(SEEDS, 'a', [1.00, 1.10, 1.20])
  monkeypatch.setitem(SEEDS, 'b', [1.12, 1.22, 1.32])
  assert made_up(rule.like('x', 'a', 'b')) == 'not decided: p = 0.22'


@pytest.mark.parametrize(
  'settings, reason',
  [
    ({'kind': 'dialogue'}, 'translation does not speak for dialogue'),
    ({'steps': (1000, 2001)}, 'only 1,000 of 2,001 steps'),
    ({'guess': 1.49}, 'high is not better than a guess'),
  ],
)
def test_what_decides_nothing(settings, reason):
  compared = rule.ahead('x', 'low', 'high')
  assert made_up(compared, **settings) == f'not decided: {reason}'
  missing = rule.ahead('x', 'low', 'V')
  assert made_up(missing) == 'not decided: V was not measured'


def test_half_of_the_steps_suffice():
  compared = rule.ahead('x', 'low', 'high')
  assert made_up(compared, steps=(1000, 2000), guess=1.6) == 'holds'


def test_learning():
  assert made_up(rule.learns('x', 'low'), guess=1.2) == 'holds'
  assert made_up(rule.fails('x', 'high'), guess=1.2) == 'holds'
  assert made_up(rule.fails('x', 'low'), guess=1.2).startswith('does not')
  assert made_up(rule.learns('x', 'wide'), guess=1.3) == (
    'not decided: it is near a guess'
  )


def test_speeds_differ_from_5_percent_on():
  found = {'V': Sample(1.0), 'R': Sample(1.049), 'D': Sample(1.051)}
  speeds = Source('speed', found, higher=True, margin=0.05)

  def verdict(compared):
    return rule.verdict(Rule('speed', compared), {'e': lambda: speeds})

  assert verdict(rule.like('e', 'V', 'R')) == 'holds'
  assert verdict(rule.ahead('e', 'D', 'V')) == 'holds'
  assert verdict(rule.ahead('e', 'R', 'V')) != 'holds'
  assert verdict(rule.times('e', 'D', 'V', 1.0)) != 'holds'


def test_the_page_has_the_verdicts():
  page = (CHECKOUT / 'docs' / 'results.md').read_text()
  assert verdicts.written(page) == page


@pytest.mark.parametrize(
  'source, pairs, text',
  [
    (
      'f',
      [('R+V, 2 heads', 'R+V, 8 heads'), ('R+V, 8 heads', 'R+V, 32 heads')],
      'p is {} between 2 and 8, and {} between 8 and 32',
    ),
    (
      'f',
      [(f'R, N = {n}', f'V, N = {n}') for n in (32, 64, 128)],
      'ahead (p = {}, {} and {} from the shortest to the longest)',
    ),
    (
      'q',
      [('R', 'V'), ('R+V', 'V')],
      'In language models, R (p = {}) and R+V ({}) are ahead of V',
    ),
    (
      'm',
      [('R+V', 'V'), ('D', 'V')],
      'in dialogue, R+V is ({}), and D is behind V ({})',
    ),
  ],
)
def test_the_text_has_the_p_of_the_results(source, pairs, text):
  results = verdicts.SOURCES[source]()
  page = ' '.join((CHECKOUT / 'docs/results.md').read_text().split())
  numbers = [f'{results.p(a, b):.2f}' for a, b in pairs]
  assert text.format(*numbers) in page


def test_no_other_ablation_differs():
  results = verdicts.SOURCES['f']()
  models = [name for name in results.found if 'heads' not in name]
  for kind in ('FR, k = ', 'FD, a = ', 'R+V, '):
    compared = [name for name in models if name.startswith(kind)]
    assert len(compared) > 2
    for a, b in itertools.combinations(compared, 2):
      assert results.p(a, b) > 0.1
