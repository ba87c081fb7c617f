"""The ways to a weighted sum agree, whatever the tiles."""

import numpy as np
import pytest

from synth_mtf.cpu import tiles
from synth_mtf.layer import weighted_sum
from tests import checks, family, harness
from tests.harness import DECODER, ENCODER

PADDED = np.array([[1] * 7, [1, 1, 1, 1, 0, 0, 0]])
PACKED = np.array([[1, 1, 1, 2, 2, 3, 3], [1, 1, 2, 2, 2, 2, 0]])
ROWS = {
  'encoder': (PADDED, ENCODER, False),
  'decoder, packed': (PACKED, DECODER, True),
}


@pytest.fixture(params=['one query', 'some queries', 'step by step'])
def way(request, monkeypatch):
  """Tiles of a query or of a part of a head, or the way of TPUs and meshes."""
  if request.param == 'step by step':
    monkeypatch.setattr(weighted_sum, 'can_attend', lambda call, values: False)
  else:
    entries = 1 if request.param == 'one query' else 3 * PADDED.size
    monkeypatch.setattr(tiles, '_TILE', entries)


@pytest.mark.slow  # the whole family, in each way
@pytest.mark.usefixtures('way')
@pytest.mark.parametrize('rows', ROWS)
@family.each()
def test_each_way_is_the_reference(name, rows):
  ids, stack, packed = ROWS[rows]
  member = family.ALL[name]
  checks.parallel(
    member.maker(packed=packed),
    member.reference(),
    ids,
    stack,
    tolerance=member.tolerance,
  )


@pytest.mark.slow  # in a size of its own
@pytest.mark.parametrize(
  'name, table',
  [
    ('vanilla', False),
    ('factorized_random', False),
    ('factorized_random_vanilla', False),
    ('dense', False),
    ('random', True),
    ('random_vanilla', True),
  ],
)
def test_nothing_but_a_table_is_as_large_as_the_alignment(
  monkeypatch, name, table
):
  length = 30
  monkeypatch.setattr(tiles, '_TILE', 3 * 2 * length)
  monkeypatch.setattr(tiles, '_MOST_TILES', length**2)
  result = harness.parallel(
    family.ALL[name].of_size(max_length=length).maker(key_value_size=1),
    harness.draw('x', [2, length, 4]),
    np.ones([2, length], int),
    DECODER,
  )
  # A window has no size before the run; it is no larger than its tile.
  known = [shape for _, shape in result.shapes if None not in shape]
  largest = max(np.prod(shape, dtype=int) for shape in known)
  alignment = family.HEADS * length**2
  # Masks have no heads, but are as large as that otherwise.
  assert largest == alignment if table else largest < alignment
