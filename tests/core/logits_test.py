"""Logits as a sum, whatever its terms depend on."""

import numpy as np
import pytest

from synth_mtf.core import logits
from tests import harness
from tests.core import calls

SIZES = {
  'batch': calls.BATCH,
  'heads': calls.HEADS,
  'length': calls.LENGTH,
  'memory_length': calls.LENGTH,
  'd': 5,
  'e': 2,
}
# name: dimensions of tensors, or of the two factors of a product.
TERMS = {
  'table': ['heads length memory_length'],
  'bias': ['length memory_length'],
  'rows': ['batch heads length memory_length'],
  'keys': ['batch memory_length'],
  'scaled': ['heads length memory_length', 'heads'],
  'scaled rows': ['batch heads length memory_length', ''],
  'low rank': ['heads length d', 'heads memory_length d'],
  'pairs': ['batch length heads d', 'batch memory_length heads d'],
  'rows of a table': ['batch length heads e', 'heads memory_length e'],
}


def term(mesh, name):
  """A term of ones."""
  shapes = [[SIZES[d] for d in dims.split()] for dims in TERMS[name]]
  tensors = [
    harness.constant(mesh, np.ones(shape, np.float32), dims)
    for shape, dims in zip(shapes, TERMS[name], strict=True)
  ]
  if len(tensors) == 1:
    return tensors[0]
  if name.startswith('scaled'):
    return logits.Scaled(*tensors)
  query, key = tensors
  return logits.InnerProduct(query, key, query.shape.dims[-1])


@pytest.mark.parametrize(
  'names, shared, local, product, value',
  [
    ('table', 1, 0, None, 1),
    ('table, bias, low rank, scaled', 4, 0, None, 8),
    ('pairs', 0, 1, 5, 5),
    ('pairs, rows of a table', 0, 1, 7, 7),
    ('rows, keys, scaled rows', 0, 3, None, 3),
    ('table, rows, pairs, low rank, rows of a table', 2, 2, 7, 14),
  ],
)
def test_terms_are_parted_by_what_they_depend_on(
  names, shared, local, product, value
):
  def build(mesh):
    call = calls.make(mesh)
    found = logits.add(call, [term(mesh, name) for name in names.split(', ')])
    assert len(found.shared) == shared
    assert len(found.local) == local
    products = [t for t in found.local if isinstance(t, logits.InnerProduct)]
    assert [t.k.size for t in products] == [product] * bool(product)
    return logits.total(call, found)

  assert (harness.evaluate(build) == value).all()
