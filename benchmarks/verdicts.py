"""Verdicts on the claims of the paper, from benchmarks/results.

    python -m benchmarks.verdicts

writes the last column of the inventory in docs/results.md, which also has the
rule in words.
"""

import re
from collections.abc import Callable, Mapping, Sequence

from benchmarks import rule, tables
from benchmarks.rule import (
  Compared,
  Finding,
  Rule,
  Sample,
  Source,
  ahead,
  fails,
  learns,
  like,
  no_worse,
  times,
)

_SPEEDS_DIFFER = 0.05  # as a share of the slower one
_SEEDS = 3
_PRINTED = ', printed'  # after the name of a model


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
) -> Callable[[], Source]:
  """Returns how to read a part of benchmarks.claims in one of its tasks."""

  def read() -> Source:
    rows = tables.part(letter, task)
    found = {model: _sample(tables.seeds(row)) for model, row in rows.items()}
    taken = min((row['steps'] for row in rows.values()), default=planned)
    return Source(kind, found, guess=guess, steps=(taken, planned))

  return read


def _speeds() -> Source:
  found = {
    model: Sample(row['speed'][0])
    for model, row in tables.section('claims_e', 'model').items()
  }
  return Source('speed', found, higher=True, margin=_SPEEDS_DIFFER)


def _speeds_of_encoders() -> Source:
  v = 'vanilla, fast_cpu'
  found = {
    model.removesuffix(', fast_cpu'): Sample(row['over'][v])
    for model, row in tables.section('speed_of_encoders', 'model').items()
  }
  return Source('speed', found, higher=True, margin=_SPEEDS_DIFFER)


def _windows() -> Source:
  found = {}
  for model, row in tables.part('n').items():
    found[f'untrained {model}'] = _sample(tables.seeds(row, 'share_at_first'))
    found[model] = _sample(tables.seeds(row, 'share'))
  return Source('local windows', found, higher=True)


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
_SINGLE = 'single sentences'
_SPANS = 'span corruption'
_CROSSED = 'cross-attention'
_CLASSES = 'classification'
SOURCES: Mapping[str, Callable[[], Source]] = {
  'b': _part(_PAIRS, 'b', planned=1500, guess=0.487),
  'c': _part(_SPANS, 'c', planned=400),
  'e': _speeds,
  'e, encoders': _speeds_of_encoders,
  'f': _part(_SPANS, 'f', planned=400),
  'g, copy': _part(_CROSSED, 'g', 'copy', 600),
  'g, span': _part(_CROSSED, 'g', 'span', 600),
  'g, wmt14': _part(_CROSSED, 'g', 'wmt14', 600),
  'h, pair': _part(_PAIRS, 'h', 'pair', 1500, 0.770),
  'h, single': _part(_SINGLE, 'h', 'single', 1500, 1.386),
  'i, pair': _part(_PAIRS, 'i', 'pair', 1500, 0.770),
  'i, single': _part(_SINGLE, 'i', 'single', 1500, 1.386),
  'j': _part('recall', 'j', planned=2000, guess=0.675),
  'k': _part('translation', 'k', planned=600),
  'l, ag_news': _part(_CLASSES, 'l', 'ag_news', 100, 1.386),
  'l, imdb': _part(_CLASSES, 'l', 'imdb', 100, 0.693),
  'm': _part('dialogue', 'm', planned=600),
  'n': _windows,
  'p': _part('translation', 'p', planned=400),
  'q': _part('language modelling', 'q', planned=400),
  'r': _part('summaries', 'r', planned=400),
  'compiled': _compiled,
  'counted': _counted,
  'counted, translation': _parameters('translation'),
  'counted, lm1b': _parameters('lm1b'),
}


def printed(source: str, of: str) -> list[Compared]:
  """The counts of all models are as printed, rounded to a million."""

  def one(model: str) -> Compared:
    def holds(source: Source) -> Finding:
      ours, theirs = (source.found[f'{model}{x}'].mean for x in ('', _PRINTED))
      reason = f'{ours:.1f} instead of {theirs:.0f}'
      return Finding(round(abs(ours - theirs), 1) <= 0.5, reason)

    return Compared(source, model, [model], holds)

  return [one(model) for model in tables.section('counts', of)]


# The claims.


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
  'D+V is the best language model, R is close to V, Fix is not': Rule(
    'language modelling',
    [
      *ahead('q', 'D+V', 'V', 'R', 'D', 'R+V'),
      *like('q', 'V', 'R'),
      *ahead('q', 'V', 'Fix'),
    ],
  ),
  'Summaries: D+V is the best, R and D are behind V': Rule(
    'summaries',
    [*ahead('r', 'D+V', 'V', 'R+V'), *ahead('r', 'V', 'R', 'D')],
  ),
  'R+D beats V in summaries': Rule('summaries', ahead('r', 'R+D', 'V')),
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
      *fails('i, pair', 'R', 'D'),
      *learns('i, pair', 'V'),
    ],
  ),
  'They do not fail on single sentences': Rule(
    _SINGLE,
    [
      *learns('h, single', 'R', 'D', 'V'),
      *learns('i, single', 'R', 'D', 'V'),
    ],
  ),
  'Mixtures with V do not fail; R+V is the best': Rule(
    _PAIRS,
    [
      *learns('b', 'R+V', 'D+V'),
      *ahead('b', 'R+V', 'V'),
      *learns('h, pair', 'R+V', 'D+V'),
      *learns('i, pair', 'R+V', 'D+V'),
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
    [
      *like('e, encoders', 'Linformer', 'FR'),
      *ahead('e, encoders', 'Linformer', 'FR+V'),
    ],
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
    'local windows',
    [*ahead('n', 'R', 'untrained R'), *ahead('n', 'V', 'untrained V')],
  ),
}


def verdict(claim: str) -> str:
  """Returns the text of the verdict on a claim that has a rule."""
  return rule.verdict(RULES[claim], SOURCES)


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
