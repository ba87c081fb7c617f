"""Verdicts on the paper's claims, by one rule, from benchmarks/results.

    python -m benchmarks.verdicts

writes the last column of the inventory in docs/results.md, which also has the
rule in words:

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
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from scipy import stats

from benchmarks import tables

_SIGNIFICANT = 0.05
_SPEEDS_DIFFER = 0.05  # as a share of the slower one
_SEEDS = 3
_PRINTED = ', printed'  # after the name of a model
_SEEN = 'validation rows were training rows'


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
    seen: whether validation rows were training rows.
  """

  kind: str
  found: Mapping[str, Sample]
  higher: bool = False
  margin: float = 0.0
  guess: float | None = None
  steps: tuple[int, int] | None = None
  seen: bool = False

  def doubt(self, kind: str) -> str:
    """Returns why it decides nothing about a claim of a kind, or ''."""
    if kind != self.kind:
      return f'{self.kind} does not speak for {kind}'
    if self.seen:
      return _SEEN
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

  def finding(self, kind: str) -> Finding:
    source = SOURCES[self.source]()
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


def printed(source: str, of: str) -> list[Compared]:
  """The counts of all models are as printed, rounded to a million."""

  def one(model: str) -> Compared:
    def holds(source: Source) -> Finding:
      ours, theirs = (source.found[f'{model}{x}'].mean for x in ('', _PRINTED))
      reason = f'{ours:.1f} instead of {theirs:.0f}'
      return Finding(round(abs(ours - theirs), 1) <= 0.5, reason)

    return Compared(source, model, [model], holds)

  return [one(model) for model in tables.section('counts', of)]


# The sources, by the labels of the inventory.


def _sample(numbers: Sequence[float]) -> Sample:
  mean, *spread = numbers
  return Sample(mean, spread[0] if spread else 0.0, _SEEDS)


def _part(
  kind: str,
  letter: str,
  task: str = '',
  planned: int = 0,
  guess: float | None = None,
  seen: bool = False,
) -> Callable[[], Source]:
  """Returns how to read a part of benchmarks.claims in one of its tasks."""

  def read() -> Source:
    rows = tables.part(letter, task)
    found = {model: _sample(tables.seeds(row)) for model, row in rows.items()}
    taken = min(row['steps'] for row in rows.values())
    return Source(
      kind, found, guess=guess, seen=seen, steps=(taken, planned or taken)
    )

  return read


def _speeds() -> Source:
  found = {
    model: Sample(row['speed'][0])
    for model, row in tables.section('claims_e', 'model').items()
  }
  return Source('speed', found, higher=True, margin=_SPEEDS_DIFFER)


def _windows() -> Source:
  shares = tables.shares('n')
  found = {f'R, {step} steps': _sample(share) for step, share in shares.items()}
  return Source('local windows', found, higher=True, steps=(120, 2000))


def _compiled() -> Source:
  rows = tables.section('tpu', 'pretrain_c4')
  return Source('FLOPs', {m: Sample(row['gflop']) for m, row in rows.items()})


def _counted() -> Source:
  rows = tables.section('counts', 'c4')
  return Source(
    'FLOPs', {m: Sample(row['products']) for m, row in rows.items()}
  )


def _parameters(of: str) -> Callable[[], Source]:
  def read() -> Source:
    rows = tables.section('counts', of)
    found = {model: Sample(row['trained']) for model, row in rows.items()}
    for model, row in rows.items():
      found[f'{model}{_PRINTED}'] = Sample(row['printed'])
    return Source('parameters', found)

  return read


_PAIRS = 'pairs of tokens'
_SPANS = 'span corruption'
_CROSSED = 'cross-attention'
_CLASSES = 'classification'
SOURCES: Mapping[str, Callable[[], Source]] = {
  'b': _part(_PAIRS, 'b', planned=1500, guess=0.487),
  'c': _part(_SPANS, 'c', planned=400),
  'e': _speeds,
  'f': _part(_SPANS, 'f', planned=400),
  'g, copy': _part(_CROSSED, 'g', 'copy', 600),
  'g, span': _part(_CROSSED, 'g', 'span', 600),
  'g, wmt14': _part(_CROSSED, 'g', 'wmt14', 600),
  'h, pair': _part(_PAIRS, 'h', 'pair', 1500, 0.770, seen=True),
  'h, single': _part('single sentences', 'h', 'single', 1500, 1.386, seen=True),
  'i, pair': _part(_PAIRS, 'i', 'pair', 1500, 0.770, seen=True),
  'j': _part('recall', 'j', planned=2000, guess=0.675, seen=True),
  'k': _part('translation', 'k', planned=600),
  'l, ag_news': _part(_CLASSES, 'l', 'ag_news', 300, 1.386),
  'l, imdb': _part(_CLASSES, 'l', 'imdb', 300, 0.693),
  'm': _part('dialogue', 'm', planned=600),
  'n': _windows,
  'p': _part('translation', 'p', planned=400),
  'compiled': _compiled,
  'counted': _counted,
  'counted, translation': _parameters('translation'),
  'counted, lm1b': _parameters('lm1b'),
}


# The claims.


class Rule(NamedTuple):
  """What a claim says: comparisons by sources of its kind."""

  kind: str
  compared: Sequence[Compared]


