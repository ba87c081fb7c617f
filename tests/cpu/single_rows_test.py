"""Products of a single row, against formulas; and how they are computed."""

import mesh_tensorflow as mtf
import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.core import kernels
from synth_mtf.cpu import products, single_rows
from tests import harness
from tests.core import cases
from tests.core.cases import (
  BATCH,
  HEADS,
  LOGITS,
  ONE_QUERY,
  SIZES,
  VALUES,
  Case,
  X,
  dims,
  floats,
)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
  monkeypatch.setattr(single_rows, '_PIECE', 4)


def multiplied(x_names, w_names):
  """A product of a single row; what comes before `one` is a matrix's number."""
  x, w = x_names.split(), w_names.split()
  each = [d for d in x[: x.index('one')] if d in w]
  y = [*each, 'one', *(d for d in w if d not in x)]
  letters = {d: chr(ord('a') + i) for i, d in enumerate(SIZES)}
  x_, w_, y_ = (''.join(letters[d] for d in names) for names in (x, w, y))

  def kernel(x, w):
    return products.faster(
      lambda: mtf.einsum([x, w], mtf.Shape(dims(' '.join(y)))), x.mesh
    )

  return Case(
    kernel,
    lambda x, w: np.einsum(f'{x_},{w_}->{y_}', x, w),
    {'x': (x_names, None), 'w': (w_names, None)},
    ' '.join(y),
    tuple(sorted({*x, *w} - {'one'})),
  )


CASES = {
  'product of one query and keys': Case(
    lambda q, k: kernels.product(q, k, mtf.Shape(dims(ONE_QUERY))),
    lambda q, k: np.einsum('bhd,bjhd->bhj', q, k),
    {'q': ('batch heads d_kv', None), 'k': (VALUES, None)},
    ONE_QUERY,
    ('batch', 'memory_length', 'heads', 'd_kv'),
  ),
  'product of one row for all examples': Case(
    lambda w, v: kernels.product(w, v, mtf.Shape(dims('batch heads d_kv'))),
    lambda w, v: np.einsum('hj,bjhd->bhd', w, v),
    {'w': ('heads memory_length', None), 'v': (VALUES, None)},
    'batch heads d_kv',
    ('batch', 'memory_length', 'heads', 'd_kv'),
  ),
  'product of all queries and keys': Case(
    lambda q, k: kernels.product(q, k, mtf.Shape(dims(LOGITS))),
    lambda q, k: np.einsum('bihd,bjhd->bhij', q, k),
    {'q': (X, None), 'k': (VALUES, None)},
    LOGITS,
    ('batch', 'memory_length', 'heads', 'd_kv'),
  ),
  'pieces of a matrix': multiplied('one length', 'length memory_length'),
  'pieces of a matrix that sums over two': multiplied(
    'one heads d_kv', 'heads d_kv length'
  ),
  'pieces of a matrix by its columns': multiplied(
    'one length', 'memory_length length'
  ),
  'pieces, one for each head': multiplied(
    'batch heads one d_kv', 'batch heads memory_length d_kv'
  ),
  'pieces, one for each head, by rows': multiplied(
    'batch heads one memory_length', 'batch heads memory_length d_kv'
  ),
}


@cases.everywhere(CASES)
def test_it_is_the_formula(case, mesh):
  cases.check(case, mesh)


@pytest.mark.parametrize(
  'mesh', [harness.ONE_DEVICE, harness.TPU], ids=['cpu', 'tpu']
)
def test_one_row_is_multiplied_as_a_matrix_off_a_tpu(mesh):
  """On a TPU as by the host, whose product of numbers is as large as keys."""
  with harness.new_graph(mesh) as (graph, mesh_object):
    q, k = (
      harness.constant(mesh_object, floats(names, names), names)
      for names in ('batch heads d_kv', VALUES)
    )
    y = kernels.product(q, k, mtf.Shape(dims(ONE_QUERY)))
    parallel = mesh.implementation()
    mtf.Lowering(graph, {mesh_object: parallel}).export_to_tf_tensor(y)
    kinds = {op.type for op in tf.get_default_graph().get_operations()}
  assert ('Mul' in kinds) == mesh.tpu
  assert ('Einsum' in kinds) != mesh.tpu


def operations(x_names, w_names, y_names, mesh=harness.ONE_DEVICE):
  """How often TensorFlow multiplies x with w, by its kinds of products."""
  with harness.new_graph(mesh) as (graph, mesh_object):
    x, w = (
      harness.constant(mesh_object, floats(names, names), names)
      for names in (x_names, w_names)
    )
    y = products.faster(
      lambda: mtf.einsum([x, w], mtf.Shape(dims(y_names))), mesh_object
    )
    parallel = mesh.implementation()
    mtf.Lowering(graph, {mesh_object: parallel}).export_to_tf_tensor(y)
    kinds = [op.type for op in tf.get_default_graph().get_operations()]
  return {kind: kinds.count(kind) for kind in ('MatMul', 'Einsum')}


@pytest.mark.parametrize(
  'x, w, y, pieces',
  [
    # 6 rows of 8 numbers: 12 pieces of 4 are more than there are rows.
    ('one length', 'length memory_length', 'one memory_length', 6),
    ('one row', 'row heads', 'one heads', 3),
    ('one length', 'memory_length length', 'one memory_length', 1),
    (
      'batch heads one d_kv',
      'batch heads memory_length d_kv',
      'batch heads one memory_length',
      BATCH * HEADS,
    ),
  ],
)
def test_a_single_row_is_multiplied_in_pieces_off_a_tpu(x, w, y, pieces):
  assert operations(x, w, y) == {'MatMul': pieces, 'Einsum': 0}
  assert operations(x, w, y, harness.TPU) == {'MatMul': 0, 'Einsum': 1}


def test_a_gpu_is_left_the_whole_product(monkeypatch):
  product = ('one length', 'length memory_length', 'one memory_length')
  assert operations(*product)['Einsum'] == 0
  monkeypatch.setattr(
    tf.config, 'list_physical_devices', lambda kind: ['/GPU:0']
  )
  assert operations(*product) == {'MatMul': 0, 'Einsum': 1}


@pytest.mark.parametrize(
  'x, w, y',
  [
    ('batch row', 'row heads', 'batch heads'),
    ('one heads row', 'row heads length', 'one heads length'),
    ('one row heads', 'heads row length', 'one length'),
    ('one row heads', 'row heads length', 'one length heads'),
    ('one length', 'length d_kv memory_length', 'one memory_length d_kv'),
  ],
  ids=['two rows', 'order of W', 'order of the sum', 'rows', 'order of Y'],
)
def test_another_product_stays_as_it_is(x, w, y):
  assert operations(x, w, y) == {'MatMul': 0, 'Einsum': 1}


@pytest.mark.parametrize('piece, most', [(2**17, 8), (4, 7)])
def test_neither_a_small_matrix_nor_many_are_cut(monkeypatch, piece, most):
  monkeypatch.setattr(single_rows, '_PIECE', piece)
  monkeypatch.setattr(single_rows, '_MAX_PIECES', most)
  heads = ('batch heads one d_kv', 'batch heads memory_length d_kv')
  assert operations(*heads, 'batch heads one memory_length') == {
    'MatMul': 8 if most == 8 else 0,
    'Einsum': 0 if most == 8 else 1,
  }
  assert operations(
    'one length', 'length memory_length', 'one memory_length'
  ) == {'MatMul': 0 if piece > 4 else 6, 'Einsum': 1 if piece > 4 else 0}
