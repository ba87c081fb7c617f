"""A rule for verdicts on claims that compare models.

  ahead    Welch's t-test over the seeds finds a difference (p < 0.05).
  like     the means differ by no more than the larger spread over seeds.
  learned  a one-sided t-test finds the seeds better than a guess (p < 0.05).

Speeds of one series differ from 5 % on; counts differ if they are not equal. A
claim holds if all its comparisons do, does not hold if none does and one is
contradicted, and holds in part if some do. A comparison decides nothing if a
model is missing or has not learned, and if its source does not count
(`Source.doubt`).
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from scipy import stats

_SIGNIFICANT = 0.05


class Sample(NamedTuple):
  """What was found for a model: a mean over seeds, or a number."""

  mean: float
  spread: float = 0.0  # the standard deviation
  seeds: int = 1


@dataclasses.dataclass(frozen=True)
class Source:
  """Results of one kind.

  Attributes:
    kind: what they are of; they speak for claims of this kind alone.
    found: the results by the names of models.
    higher: whether a higher number is better.
    margin: up to which share numbers without seeds are alike.
    guess: what a model has that has learned nothing; None if unknown.
    steps: the steps that were taken, and those that the part plans.
  """

  kind: str
  found: Mapping[str, Sample]
  higher: bool = False
  margin: float = 0.0
  guess: float | None = None
  steps: tuple[int, int] | None = None

  def doubt(self, kind: str) -> str:
    """Returns why it decides nothing about a claim of a kind, or ''."""
    if kind != self.kind:
      return f'{self.kind} does not speak for {kind}'
    if self.steps and 2 * self.steps[0] < self.steps[1]:
      taken, planned = self.steps
      return f'only {taken:,} of {planned:,} steps'
    return ''

  def missing(self, *models: str) -> str:
    """Returns which models cannot be compared, and why, or ''."""
    for model in models:
      if model not in self.found:
        return f'{model} was not measured'
    for model in models:
      if self.guess is not None and learned(self, model) is not True:
        return f'{model} is not better than a guess'
    return ''

  def difference(self, a: str, b: str) -> float:
    """Returns by how much a is better than b."""
    difference = self.found[a].mean - self.found[b].mean
    return difference if self.higher else -difference

  def p(self, a: str, b: str) -> float:
    """Returns how often a difference as large as theirs comes by chance.

    Without any spread, it is 1 for what is alike and 0 for what is not.
    """
    x, y = self.found[a], self.found[b]
    if x.spread == y.spread == 0:
      small, large = sorted([x.mean, y.mean])
      return float(large <= small * (1 + self.margin))
    return float(stats.ttest_ind_from_stats(*x, *y, equal_var=False).pvalue)


def learned(source: Source, model: str) -> bool | None:
  """Whether a model is better than a guess; None if that is open."""
  assert source.guess is not None
  mean, spread, seeds = source.found[model]
  gain = source.guess - mean
  if gain <= 0:
    return False
  if spread == 0:
    return True
  t = gain / (spread / math.sqrt(seeds))
  return True if stats.t.sf(t, seeds - 1) < _SIGNIFICANT else None


class Finding(NamedTuple):
  """What became of a comparison: None if it decides nothing."""

  holds: bool | None
  reason: str


Comparison = Callable[[Source], Finding]


class Compared(NamedTuple):
  """A comparison of models, by a source of results.

  Attributes:
    source: its label.
    what: the comparison in words.
    models: the models that it needs.
    holds: returns what it finds, given that nothing is in doubt.
  """

  source: str
  what: str
  models: Sequence[str]
  holds: Comparison

  def finding(self, kind: str, source: Source) -> Finding:
    """Returns what the source says about a claim of a kind."""
    doubt = source.doubt(kind) or source.missing(*self.models)
    return Finding(None, doubt) if doubt else self.holds(source)


def ahead(source: str, better: str, *others: str) -> list[Compared]:
  """A model is better than each of the others."""

  def of(other: str) -> Compared:
    def holds(source: Source) -> Finding:
      p = source.p(better, other)
      if p >= _SIGNIFICANT:
        return Finding(None, f'p = {p:.2f}')
      if source.difference(better, other) > 0:
        return Finding(True, '')
      return Finding(False, f'{other} is ahead')

    return Compared(
      source, f'{better} ahead of {other}', [better, other], holds
    )

  return [of(other) for other in others]


def like(source: str, other: str, *models: str) -> list[Compared]:
  """Each of the models is as good as another, not better or worse."""
  return [
    Compared(
      source, f'{model} like {other}', [model, other], _alike(model, other)
    )
    for model in models
  ]


def no_worse(source: str, model: str, other: str) -> list[Compared]:
  """A model is like another, or ahead."""

  def holds(source: Source) -> Finding:
    if source.difference(model, other) > 0:
      return Finding(True, '')
    return _alike(model, other)(source)

  what = f'{model} no worse than {other}'
  return [Compared(source, what, [model, other], holds)]


def _alike(model: str, other: str) -> Comparison:
  def holds(source: Source) -> Finding:
    p = source.p(model, other)
    spread = max(source.found[model].spread, source.found[other].spread)
    if p < _SIGNIFICANT:
      first = model if source.difference(model, other) > 0 else other
      return Finding(False, f'{first} is ahead')
    if spread and abs(source.difference(model, other)) > spread:
      return Finding(None, f'p = {p:.2f}')
    return Finding(True, '')

  return holds


def learns(source: str, *models: str) -> list[Compared]:
  """Each of the models is better than a guess."""
  return [_learns(source, model, True) for model in models]


def fails(source: str, *models: str) -> list[Compared]:
  """None of the models is better than a guess."""
  return [_learns(source, model, False) for model in models]


def _learns(source: str, model: str, expected: bool) -> Compared:
  def holds(source: Source) -> Finding:
    if model not in source.found:
      return Finding(None, f'{model} was not measured')
    found = learned(source, model)
    if found is None:
      return Finding(None, 'it is near a guess')
    return Finding(found == expected, 'it does' if found else 'it does not')

  what = 'learns' if expected else 'does not learn'
  return Compared(source, f'{model} {what}', [], holds)


def times(source: str, model: str, other: str, ratio: float) -> list[Compared]:
  """A number is this many times another, within the margin."""

  def holds(source: Source) -> Finding:
    found = source.found[model].mean / source.found[other].mean
    small, large = sorted([found, ratio])
    return Finding(large <= small * (1 + source.margin), f'{found:.2f} times')

  what = f'{model} {ratio} times {other}'
  return [Compared(source, what, [model, other], holds)]


class Rule(NamedTuple):
  """What a claim says: comparisons by sources of its kind."""

  kind: str
  compared: Sequence[Compared]


def verdict(rule: Rule, sources: Mapping[str, Callable[[], Source]]) -> str:
  """Returns the text of the verdict on a claim; sources have labels."""
  found = [
    (one, one.finding(rule.kind, sources[one.source]()))
    for one in rule.compared
  ]
  others = [(one, finding) for one, finding in found if not finding.holds]
  if not others:
    return 'holds'
  if len(others) < len(found):
    word = 'in part'
  elif any(finding.holds is False for _, finding in others):
    word = 'does not hold'
  else:
    word = 'not decided'
  is_one = len({one.source for one in rule.compared}) == 1
  by_reason: dict[str, list[str]] = {}
  for one, finding in others:
    what = one.what if is_one else f'{one.source}: {one.what}'
    by_reason.setdefault(finding.reason, []).append(what)
  if len(by_reason) == 1 and word == 'not decided':
    return f'{word}: {others[0][1].reason}'
  reasons = (f'{", ".join(x)} ({reason})' for reason, x in by_reason.items())
  return f'{word}: {"; ".join(reasons)}'
