"""Placement meshes: split over four devices, a layer computes the same."""

import itertools

import mesh_tensorflow as mtf
import numpy as np
import pytest

from tests import checks, decoding_test, family, harness, model
from tests.decoding_test import ids
from tests.harness import DECODER, ENCODER, Mesh

LAYOUT = 'ensemble:ensemble,batch:batch,d_ff:model,heads:model,vocab:model'
MESHES = {
  'batch:2,model:2': Mesh('batch:2,model:2', LAYOUT),
  'model:4': Mesh('model:4', LAYOUT),
}
# Four rows, which any mesh here divides.
IDS = family.PADDED.ids
PACKED_IDS = np.concatenate([family.PACKED.ids[:2], family.PACKED.ids[1::-1]])
PADDED, PACKED = family.Rows(IDS, IDS), family.Rows(PACKED_IDS, PACKED_IDS)

FAST = ('random_dense_vanilla', 'conv_relu_conv')

every_mesh = pytest.mark.parametrize('mesh', MESHES)


def members():
  """Yields each member once, with one kind of rows on one of the meshes.

  The next member gets the next of the four pairs: together, the members cover
  all, and each one costs a single graph.
  """
  pairs = itertools.cycle(itertools.product([True, False], MESHES))
  for name in sorted({*family.FEW} & {*family.ALL}):
    is_packed, mesh = next(pairs)
    marks = [] if name in FAST else pytest.mark.slow
    yield pytest.param(name, mesh, is_packed, marks=marks)


@pytest.mark.sampled
@pytest.mark.parametrize('name, mesh, is_packed', members())
def test_a_member(name, mesh, is_packed):
  rows, stack = (PACKED, DECODER) if is_packed else (PADDED, ENCODER)
  member = family.ALL[name].but(num_heads=4, relative_attention_type='bias')
  checks.on_a_mesh(member, rows, stack, MESHES[mesh])


@pytest.mark.sampled
@pytest.mark.parametrize(
  'name, size, factors',
  family.one_in(
    4,
    [
      ('factorized_dense', 12, (3, 4)),
      ('factorized_dense', 12, (1, 12)),
      ('factorized_dense', 6, (2, 3)),
      ('cross_factorized_dense', 12, (4, 3)),
      *(
        (name, size, None)
        for size in (6, 12)
        for name in ('random', 'factorized_random', 'dense', 'cross_random')
      ),
    ],
  ),
)
def test_split_memory_length(name, size, factors):
  """Also where factors and tables do not have the length's number of parts."""
  member = {**family.ALL, **family.CROSS}[name].of_size(
    max_length=size, memory_max_length=size, factors=factors
  )
  ids = (PACKED_IDS if size == 12 else IDS)[:, :6]
  mesh = Mesh('model:2', 'memory_length:model')
  checks.on_a_mesh(member, family.Rows(ids, ids), DECODER, mesh)


@pytest.mark.slow
@every_mesh
@pytest.mark.parametrize(
  'name, examples', [('random', 1), ('random_dense_vanilla', 4)]
)
def test_no_device_holds_all_of_the_attention(name, mesh, examples):
  member = family.ALL[name].but(num_heads=4)
  result = harness.parallel(
    member, family.tokens(IDS), IDS, DECODER, mesh=MESHES[mesh]
  )
  # Without a batch, only the heads are split.
  split = 4 if examples > 1 else mtf.convert_to_shape(mesh)[-1].size
  assert result.largest(7, 7) == examples * 4 * 7 * 7 // split


@pytest.mark.slow
@every_mesh
def test_decoding(mesh):
  member = family.ALL['convolution_random_patterns'].but(num_heads=4)
  beam = mesh == 'model:4'
  x = family.tokens(np.ones([4, 2, 3] if beam else [4, 3]))
  one, _ = harness.decode(member, x, beam=beam)
  many, _ = harness.decode(member, x, beam=beam, mesh=MESHES[mesh])
  harness.assert_close(many, one, 'decoded')


@pytest.mark.slow  # builds whole models
def test_a_training_step_of_a_model():
  """Loss and updated weights, a step of gradient descent, dropout 0."""
  one = _train(harness.ONE_DEVICE)
  for name, mesh in MESHES.items():
    many = _train(mesh)
    harness.assert_close(many['loss'], one['loss'], f'{name} loss', 1e-6)
    harness.assert_close(many['weights'], one['weights'], f'{name} weights')


def _train(mesh):
  def build(mesh_object, made):
    rng = np.random.RandomState(0)
    inputs, targets = (
      ids(mesh_object, rng.randint(2, 20, [4, n])) for n in (7, 5)
    )
    _, loss = model.call(made, inputs, targets)
    variables = mesh_object.graph.trainable_variables
    gradients = mtf.gradients([loss], [v.outputs[0] for v in variables])
    updated = {
      v.name: v.outputs[0] - 0.5 * g
      for v, g in zip(variables, gradients, strict=True)
    }
    return {'loss': loss, 'weights': updated}

  bindings = ['d_ff = 12', 'num_heads = 4', 'dropout_rate = 0.0']
  return decoding_test.run(
    'random_vanilla', build, vocab=20, bindings=bindings, mesh=mesh
  )
