"""Embeddings by index against the host's, which are a product."""

import types

import mesh_tensorflow as mtf
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer

from synth_mtf import EmbeddingByIndex
from tests import harness
from tests.harness import Mesh

VOCAB, D_MODEL = 10, 6
WEIGHTS = harness.draw('weights', [VOCAB, D_MODEL])
IDS = np.array([[3, 7, 3, 0], [9, 3, 1, 1], [0, 0, 0, 0], [8, 2, 9, 3]])
STRANGE = np.array([[3, -1, 3, 10], [9, 3, 11, -5]])


def read(cls, ids=IDS, mesh=harness.ONE_DEVICE, ensemble=0, scaled=False):
  """Embeddings, dE for a loss whose dY is known, and the operations used."""
  operations: set[str] = set()

  def build(mesh_object):
    embedding = cls(
      mesh_object,
      mtf.Dimension('vocab', VOCAB),
      mtf.Dimension('d_model', D_MODEL),
      mtf.VariableDType(tf.float32, tf.float32, tf.float32),
      name='embedding',
      ensemble_dim=mtf.Dimension('ensemble', ensemble) if ensemble else None,
      scale_variable_like_classifier_weights=scaled,
    )
    (variable,) = mesh_object.graph.trainable_variables
    assert variable.name == 'embedding'
    model = types.SimpleNamespace(layout=mesh.layout, mesh_shape=mesh.shape)
    names = 'batch length' if ids.ndim > 1 else 'batch'
    y = embedding.ids_to_embedding(
      harness.constant(mesh_object, ids, names),
      types.SimpleNamespace(model=model),
    )
    dy = harness.draw('dy', y.shape.to_integer_list)
    loss = mtf.reduce_sum(y * harness.constant(mesh_object, dy, y.shape.dims))
    (gradient,) = mtf.gradients([loss], variable.outputs)
    operations.update(type(x).__name__ for x in mesh_object.graph.operations)
    return {'y': y, 'gradient': gradient}

  found = harness.evaluate(
    build, mesh, lambda name, shape: np.broadcast_to(WEIGHTS, shape)
  )
  return found, operations


def assert_agree(**setting):
  expected, _ = read(transformer.VocabEmbedding, **setting)
  found, operations = read(EmbeddingByIndex, **setting)
  harness.assert_close(found, expected, 'embedding')
  return operations


@pytest.mark.parametrize(
  'setting',
  [
    *(
      {'ids': ids, 'scaled': scaled}
      for ids in (IDS, IDS[:, 1], STRANGE)
      for scaled in (False, True)
    ),
    {'mesh': Mesh('batch:2', 'batch:batch')},
    {'mesh': Mesh('model:2', 'd_model:model')},
    {'mesh': Mesh('model:2', 'length:model')},
    {'mesh': Mesh('batch:2,model:2', 'batch:batch,length:model')},
    {'mesh': Mesh('batch:2,model:2', 'batch:batch,d_model:model')},
    {'mesh': Mesh('model:2', 'heads:model')},
    {'mesh': Mesh('model:1', 'vocab:model')},
  ],
  ids=str,
)
def test_reads_by_index_where_a_mesh_leaves_the_vocabulary_whole(setting):
  assert 'OneHotOperation' not in assert_agree(**setting)


@pytest.mark.parametrize(
  'setting',
  [
    {'mesh': Mesh('model:2', 'vocab:model')},
    {'mesh': Mesh('batch:2,model:2', 'batch:batch,vocab:model')},
    {'mesh': harness.TPU},
    {'ensemble': 2},
  ],
  ids=str,
)
def test_elsewhere_the_product_stays(setting):
  operations = assert_agree(**setting)
  assert 'OneHotOperation' in operations
  assert 'SlicewiseOperation' not in operations
