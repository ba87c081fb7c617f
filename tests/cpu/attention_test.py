"""softmax(B) V against NumPy, for all sizes of tiles and splits of a mesh."""

import itertools

import mesh_tensorflow as mtf
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer_layers

from synth_mtf.core.logits import InnerProduct, Scaled, add
from synth_mtf.core.visibility import Visibility
from synth_mtf.cpu import attention, tiles
from tests import harness
from tests.core import calls, cases

pytestmark = pytest.mark.sampled

BATCH, HEADS, LENGTH, D_KV = calls.BATCH, 4, 6, calls.D_KV
SIZES = {
  'batch': BATCH,
  'heads': HEADS,
  'length': LENGTH,
  'memory_length': LENGTH,
  'd_kv': D_KV,
  'k': 3,
}
LETTERS = dict(zip(SIZES, 'bhijdk', strict=True))
VALUES, OUTPUT = 'batch memory_length heads d_kv', 'batch length heads d_kv'
QUERY, KEY = 'batch length heads k', 'batch memory_length heads k'
TABLE = 'heads length memory_length'
# The operands of the parts of B: a product has three entries, a scaled table
# two, the last of which is no tensor.
SHARED = {
  'table': (TABLE,),
  'scaled table': (TABLE, 'heads'),
  'scaled by a number': (TABLE, ''),
  'low rank': ('heads length k', 'heads memory_length k', 'k'),
  'bias of all heads': ('length memory_length',),
  'bias of keys': ('heads memory_length',),
}
LOCAL = {
  'pairs': (QUERY, KEY, 'k'),
  'rows of a table': (QUERY, 'heads memory_length k', 'k'),
  'columns of a table': ('heads length k', KEY, 'k'),
  'one head for all keys': (QUERY, 'batch memory_length k', 'k'),
  'logits': (f'batch {TABLE}',),
  'scaled logits': (f'batch {TABLE}', 'heads'),
  'logits, heads last': ('batch length memory_length heads',),
  'bias of each key': ('batch memory_length',),
}
PARTS = {**SHARED, **LOCAL}
CAUSAL = np.tril(np.ones([LENGTH, LENGTH], int))
NONPAD = np.ones([BATCH, LENGTH], int)
NONPAD[1, 2:] = 0
SEGMENTS = np.array([[1, 1, 2, 2, 3, 0], [1, 2, 2, 2, 2, 2]])[:BATCH]
SAME = (SEGMENTS[:, :, None] == SEGMENTS[:, None]).astype(int)
MESHES = {
  'split batch': harness.Mesh('all:2', 'batch:all'),
  'split heads': harness.Mesh('all:2', 'heads:all'),
  'split both': harness.Mesh('a:2,b:2', 'batch:a;heads:b'),
  'axes of one device': harness.Mesh(
    'a:1,b:1,c:1,d:1,e:1', 'heads:a;memory_length:b;length:c;d_kv:d;k:e'
  ),
}


def dims(names):
  return [mtf.Dimension(n, SIZES[n]) for n in names.split()]


def operands(names):
  """The dimensions of the operands of parts, and of V."""
  parts = {
    f'{name} {i}': of for name in names for i, of in enumerate(PARTS[name][:2])
  }
  return {'v': VALUES, **parts}


def term(name, tensors):
  first, *others = (tensors[f'{name} {i}'] for i in range(len(PARTS[name][:2])))
  if not others:
    return first
  if len(PARTS[name]) == 3:
    return InnerProduct(first, others[0], dims('k')[0])
  return Scaled(first, others[0])


def formula(names, at, visible, nonpad):
  """softmax(B) V, in the order of [batch, length, heads, d_kv]."""
  ones = np.ones([BATCH, HEADS, LENGTH, LENGTH])
  b = 0 * ones
  for name in names:
    words = [''.join(LETTERS[d] for d in of.split()) for of in PARTS[name][:2]]
    factors = [at[f'{name} {i}'] for i in range(len(words))]
    b = b + np.einsum(','.join([*words, 'bhij']) + '->bhij', *factors, ones)
  seen = (visible * nonpad[:, None, None]) > 0
  e = np.where(seen, np.exp(b - b.real.max(-1, keepdims=True)), 0)
  return np.einsum('bhij,bjhd->bihd', e / e.sum(-1, keepdims=True), at['v'])


