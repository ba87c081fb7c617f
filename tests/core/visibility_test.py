"""Which memory positions a query may see, split by what that depends on."""

import numpy as np
import pytest

from synth_mtf.core import visibility
from tests import harness
from tests.core import calls
from tests.harness import DECODER, ENCODER, LM

IDS = np.array([[1, 1, 2, 2], [1, 1, 2, 0]])
CAUSAL = np.tril(np.ones([4, 4]))
SAME = IDS[:, :, None] == IDS[:, None, :]
TOKENS = IDS > 0


@pytest.mark.parametrize(
  'ids, stack, packed, expected',
  [
    (None, ENCODER, True, (None, None, None)),
    (None, DECODER, True, (CAUSAL, None, None)),
    (None, LM, False, (CAUSAL, None, None)),
    (IDS, ENCODER, False, (None, TOKENS, TOKENS)),
    (IDS, DECODER, False, (CAUSAL, TOKENS, TOKENS)),
    (IDS, ENCODER, True, (SAME, None, None)),
    (IDS, DECODER, True, (SAME * CAUSAL, None, None)),
  ],
)
def test_what_is_visible(ids, stack, packed, expected):
  """The pairs, the keys, the queries; None hides nothing."""

  def build(mesh):
    seen = visibility.visibility(calls.make(mesh, ids, stack), packed)
    parts = seen.pairs, seen.keys, seen.queries
    assert [p is None for p in parts] == [e is None for e in expected]
    if seen.keys is not None and seen.queries is not None:
      assert seen.keys.shape.dims[-1].name == 'memory_length'
      assert seen.queries.shape.dims[-1].name == 'length'
    return [p for p in parts if p is not None]

  found = (
    harness.evaluate(build) if any(e is not None for e in expected) else []
  )
  for one, wanted in zip(found, [e for e in expected if e is not None]):
    np.testing.assert_array_equal(one, wanted)


def test_causality_is_computed_once_for_all_layers():
  with harness.new_graph() as (_, mesh):
    call = calls.make(mesh, IDS, DECODER)
    one, other = (visibility.visibility(call, False) for _ in range(2))
    assert one.pairs is other.pairs
