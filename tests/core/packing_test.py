"""Whether a row may hold several sequences, as gin says of the data."""

import importlib

import gin
import numpy as np
import pytest

import synth_mtf
from synth_mtf.core import packing
from tests import harness


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
  assert packing.data_is_packed()


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
    context = harness.host_context(mesh, (1, 3, 5), ids, mode=mode)
    assert packing.rows_are_packed(context, data_packed) == packed
