"""The inventory of claims in docs/results.md: every number has its source.

Printed numbers come from the published tables, ours from benchmarks/results.
A cell names what its numbers are: `En-De: R 27.27, V 27.67` or, for ours,
`c: R 4.612 ± 0.005`, where c is one of `benchmarks.verdicts.SOURCES`.
"""

import re
import statistics
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from benchmarks import tables, verdicts
from synth_mtf.results import paper
from tests.checkout import CHECKOUT

_MODEL = r'(?:frozen |untrained )?[A-Z][\w+ ()]*?(?:, \d+(?: heads)?)?'
_NUMBER = r'-?\d+\.\d+(?: ± \d+\.\d+)?'
_ENTRY = re.compile(rf'({_MODEL}|\d+ heads) ({_NUMBER})')
_RATIO = re.compile(rf'({_MODEL}) / ({_MODEL}) ({_NUMBER})')


class Claim(NamedTuple):
  """A row of the inventory."""

  where: str  # 'Table 4' or 'v1, Table 6'
  claim: str
  printed: str
  ours: str
  verdict: str

  @property
  def table(self) -> tuple[str, str]:
    """The version and number of the published table."""
    version, _, number = self.where.rpartition('Table ')
    return version.strip(', ') or 'v3', number


def _rows(number: int) -> list[list[str]]:
  """Returns the rows of one of the section's tables, without its header."""
  text = (CHECKOUT / 'docs' / 'results.md').read_text()
  section = text.partition('## The inventory of claims')[2]
  section = section.partition('\n## ')[0]
  table = re.findall(r'(?:^\|.*\n)+', section, re.M)[number]
  return [
    [cell.strip() for cell in line.strip('|').split('|')]
    for line in table.splitlines()[2:]
  ]


PARTS = _rows(0)
CLAIMS = [Claim(*cells) for cells in _rows(1)]


def _labelled(cell: str) -> Iterator[tuple[str, str]]:
  """Yields the label of each part of a cell, and its text."""
  for part in cell.split('; '):
    label, colon, text = part.partition(': ')
    if colon:
      yield label, text


def _printed(claim: Claim, column: str, model: str) -> float:
  """Returns a published number: of a row, or of its functions."""
  if heads := re.fullmatch(r'(\d+) heads', model):
    model = f'Syn ={heads[1]}'
  found = [
    row.numbers[column]
    for row in paper.ROWS
    if (row.about['version'], row.about['table']) == claim.table
    and column in row.numbers
    and model in (row.about['row'], _functions(row))
  ]
  assert found, f'{claim.where} has no {column} of {model}'
  return found[0]


def _functions(row: paper.Row) -> str:
  """Returns the functions of a row, also if their width is not printed."""
  return (row.about['functions'] or '').partition(', of a width')[0]


def _ours(label: str, model: str, places: int) -> str:
  """Returns a number as it is formatted from benchmarks/results."""
  mean, spread, _ = verdicts.SOURCES[label]().found[model]
  numbers = [mean, spread] if spread else [mean]
  return ' ± '.join(f'{x:.{places}f}' for x in numbers)


def _places(number: str) -> int:
  return len(number.partition(' ')[0].partition('.')[2])


def _digits(text: str) -> str:
  """Returns what is left of a text without what has been checked."""
  return re.sub(r'\d+ (heads|seeds)|[RF]\d', '', text)


@pytest.mark.parametrize('claim', CLAIMS, ids=lambda claim: claim.claim[:40])
def test_printed_numbers_are_published(claim):
  rest = claim.printed
  for label, text in _labelled(claim.printed):
    for one, other, number in _RATIO.findall(text):
      ratio = _printed(claim, label, one) / _printed(claim, label, other)
      assert f'{ratio:.2f}' == number, (label, one, other)
    text = _RATIO.sub('', text)
    for model, number in _ENTRY.findall(text):
      expected = f'{_printed(claim, label, model):.{_places(number)}f}'
      assert expected == number, (label, model)
    rest = rest.replace(label, '')
  rest = _ENTRY.sub('', _RATIO.sub('', rest))
  assert not re.search(r'\d', rest), f'without a source: {rest}'


@pytest.mark.parametrize('claim', CLAIMS, ids=lambda claim: claim.claim[:40])
def test_our_numbers_are_measured(claim):
  rest = claim.ours
  for label, text in _labelled(claim.ours):
    for one, other, number in _RATIO.findall(text):
      ratio = float(_ours(label, one, 2)) / float(_ours(label, other, 2))
      assert f'{ratio:.2f}' == number, (label, one, other)
    text = _RATIO.sub('', text)
    for model, number in _ENTRY.findall(text):
      assert _ours(label, model, _places(number)) == number, (label, model)
    rest = rest.replace(label, '')
  rest = _digits(_ENTRY.sub('', _RATIO.sub('', rest)))
  assert not re.search(r'\d', rest), f'without a source: {rest}'


@pytest.mark.parametrize('claim', CLAIMS, ids=lambda claim: claim.claim[:40])
def test_verdicts_follow_from_the_rule(claim):
  if claim.ours:
    assert claim.verdict == verdicts.verdict(claim.claim)
  else:
    assert re.match('not tried: .{20}', claim.verdict)


@pytest.mark.parametrize('claim', CLAIMS, ids=lambda claim: claim.claim[:40])
def test_all_that_a_verdict_compares_is_shown(claim):
  """But for models that nobody measured, and for whole columns."""
  if not claim.ours or claim.printed == 'as printed':
    return
  shown = {
    (label, model)
    for label, text in _labelled(claim.ours)
    for found in (_ENTRY.findall(text), _RATIO.findall(text))
    for models in found
    for model in models[:-1]
  }
  for one in verdicts.RULES[claim.claim].compared:
    for model in one.models:
      if model in verdicts.SOURCES[one.source]().found:
        assert (one.source, model) in shown, model


def test_every_rule_is_for_a_claim():
  assert {*verdicts.RULES} == {claim.claim for claim in CLAIMS if claim.ours}


@pytest.mark.parametrize('label, _figure, _model, steps, seeds', PARTS)
def test_parts_have_their_steps_and_seeds(label, _figure, _model, steps, seeds):
  if not steps:
    assert label.startswith(('e', 'compiled', 'counted'))
    return
  part, _, of = label.partition(', ')
  rows = [*tables.rows(part, of)]
  assert rows
  for row in rows:
    assert row['steps'] == int(steps.replace(',', '')), row['model']
    assert len(row['seeds']) == int(seeds)


def test_every_label_is_explained():
  known = {label for label, *_ in PARTS}
  for claim in CLAIMS:
    for label, _ in _labelled(claim.ours):
      assert label in known


@pytest.mark.parametrize('part', 'abcfghijklmnpqr')
def test_means_are_those_of_the_seeds(part):
  for row in tables.rows(part):
    for key in row.keys() & {'value', 'share', 'share_at_first'}:
      of_seeds = [*row[f'{key}_of_seeds'].values()]
      assert len(of_seeds) == len(row['seeds'])
      found = [statistics.fmean(of_seeds), statistics.stdev(of_seeds)]
      assert row[key] == pytest.approx(found, abs=1e-4)
