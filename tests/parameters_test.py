"""Parameter counts of the built layers against the paper's Table 1."""

import numpy as np
import pytest

from tests import family, harness

HEADS, D_KV, N = family.HEADS, family.D_KV, family.MAX_LENGTH
D = HEADS * D_KV  # d_model, too, here

# Table 1 counts the parameters that make the logits of one head. With heads of
# d / heads channels, the layer also has d^2 for its d^2, but heads N^2 for N^2.
TABLE_1 = {
  'vanilla': 2 * D**2,
  'random': HEADS * N**2,
  'factorized_random': HEADS * 2 * N * 4,
  'dense': D**2 + D * N,
  'factorized_dense': D**2 + D * (3 + 7),
}


@pytest.mark.parametrize('name', TABLE_1)
def test_table_1(name):
  found = harness.variables(family.VARIANTS[name], harness.draw('x', [2, 7, D]))
  assert found.pop('v') == found.pop('o') == (D, D)
  assert sum(int(np.prod(s)) for s in found.values()) == TABLE_1[name]
