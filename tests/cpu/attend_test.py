"""softmax(B) V against NumPy, for all sizes of tiles and splits of a mesh."""

import itertools

import mesh_tensorflow as mtf
import numpy as np
import pytest
from mesh_tensorflow.transformer import transformer_layers

from synth_mtf.core.logits import InnerProduct, Scaled
from synth_mtf.core.visibility import Visibility
from synth_mtf.cpu import attend, tiles, windows
from tests import checks, harness, reference
from tests.core import calls

BATCH, HEADS, LENGTH, D_KV = calls.BATCH, 4, 7, calls.D_KV
SIZES = {
  'batch': BATCH,
  'heads': HEADS,
  'length': LENGTH,
  'memory_length': LENGTH,
  'd_kv': D_KV,
  'k': 3,
}
LETTERS = dict(zip(SIZES, 'bhijdk'))
VALUES = 'batch memory_length heads d_kv'
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
SEGMENTS = np.array([[1, 1, 1, 2, 2, 3, 0], [1, 2, 2, 2, 2, 2, 2]])[:BATCH]
SAME = (SEGMENTS[:, :, None] == SEGMENTS[:, None]).astype(int)
MESHES = {
  'one device': harness.ONE_DEVICE,
  'split batch': harness.Mesh('all:2', 'batch:all'),
  'split heads': harness.Mesh('all:2', 'heads:all'),
  'split both': harness.Mesh('a:2,b:2', 'batch:a;heads:b'),
  'axes of one device': harness.Mesh(
    'a:1,b:1,c:1,d:1,e:1', 'heads:a;memory_length:b;length:c;d_kv:d;k:e'
  ),
}


def dims(names):
  return [mtf.Dimension(n, SIZES[n]) for n in names.split()]


def arrays(names):
  """The operands of parts, and V."""
  return {
    'v': harness.draw('v', [d.size for d in dims(VALUES)]),
    **{
      f'{name} {i}': harness.draw(f'{name} {i}', [d.size for d in dims(of)])
      for name in names
      for i, of in enumerate(PARTS[name][:2])
    },
  }


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
    operands = PARTS[name][:2]
    words = [''.join(LETTERS[d] for d in of.split()) for of in operands]
    factors = [at[f'{name} {i}'] for i in range(len(operands))]
    b = b + np.einsum(','.join([*words, 'bhij']) + '->bhij', *factors, ones)
  seen = (visible * nonpad[:, None, None]) > 0
  e = np.where(seen, np.exp(b - b.real.max(-1, keepdims=True)), 0)
  return np.einsum('bhij,bjhd->bihd', e / e.sum(-1, keepdims=True), at['v'])


def check(kernel, names, visible, nonpad, mesh=harness.ONE_DEVICE):
  values = arrays(names)
  tokens = nonpad[:, :, None, None]  # the layer makes all else zero
  cotangent = tokens * harness.draw(
    'cotangent', [BATCH, LENGTH, HEADS, D_KV]
  ).astype(np.float32)

  def build(mesh_object):
    call = calls.make(
      mesh_object,
      np.ones([BATCH, LENGTH], int),
      layer=transformer_layers.SelfAttention(
        num_heads=HEADS, key_value_size=D_KV
      ),
      mesh=mesh,
    )
    tensors = {'v': harness.constant(mesh_object, values['v'], VALUES)}
    for name in names:
      for i, of in enumerate(PARTS[name][:2]):
        tensors[f'{name} {i}'] = harness.constant(
          mesh_object, values[f'{name} {i}'], of
        )
    y = kernel(call, [term(name, tensors) for name in names], tensors['v'])
    shape = dims('batch length heads d_kv')
    assert y.shape.dims == shape
    loss = mtf.reduce_sum(y * harness.constant(mesh_object, cotangent, shape))
    found = mtf.gradients([loss], list(tensors.values()))
    return {'y': y, 'gradients': dict(zip(tensors, found))}

  found = harness.evaluate(build, mesh)
  exact = {name: array.astype(np.float64) for name, array in values.items()}
  harness.assert_close(
    found['y'] * tokens,
    formula(names, exact, visible, nonpad) * tokens,
    'value',
    3e-6,
  )
  checks.gradients(
    found['gradients'],
    reference.probes(
      lambda at: (formula(names, at, visible, nonpad) * cotangent).sum(), exact
    ),
    1e-5,
  )


def masked(mesh_object):
  """What the masks leave, of queries and keys."""
  tokens = NONPAD.astype(np.float32)
  return Visibility(
    mtf.equal(harness.constant(mesh_object, CAUSAL, 'length memory_length'), 1),
    harness.constant(mesh_object, tokens, 'batch memory_length'),
    harness.constant(mesh_object, tokens, 'batch length'),
  )


