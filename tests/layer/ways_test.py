"""Every way to the weighted sum gives the same result, whatever the tiles."""

import numpy as np
import pytest

from synth_mtf.cpu import tiles
from synth_mtf.layer import weighted_sum
from tests import checks, family, harness
from tests.family import PACKED, PADDED
from tests.harness import DECODER, ENCODER


@pytest.fixture(params=['one query', 'some queries', 'step by step'])
def way(request, monkeypatch):
  """Tiles of a query or of part of a head, or the way of TPUs and meshes."""
  if request.param == 'step by step':
    monkeypatch.setattr(weighted_sum, 'can_attend', lambda call, values: False)
  else:
    entries = 1 if request.param == 'one query' else 3 * 14
    monkeypatch.setattr(tiles, '_TILE', entries)


@pytest.mark.slow  # the whole family in each way
@pytest.mark.usefixtures('way')
@pytest.mark.parametrize(
  'rows, stack',
  [(PADDED, ENCODER), (PACKED, DECODER)],
  ids=['encoder', 'decoder, packed'],
)
@family.every(family.ALL)
def test_each_way_is_the_reference(member, rows, stack):
  checks.parallel(member, rows, stack)


@pytest.mark.slow  # of a size of its own
@pytest.mark.parametrize(
  'name, has_table',
  [
    ('vanilla', False),
    ('factorized_random', False),
    ('factorized_random_vanilla', False),
    ('dense', False),
    ('random', True),
    ('random_vanilla', True),
  ],
)
def test_only_a_table_is_as_large_as_the_alignment(
  monkeypatch, name, has_table
):
  length = 30
  monkeypatch.setattr(tiles, '_TILE', 3 * 2 * length)
  monkeypatch.setattr(tiles, '_MOST_TILES', length**2)
  result = harness.parallel(
    family.ALL[name].of_size(max_length=length).but(key_value_size=1),
    harness.draw('x', [2, length, 4]),
    np.ones([2, length], int),
    DECODER,
  )
  # A window has no static size; it is no larger than its tile.
  largest = max(np.prod(shape, dtype=int) for _, shape in result.shapes)
  alignment = family.HEADS * length**2
  # Masks have no heads, but are as large as that otherwise.
  assert largest == alignment if has_table else largest < alignment
