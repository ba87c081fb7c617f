"""The inventory of claims in docs/results.md: every number has its source.

Printed numbers come from the published tables, ours from benchmarks/results.
A cell names what its numbers are: `En-De: R 27.27, V 27.67` or, for ours,
`c: R 4.612 ± 0.005`, where c is a part of benchmarks.claims; `h, single:` is a
part and a word in the name of its task, `n, 0 steps:` a part and a step.
"""

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from benchmarks import tables
from synth_mtf.results import paper
from tests.checkout import CHECKOUT

_MODEL = r'(?:frozen )?[A-Z][\w+ ()]*?(?:, \d+(?: heads)?)?'
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


def _claims() -> list[Claim]:
  text = (CHECKOUT / 'docs' / 'results.md').read_text()
  section = text.partition('## The inventory of claims')[2]
  section = section.partition('\n## ')[0]
  lines = [line for line in section.splitlines() if line.startswith('|')]
  return [
    Claim(*(cell.strip() for cell in line.strip('|').split('|')))
    for line in lines[2:]
  ]


CLAIMS = _claims()


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
    and model in (row.about['row'], row.about['functions'])
  ]
  assert found, f'{claim.where} has no {column} of {model}'
  return found[0]


def _ours(label: str, model: str) -> str:
  """Returns a number as it is formatted from benchmarks/results."""
  part, _, of = label.partition(', ')
  if part == 'e':
    return str(tables.entries('claims_e.model')[model]['x'])
  path = tables.HERE / 'results' / f'claims_{part}.json'
  rows = json.loads(path.read_text())['rows']
  (value,) = (
    row['value']
    for row in rows
    if row['model'] == model and (not of or of in row['task'])
  )
  return ' ± '.join(f'{x:.3f}' for x in value)


def _digits(text: str) -> str:
  """Returns what is left of a text without what has been checked."""
  return re.sub(r'\d+ (heads|seeds|steps)|[RF]\d', '', text)


@pytest.mark.parametrize('claim', CLAIMS, ids=lambda claim: claim.claim[:40])
def test_printed_numbers_are_published(claim):
  rest = claim.printed
  for label, text in _labelled(claim.printed):
    for one, other, number in _RATIO.findall(text):
      ratio = _printed(claim, label, one) / _printed(claim, label, other)
      assert f'{ratio:.2f}' == number, (label, one, other)
    text = _RATIO.sub('', text)
    for model, number in _ENTRY.findall(text):
      places = len(number.partition('.')[2])
      expected = f'{_printed(claim, label, model):.{places}f}'
      assert expected == number, (label, model)
    rest = rest.replace(label, '')
  rest = _ENTRY.sub('', _RATIO.sub('', rest))
  assert not re.search(r'\d', rest), f'without a source: {rest}'


@pytest.mark.parametrize('claim', CLAIMS, ids=lambda claim: claim.claim[:40])
def test_our_numbers_are_measured(claim):
  rest = claim.ours
  for label, text in _labelled(claim.ours):
    for one, other, number in _RATIO.findall(text):
      ratio = float(_ours(label, one)) / float(_ours(label, other))
      assert f'{ratio:.2f}' == number, (label, one, other)
    text = _RATIO.sub('', text)
    for model, number in _ENTRY.findall(text):
      assert _ours(label, model) == number, (label, model)
    rest = rest.replace(label, '')
  rest = _digits(_ENTRY.sub('', _RATIO.sub('', rest)))
  assert not re.search(r'\d', rest), f'without a source: {rest}'


@pytest.mark.parametrize('claim', CLAIMS, ids=lambda claim: claim.claim[:40])
def test_each_claim_has_a_verdict(claim):
  assert re.match(
    'holds|does not hold|in part|not decided|not re-made: ', claim.verdict
  )
  assert claim.ours or claim.verdict.startswith(('not re-made: ', 'holds'))