def check(way, names, mesh=harness.ONE_DEVICE):
  function, visibility, visible, nonpad = WAYS[way]
  tokens = nonpad[:, :, None, None]  # the layer makes all else zero
  ids = np.ones([BATCH, LENGTH], int)
  layer = transformer_layers.SelfAttention(num_heads=HEADS, key_value_size=D_KV)

  def kernel(**tensors):
    mesh_object = tensors['v'].mesh
    call = calls.make(mesh_object, ids, layer=layer, mesh=mesh)
    logits = add(call, [term(name, tensors) for name in names])
    y = function(call, logits, visibility(mesh_object), tensors['v'])
    assert y.shape.dims == dims(OUTPUT)
    return y * harness.constant(mesh_object, 1.0 * nonpad, 'batch length')

  case = cases.Case(
    kernel,
    lambda **at: formula(names, at, visible, nonpad) * tokens,
    {
      name: (of, harness.draw(name, [d.size for d in dims(of)]))
      for name, of in operands(names).items()
    },
    OUTPUT,
  )
  cases.check(case, mesh)


def masked(mesh):
  tokens = NONPAD.astype(np.float32)
  return Visibility(
    mtf.equal(harness.constant(mesh, CAUSAL, 'length memory_length'), 1),
    harness.constant(mesh, tokens, 'batch memory_length'),
    harness.constant(mesh, tokens, 'batch length'),
  )


def packed(mesh):
  same = harness.constant(mesh, SAME, 'batch length memory_length')
  return Visibility(mtf.equal(same, 1), None, None)


def everything(_mesh):
  return Visibility(None, None, None)


ALL = np.ones_like(NONPAD)
# The function, what is visible, and the same in NumPy: of pairs and of tokens.
WAYS = {
  'each': (attention.attend_each, everything, 1, ALL),
  'each, masked': (attention.attend_each, masked, CAUSAL, NONPAD),
  'each, packed': (attention.attend_each, packed, SAME[:, None], ALL),
  'shared': (attention.attend_shared, everything, 1, ALL),
  'shared, masked': (attention.attend_shared, masked, CAUSAL, NONPAD),
}


def mixtures_and_parts():
  """Each part alone if it has rows and columns, and mixtures."""
  mixtures = [
    ('table', 'low rank', 'bias of all heads'),
    ('bias of keys', 'bias of all heads'),
    ('pairs', 'scaled table', 'bias of each key'),
    ('rows of a table', 'logits', 'scaled table', 'low rank'),
  ]
  alone = [(n,) for n in PARTS if n not in ('bias of keys', 'bias of each key')]
  for way, names in itertools.product(WAYS, [*alone, *mixtures]):
    shared = set(names) <= set(SHARED)
    if shared or way.startswith('each'):
      yield way, names


# How many entries a tile has: those of one head and some queries, of both
# examples, ...
SOME_QUERIES = 3 * LENGTH * BATCH
# ... of one query, of some of one example, of some heads, or all of them.
ALL_SIZES = (1, 3 * LENGTH, SOME_QUERIES, 2 * LENGTH**2 * BATCH, 2**20)


def sizes_of_tiles(way, names):
  """Mixtures with masks are tried by tiles of each size, all else by fewer."""
  is_masked, is_mixture = way.endswith('masked'), len(names) > 1
  if is_masked and is_mixture:
    return ALL_SIZES
  if is_masked or is_mixture:
    return 1, SOME_QUERIES
  return (SOME_QUERIES,)


def cases_of_the_formula():
  """Fast tests try all parts and mixtures by one size, without a mask."""
  for way, names in mixtures_and_parts():
    for entries in sizes_of_tiles(way, names):
      is_fast = entries == SOME_QUERIES and way in ('each', 'shared')
      yield pytest.param(
        entries,
        way,
        names,
        id=f'{way}: {", ".join(names)}-{entries}',
        marks=[] if is_fast else pytest.mark.slow,
      )


@pytest.mark.parametrize('entries, way, names', cases_of_the_formula())
def test_it_is_the_formula(monkeypatch, entries, way, names):
  monkeypatch.setattr(tiles, '_TILE', entries)
  # Windows are as narrow as can be, or rounded up, the last one less.
  monkeypatch.setattr(tiles, '_LEAST_STEP', 2 if entries % 2 else 1)
  check(way, names)


