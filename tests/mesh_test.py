"""Placement meshes: split over four devices, a layer computes the same."""

import functools

import mesh_tensorflow as mtf
import numpy as np
import pytest

import synth_mtf
from tests import family, harness
from tests.harness import DECODER, ENCODER, Mesh

LAYOUT = 'ensemble:ensemble,batch:batch,d_ff:model,heads:model,vocab:model'
MESHES = {
  'batch:2,model:2': Mesh('batch:2,model:2', LAYOUT),
  'model:4': Mesh('model:4', LAYOUT),
}
IDS = np.array(
  [
    [1, 1, 1, 1, 1, 1, 1],
    [1, 1, 1, 1, 0, 0, 0],
    [1, 0, 0, 0, 0, 0, 0],
    [1, 1, 1, 1, 1, 0, 0],
  ]
)
PACKED = np.array(
  [
    [1, 1, 1, 2, 2, 3, 3],
    [1, 1, 2, 2, 2, 2, 0],
    [1, 2, 2, 2, 0, 0, 0],
    [1, 1, 1, 1, 1, 1, 2],
  ]
)

every_mesh = pytest.mark.parametrize('mesh', MESHES)


@pytest.mark.parametrize('name', sorted(family.MEMBERS))
def test_every_member(name):
  """Output and gradients; the variants take turns in what they run on."""
  member = family.MEMBERS[name]
  number = sorted(family.MEMBERS).index(name)
  packed = number % 2 == 0
  ids, stack = (PACKED, DECODER) if packed else (IDS, ENCODER)
  maker = member.maker(
    num_heads=4, packed=packed, relative_attention_type='bias'
  )
  x = family.tokens(ids)
  one = harness.parallel(maker, x, ids, stack)
  for where, mesh in MESHES.items():
    many = harness.parallel(maker, x, ids, stack, mesh=mesh)
    harness.assert_close(many.output, one.output, where)
    harness.assert_close(many.gradients, one.gradients, f'{where} gradient')
    assert many.weights.keys() == one.weights.keys()


@every_mesh
@pytest.mark.parametrize('name', ['random', 'random_dense_vanilla'])
def test_no_device_holds_all_of_the_attention(name, mesh):
  x = family.tokens(IDS)
  shapes = harness.parallel(
    family.ALL[name].maker(num_heads=4),
    x,
    IDS,
    DECODER,
    mesh=MESHES[mesh],
  ).shapes
  attention = [
    np.prod(shape, dtype=int)
    for _, shape in shapes
    if len(shape) >= 3 and shape[-2:] == (7, 7)
  ]
  heads = 4 // mtf.convert_to_shape(mesh).get_dim_by_name('model').size
  batch = {'random': 1, 'random_dense_vanilla': 4 * 4 // (4 * heads)}[name]
  assert max(attention) == batch * heads * 7 * 7


@every_mesh
def test_decoding(mesh):
  maker = family.ALL['convolution_random_patterns'].maker(num_heads=4)
  beam = mesh == 'model:4'
  x = family.tokens(np.ones([4, 2, 3] if beam else [4, 3]))
  one = harness.decode(maker, x, beam=beam)
  many = harness.decode(maker, x, beam=beam, mesh=MESHES[mesh])
  harness.assert_close(many, one, 'decoded')


@pytest.mark.parametrize('name', ['random', 'random_vanilla'])
def test_memory_that_is_split(name):
  """A layout that splits memory_length: no fused softmax, the same result."""
  functions = [functools.partial(synth_mtf.Random, max_length=8)]
  if name == 'random_vanilla':
    functions.append(synth_mtf.DotProduct)
  maker = family.Member(tuple(functions), ()).maker()
  ids = np.concatenate([IDS, IDS[:, :1]], axis=1)
  x = family.tokens(ids)
  mesh = Mesh('model:2', 'memory_length:model')
  one, many = (
    harness.parallel(maker, x, ids, DECODER, mesh=m)
    for m in (harness.ONE_DEVICE, mesh)
  )
  harness.assert_close(many.output, one.output, 'output')
  harness.assert_close(many.gradients, one.gradients, 'gradient')
