"""Parameter counts of the built graph against the paper's Tables 1 and 2."""

import numpy as np
import pytest

from synth_mtf.host import gin_files
from synth_mtf.host import model as host_model
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


# Table 2, WMT: |theta| in millions of T2T base (6 + 6 layers, d 512, 8 heads,
# N 256).
TABLE_2 = {
  'vanilla': 67,
  'random': 67,
  'random_vanilla': 73,
  'factorized_random': 61,
  'fixed_random': 61,
}
T2T_BASE = (
  'd_model = 512',
  'd_ff = 2048',
  'num_layers = 6',
  'num_heads = 8',
  'd_kv = 64',
  'Unitransformer.max_length = 256',
)


@pytest.mark.slow  # builds whole models
def test_table_2():
  """Exactly; the paper's vocabulary and embeddings are not T5's."""
  counts = {}
  for name in TABLE_2:
    gin_files.parse(['sizes/small.gin', f'variants/{name}.gin'], T2T_BASE)
    graph = host_model.build(128).mtf_graph
    counts[name] = sum(v.shape.size for v in graph.trainable_variables)
  layers, d, heads, n, k = 12, 512, 8, 256, 8
  queries_and_keys, tables = layers * 2 * d**2, layers * heads * n**2
  more_than_fixed = {
    'vanilla': queries_and_keys,
    'random': tables,
    'random_vanilla': queries_and_keys + tables + layers * heads * 2,
    'factorized_random': layers * heads * 2 * n * k,
    'fixed_random': 0,
  }
  for name, expected in more_than_fixed.items():
    assert counts[name] - counts['fixed_random'] == expected, name
    found = (counts[name] - counts['vanilla']) / 1e6
    assert abs(found - (TABLE_2[name] - TABLE_2['vanilla'])) < 1, name