RULES: Mapping[str, Rule] = {
  'Numbers of parameters in translation': Rule(
    'parameters', printed('counted, translation', 'translation')
  ),
  'Numbers of parameters of language models': Rule(
    'parameters', printed('counted, lm1b', 'lm1b')
  ),
  'A fixed random alignment already learns the task, behind V': Rule(
    'translation', ahead('p', 'V', 'Fix')
  ),
  'R alone is close to V': Rule('translation', like('p', 'V', 'R')),
  'FR is as good as R': Rule('translation', no_worse('p', 'FR', 'R')),
  'D and FD are close to V': Rule('translation', like('p', 'V', 'D', 'FD')),
  'R+V is the best in translation': Rule(
    'translation', ahead('p', 'R+V', 'V', 'D+V')
  ),
  'R+D is as good as V in En-De': Rule(
    'translation', no_worse('p', 'R+D', 'V')
  ),
  'Dialogue: R and D beat V, which hurts mixtures': Rule(
    'dialogue',
    [*ahead('m', 'R', 'V', 'D+V'), *ahead('m', 'D', 'V', 'D+V')],
  ),
  'D is the best in dialogue': Rule(
    'dialogue', ahead('m', 'D', 'R', 'V', 'D+V')
  ),
  'C4: mixtures with V, then V, then the rest': Rule(
    _SPANS,
    [
      *ahead('c', 'D+V', 'V'),
      *ahead('c', 'R+V', 'V'),
      *ahead('c', 'V', 'R', 'D', 'LightConv', 'DyConv'),
    ],
  ),
  'R takes the fewest FLOPs, and mixtures with V the most': Rule(
    'FLOPs',
    [
      *ahead('counted', 'R', 'V', 'D'),
      *ahead('counted', 'V', 'D', 'R+V', 'D+V'),
      *ahead('compiled', 'R', 'V', 'D'),
      *ahead('compiled', 'V', 'D', 'R+V', 'D+V'),
    ],
  ),
  'R takes fewer FLOPs than both convolutions': Rule(
    'FLOPs', ahead('counted', 'R', 'LightConv', 'DyConv')
  ),
  'R is faster than V, D and D+V are slower, R+V nearly as fast': Rule(
    'speed',
    [
      *ahead('e', 'R', 'V'),
      *ahead('e', 'V', 'D', 'D+V'),
      *like('e', 'V', 'R+V'),
    ],
  ),
  'R is some 60 % faster than DyConv': Rule(
    'speed', times('e', 'R', 'DyConv', 1.6)
  ),
  'R has a better perplexity than DyConv': Rule(
    _SPANS, ahead('c', 'R', 'DyConv')
  ),
  'R is as good as LightConv': Rule(_SPANS, no_worse('c', 'R', 'LightConv')),
  'R is faster than LightConv': Rule('speed', ahead('e', 'R', 'LightConv')),
  'R and D fail where the answer needs both sentences': Rule(
    _PAIRS,
    [
      *fails('b', 'R', 'D'),
      *learns('b', 'V'),
      *fails('h, pair', 'R', 'D'),
      *learns('h, pair', 'V'),
    ],
  ),
  'They do not fail on single sentences': Rule(
    'single sentences', learns('h, single', 'R', 'D', 'V')
  ),
  'Mixtures with V do not fail; R+V is the best': Rule(
    _PAIRS,
    [
      *learns('b', 'R+V', 'D+V'),
      *ahead('b', 'R+V', 'V'),
      *learns('h, pair', 'R+V'),
      *learns('i, pair', 'D+V'),
    ],
  ),
  'FR beats Linformer on encoders': Rule(
    _CLASSES,
    [
      *ahead('l, ag_news', 'FR', 'Linformer'),
      *ahead('l, imdb', 'FR', 'Linformer'),
    ],
  ),
  'FR is as fast as Linformer, FR+V slower': Rule(
    'speed',
    [*like('e', 'Linformer', 'FR'), *ahead('e', 'Linformer', 'FR+V')],
  ),
  'FR+V is the best encoder': Rule(
    _CLASSES, ahead('l, ag_news', 'FR+V', 'V', 'FR')
  ),
  'More heads help R': Rule(
    'translation', ahead('k', 'R, 16 heads', 'R, 2 heads')
  ),
  'Further functions gain little or nothing': Rule(
    'translation',
    like(
      'k',
      'D',
      *('Conv', 'CRC, 7', 'GLU'),
      *('CRC, 3', 'CRC, 5', 'Bottleneck', 'Bottleneck + CRC'),
    ),
  ),
  'Cross-attention cannot be replaced': Rule(
    _CROSSED,
    [
      compared
      for task in ('copy', 'span', 'wmt14')
      for compared in ahead(f'g, {task}', 'V', 'R', 'FR', 'D')
    ],
  ),
  'Frozen queries and keys recall in context, Fix does not': Rule(
    'recall', [*learns('j', 'V', 'frozen V'), *fails('j', 'Fix')]
  ),
  'Language models learn to look at local windows': Rule(
    'local windows', ahead('n', 'R, 120 steps', 'R, 0 steps', 'V, 120 steps')
  ),
}


def verdict(claim: str) -> str:
  """Returns the text of the verdict on a claim that has a rule."""
  rule = RULES[claim]
  found = [(one, one.finding(rule.kind)) for one in rule.compared]
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


def written(document: str) -> str:
  """Returns the document with the verdicts of claims that have a rule."""

  def line(match: re.Match[str]) -> str:
    cells = [cell.strip() for cell in match[0].split('|')]
    if len(cells) != 7 or cells[2] not in RULES:
      return match[0]
    others, _, _ = match[0].rsplit('|', 2)
    return f'{others}| {verdict(cells[2])} |'

  return re.sub(r'^\|.*\|$', line, document, flags=re.M)


if __name__ == '__main__':
  tables.DOCUMENT.write_text(written(tables.DOCUMENT.read_text()))