def hidden(mesh_object, array, names):
  """A mask as the layer adds it to B."""
  return mtf.stop_gradient(
    (1.0 - harness.constant(mesh_object, array.astype(np.float32), names))
    * -1e9
  )


ALL = Visibility(None, None, None)


def of_each(call, parts, values):
  return attend.attend(call, parts, ALL, values)


def of_each_masked(call, parts, values):
  masks = [
    hidden(values.mesh, CAUSAL, 'length memory_length'),
    hidden(values.mesh, NONPAD, 'batch memory_length'),
  ]
  return attend.attend(call, [*parts, *masks], masked(values.mesh), values)


def of_each_packed(call, parts, values):
  same = harness.constant(values.mesh, SAME, 'batch length memory_length')
  mask = hidden(values.mesh, SAME, 'batch length memory_length')
  visibility = Visibility(mtf.equal(same, 1), None, None)
  return attend.attend(call, [*parts, mask], visibility, values)


def of_all(call, parts, values):
  return attend.attend_shared(call, parts, ALL, values)


def of_all_masked(call, parts, values):
  visibility = masked(values.mesh)
  return attend.attend_shared(call, parts, visibility, values * visibility.keys)


WAYS = {
  'of each': (of_each, 1, np.ones_like(NONPAD)),
  'of each, masked': (of_each_masked, CAUSAL, NONPAD),
  'of each, packed': (of_each_packed, SAME[:, None], np.ones_like(NONPAD)),
  'of all': (of_all, 1, np.ones_like(NONPAD)),
  'of all, masked': (of_all_masked, CAUSAL, NONPAD),
}


def cases():
  """Each part alone, and mixtures."""
  mixtures = [
    ('table', 'low rank', 'bias of all heads'),
    ('pairs', 'scaled table', 'bias of each key'),
    ('rows of a table', 'logits', 'scaled table', 'low rank'),
  ]
  for way, names in itertools.product(
    WAYS, [*((n,) for n in PARTS), *mixtures]
  ):
    shared = set(names) <= set(SHARED)
    if shared or way.startswith('of each'):
      yield way, names


def sizes_of_tiles():
  """Each case by tiles of each size; fast: a part alone by one of them."""
  # Three queries of a head, for B of one example or of both; the last has one.
  of_all, of_each = 3 * LENGTH, 3 * LENGTH * BATCH
  two_heads = 2 * LENGTH**2 * BATCH

  def fast(way, names):
    some = of_each if 'of each' in way else of_all
    if len(names) > 1:
      return [some, two_heads, 2**20]
    return [some] if way in ('of each', 'of all') else []

  # One head and one query; a head and some queries; some heads; all of them.
  for entries, (way, names) in itertools.product(
    [1, of_all, of_each, two_heads, 2**20], cases()
  ):
    yield pytest.param(
      entries,
      way,
      names,
      id=f'{way}: {", ".join(names)}-{entries}',
      marks=[] if entries in fast(way, names) else pytest.mark.slow,
    )


@pytest.mark.parametrize('entries, way, names', sizes_of_tiles())
def test_it_is_the_formula(monkeypatch, entries, way, names):
  monkeypatch.setattr(tiles, '_TILE', entries)
  if entries <= 3 * LENGTH * BATCH:  # gradients are filled in place
    monkeypatch.setattr(tiles, '_LARGE', 1)
  # Windows are as narrow as can be, or rounded up, the last one less.
  monkeypatch.setattr(windows, '_LEAST_STEP', 2 if entries % 2 else 1)
  kernel, visible, nonpad = WAYS[way]
  check(kernel, names, visible, nonpad)


@pytest.mark.parametrize(
  'mesh',
  [
    pytest.param(mesh, marks=[] if number < 2 else pytest.mark.slow)
    for number, mesh in enumerate(list(MESHES)[1:])
  ],
)
@pytest.mark.parametrize(
  'way, names',
  [
    ('of each, masked', ('pairs', 'scaled table', 'bias of each key')),
    ('of each', ('rows of a table', 'scaled by a number', 'bias of all heads')),
    ('of all, masked', ('table', 'low rank', 'bias of all heads')),
  ],
)
def test_a_mesh_may_split_the_batch_and_the_heads(
  monkeypatch, mesh, way, names
):
  monkeypatch.setattr(tiles, '_TILE', 3 * LENGTH * BATCH)
  kernel, visible, nonpad = WAYS[way]
  check(kernel, names, visible, nonpad, MESHES[mesh])
