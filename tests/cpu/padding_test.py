"""Products of tokens and weights, against formulas; and what they leave out."""

import mesh_tensorflow as mtf
import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.cpu import padding
from tests import harness
from tests.core import cases
from tests.core.cases import BATCH, LENGTH, SIZES, Case, dims, floats

PADDED = np.array([[1, 1, 2, 0, 0, 0], [0, 1, 1, 1, 0, 3]])
ONE_IS_EMPTY = np.array([[0] * LENGTH, [1] * LENGTH])
ROWS = 'batch length'


class Context:
  """What `mask` asks of the host's Context."""

  mode = tf.estimator.ModeKeys.TRAIN
  model = None

  def __init__(self):
    self.cache = {}


def einsum(x, w, y_names, ids, weights_first=False):
  """X W by our products; `ids` has 0 at padding."""
  masks = padding.mask(Context(), ids, dims('length')[0])
  factors = [w, x] if weights_first else [x, w]
  return padding.einsum(masks, factors, mtf.Shape(dims(y_names)))


def product(x_names, w_names, y_names, ids=PADDED, weights_first=False):
  """A product of tokens, with 0 at padding as from the host, and weights."""
  x_names, y_names = f'{ROWS} {x_names}', f'{ROWS} {y_names}'
  multiply = cases.product(x_names, w_names, y_names)

  def kernel(x, w, ids):
    x *= mtf.cast(mtf.not_equal(ids, 0), tf.float32)
    return einsum(x, w, y_names, ids, weights_first)

  def formula(x, w, ids):
    tokens = (ids != 0).reshape([BATCH, LENGTH] + [1] * (x.ndim - 2))
    return multiply(x * tokens, w)

  return Case(
    kernel,
    formula,
    {'x': (x_names, None), 'w': (w_names, None), 'ids': (ROWS, ids)},
    y_names,
    tuple(sorted({*x_names.split(), *w_names.split()} - {'row'})),
  )


CASES = {
  'to heads': product('row', 'row heads d_kv', 'heads d_kv'),
  'from heads': product('heads d_kv', 'heads d_kv row', 'row'),
  'by transposed weights': product('heads d_kv', 'row heads d_kv', 'row'),
  'to a number': product('row', 'row', ''),
  'weights first': product('row', 'row heads', 'heads', weights_first=True),
  'nothing but tokens': product(
    'row', 'row heads', 'heads', np.ones_like(PADDED)
  ),
  'an example of padding': product('row', 'row heads', 'heads', ONE_IS_EMPTY),
  'no token': product('row', 'row heads', 'heads', 0 * PADDED),
}


@pytest.mark.sampled
@cases.everywhere(CASES)
def test_it_is_the_formula(case, mesh):
  cases.check(case, mesh)


def computed(ids, x, w, cotangent, mesh=harness.ONE_DEVICE):
  """A product and its gradients, [batch, length, 3], [3, 4] and so on."""

  def build(mesh_object):
    ids_, x_, w_, cotangent_ = (
      harness.constant(mesh_object, array, names)
      for array, names in (
        (ids, ROWS),
        (x, f'{ROWS} row'),
        (w, 'row heads'),
        (cotangent, f'{ROWS} heads'),
      )
    )
    y = einsum(x_, w_, f'{ROWS} heads', ids_)
    dx, dw = mtf.gradients([mtf.reduce_sum(y * cotangent_)], [x_, w_])
    return y, dx, dw

  return harness.evaluate(build, mesh)


def test_padding_is_not_multiplied():
  """Whatever there is; all three products would spread it."""
  tokens = (PADDED != 0)[..., np.newaxis]
  x, w, dy = map(floats, (f'{ROWS} row', 'row heads', f'{ROWS} heads'))
  expected = computed(PADDED, x * tokens, w, dy * tokens)
  nothing = np.where(tokens, 0, np.nan).astype(np.float32)
  found = computed(PADDED, x + nothing, w, dy + nothing)
  for one, other in zip(found, expected, strict=True):
    assert other.any()
    np.testing.assert_array_equal(one, other)


def test_it_is_multiplied_where_there_is_little(monkeypatch):
  """As the host does; then nothing is copied."""
  monkeypatch.setattr(padding, '_MOST_TOKENS', 6 / 12)
  x, w, dy = map(floats, (f'{ROWS} row', 'row heads', f'{ROWS} heads'))
  y, dx, dw = computed(PADDED, x, w, dy)
  assert (PADDED != 0).sum() == 7
  np.testing.assert_allclose(y, x @ w, atol=1e-6)
  np.testing.assert_allclose(dx, dy @ w.T, atol=1e-6)
  np.testing.assert_allclose(dw, np.einsum('bik,bim->km', x, dy), atol=1e-6)


def kinds(x_names, w_names, y_names, ids_names=ROWS, mesh=harness.ONE_DEVICE):
  """The kinds of TensorFlow's operations in a product."""
  with harness.new_graph(mesh) as (graph, mesh_object):
    x, w, ids = (
      harness.constant(mesh_object, floats(names, names), names)
      for names in (x_names, w_names, ids_names)
    )
    y = einsum(x, w, y_names, ids)
    parallel = mesh.implementation()
    mtf.Lowering(graph, {mesh_object: parallel}).export_to_tf_tensor(y)
    return {op.type for op in tf.get_default_graph().get_operations()}


@pytest.mark.parametrize(
  'x, w, y',
  [
    (f'{ROWS} row', 'heads', f'{ROWS} row heads'),
    (f'{ROWS} row', f'{ROWS} heads', f'{ROWS} row heads'),
    (f'{ROWS} row', f'row {ROWS}', 'batch length'),
    ('length batch row', 'row heads', f'{ROWS} heads'),
    (f'{ROWS} row heads', 'heads row d_kv', f'{ROWS} d_kv'),
    ('batch memory_length row', 'row heads', 'batch memory_length heads'),
    ('batch row', 'row heads', 'batch heads'),
  ],
  ids=[
    'nothing summed',
    'no weights',
    'weights of each',
    'order of tokens',
    'order of the sum',
    'another length',
    'one token',
  ],
)
def test_another_product_stays_as_it_is(x, w, y):
  assert 'ScatterNd' not in kinds(x, w, y)


PRODUCT = (f'{ROWS} row', 'row heads', f'{ROWS} heads')


def test_tokens_are_found_once_and_not_in_decoding():
  with harness.new_graph() as (_, mesh):
    context, (length,) = Context(), dims('length')
    ids = harness.constant(mesh, PADDED, ROWS)
    found = padding.mask(context, ids, length)
    assert found == padding.mask(context, ids, length)
    (as_memory,) = padding.mask(context, ids, mtf.Dimension('memory', LENGTH))
    assert as_memory.shape.dims[-1].name == 'memory'
    assert padding.mask(context, 1, length) == []
    assert padding.mask(context, None, length) == []
    context.mode = 'incremental'
    assert padding.mask(context, ids, length) == []


def test_each_is_multiplied_on_a_tpu():
  assert {'Where', 'ScatterNd'} <= kinds(*PRODUCT)
  assert not {'Where', 'ScatterNd'} & kinds(*PRODUCT, mesh=harness.TPU)


@pytest.mark.parametrize('least', [144, 145])
def test_a_small_one_does(monkeypatch, least):
  monkeypatch.setattr(padding, '_LEAST', least)
  assert BATCH * LENGTH * SIZES['row'] * SIZES['heads'] == 144
  assert ('ScatterNd' in kinds(*PRODUCT)) == (least == 144)
