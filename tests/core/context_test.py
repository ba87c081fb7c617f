"""What the host's Context says of a call, and what a stack shares."""

import importlib

import gin
import mesh_tensorflow as mtf
import numpy as np
import pytest
from mesh_tensorflow.transformer import transformer

import synth_mtf
from synth_mtf.core import context
from tests import harness
from tests.core import calls


@pytest.mark.parametrize(
  'bindings, packed',
  [
    ('', True),
    ('mesh_train_dataset_fn.pack = True', True),
    ('mesh_train_dataset_fn.pack = False', False),
    (
      'mesh_train_dataset_fn.pack = False\nmesh_eval_dataset_fn.pack = True',
      True,
    ),
  ],
  ids=['unsaid', 'packed', 'unpacked', 'packed evaluation'],
)
def test_the_pipeline_says_whether_rows_are_packed(bindings, packed):
  importlib.import_module('t5.models.mesh_transformer')  # registers them
  gin.parse_config(bindings)
  assert synth_mtf.SyntheticAttention().packed == packed
  assert synth_mtf.SyntheticAttention(packed=not packed).packed != packed


def test_without_data_rows_may_be_packed(monkeypatch):
  def unknown(name):
    raise ValueError(f'gin knows no {name}: t5 is not imported')

  monkeypatch.setattr(gin, 'get_bindings', unknown)
  assert context.data_is_packed()


IDS = np.array([[1, 1, 2]])


@pytest.mark.parametrize(
  'mode, data_packed, ids, packed',
  [
    ('train', True, IDS, True),
    ('eval', True, IDS, True),
    ('train', False, IDS, False),
    ('train', True, None, False),
    ('infer', True, IDS, False),
    ('first_part', True, IDS, False),
    ('incremental', True, IDS, False),
  ],
)
def test_decoding_never_packs(mode, data_packed, ids, packed):
  with harness.new_graph() as (_, mesh):
    call = harness.host_context(mesh, (1, 3, 5), ids, mode=mode)
    layer = synth_mtf.SyntheticAttention(packed=data_packed)
    assert layer.is_packed(call) == packed


@pytest.mark.parametrize(
  'stack, shared',
  [
    (None, True),
    (transformer.LayerStack([]), True),
    (transformer.LayerStack([], recompute_grads=True), False),
    (transformer.ReversibleLayerStack([]), False),
  ],
  ids=['none', 'plain', 'recomputed', 'reversible'],
)
def test_layers_share_what_is_not_recomputed(stack, shared):
  with harness.new_graph() as (_, mesh):
    call = calls.make(mesh).context
    call.model.layer_stack = stack
    one, other = (context.cached(call, 'x', object) for _ in range(2))
    assert (one is other) == shared
    assert context.cached(call, 'y', lambda: 3) == 3


def test_the_ids_of_a_row():
  with harness.new_graph() as (_, mesh):
    call = calls.make(mesh, np.array([[1, 1, 2, 2], [1, 1, 2, 0]])).context
    ids = call.sequence_id
    assert context.row_sequence_id(call) is ids
    call.subsequence_id = ids + 1
    assert context.row_sequence_id(call) is call.subsequence_id
    call.subsequence_id = None
    call.sequence_id = 1  # the host's word for no padding
    assert context.row_sequence_id(call) is None
    call.sequence_id = mtf.reduce_sum(ids, reduced_dim=call.length_dim)
    assert context.row_sequence_id(call) is None