@pytest.mark.parametrize(
  'mesh',
  [
    pytest.param(mesh, marks=pytest.mark.slow if number else [])
    for number, mesh in enumerate(MESHES)
  ],
)
@pytest.mark.parametrize(
  'way, names',
  [
    ('each, masked', ('pairs', 'scaled table', 'bias of each key')),
    ('each', ('rows of a table', 'scaled by a number', 'bias of all heads')),
    ('shared, masked', ('table', 'low rank', 'bias of all heads')),
  ],
)
def test_a_mesh_may_split_the_batch_and_the_heads(
  monkeypatch, mesh, way, names
):
  monkeypatch.setattr(tiles, '_TILE', 3 * LENGTH * BATCH)
  check(way, names, MESHES[mesh])


@pytest.mark.parametrize('name', ['rows of a table', 'columns of a table'])
def test_no_product_is_one_that_tensorflow_gets_wrong(monkeypatch, name):
  """With one head, 2.20's oneDNN would write beyond the product's arrays."""
  of = tf.matmul

  def matmul(x, y, **transposed):
    if x.shape.ndims == 4 and y.shape[:2] == [1, 1]:
      assert x.shape[0] == 1 or x.shape[1] > 1
    return of(x, y, **transposed)

  monkeypatch.setattr(tf, 'matmul', matmul)
  mesh = harness.Mesh('all:4', 'heads:all')
  check('each', [name], mesh)


def test_a_table_is_not_copied_for_a_batch_of_one(monkeypatch):
  monkeypatch.setattr(calls, 'BATCH', 1)
  mesh = mtf.Mesh(mtf.Graph(), 'mesh')
  call = calls.make(mesh)
  of_table = [*call.heads, *call.length, call.memory_length]
  of_values = [*call.batch, call.memory_length, *call.heads, call.kv_dim]
  table, values = (mtf.ones(mesh, mtf.Shape(x)) for x in (of_table, of_values))
  before = len(mesh.graph.operations)
  attention.attend_shared(
    call, add(call, [table]), Visibility(None, None, None), values
  )
  for operation in mesh.graph.operations[before:]:
    if isinstance(operation, mtf.BroadcastOperation):
      assert not {*of_table} <= {*operation.outputs[0].shape.dims}


ROWS = np.array([[1] * 5 + [2] * 4 + [0] * 3, [1] * 9 + [0] * 3])


@pytest.mark.parametrize(
  'packed', [False, True], ids=['unpacked rows', 'packed rows']
)
def test_what_no_query_sees_is_not_read(monkeypatch, packed):
  """What is hidden is not a number, which would spoil all that is made of it.

  A tile of packed rows is a single query here.
  """
  monkeypatch.setattr(tiles, '_LEAST_STEP', 1)
  if packed:
    monkeypatch.setattr(tiles, '_TILE', ROWS.shape[1])
    monkeypatch.setattr(tiles, '_MOST_TILES', 1000)
  tokens = (ROWS > 0).astype(np.float32)
  same = (ROWS[:, :, None] == ROWS[:, None]).astype(np.float32)
  shape = [*ROWS.shape, calls.HEADS, calls.D_KV]
  columns = 'batch memory_length'

  def build(mesh):
    call = calls.make(mesh, ROWS)
    q, k, v = (
      harness.constant(
        mesh,
        np.where(tokens[..., None, None], harness.draw(name, shape), np.nan),
        f'{rows} heads d_kv',
      )
      for name, rows in (('q', 'batch length'), ('k', columns), ('v', columns))
    )
    if packed:
      pairs = harness.constant(mesh, same, 'batch length memory_length')
      visibility = Visibility(mtf.equal(pairs, 1.0), None, None)
    else:
      masks = (
        harness.constant(mesh, tokens, x) for x in (columns, 'batch length')
      )
      visibility = Visibility(None, *masks)
    logits = add(call, [InnerProduct(q, k, call.kv_dim)])
    y = attention.attend_each(call, logits, visibility, v)
    loss = y * harness.constant(mesh, tokens, 'batch length')
    return [y, *mtf.gradients([mtf.reduce_sum(loss)], [q, k, v])]

  for x in harness.evaluate(build):
    assert np.isfinite(x[tokens > 0]).all()
