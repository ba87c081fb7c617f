"""Meshes that do not fit the devices, the model or the memory."""

import os

import gin
import pytest

from synth_mtf.errors import UserError
from synth_mtf.host import gin_files, model as host_model
from synth_mtf.host.run_config import RunConfig
from synth_mtf.run import checks, config, ways
from tests import model

LAYOUT = 'batch:batch,d_ff:model,heads:model,vocab:model'
REMOTE = '/job:worker/task:1/device:CPU:0'


@pytest.fixture(scope='module')
def tiny():
  gin_files.parse(model.files('random_vanilla'), model.TINY)
  return host_model.build(model.VOCAB)


def check(tiny, shape, batch):
  gin.parse_config(f"""
    utils.run.mesh_shape = {shape!r}
    utils.run.layout_rules = {LAYOUT!r}
    utils.run.batch_size = {batch!r}
    utils.run.sequence_length = {{'inputs': 16, 'targets': 8}}
  """)
  checks.check_mesh(config.read('folder'), ways.InSession(), tiny)


@pytest.mark.parametrize(
  'shape, batch, message',
  [
    ('model:2', 8, r'heads = 3 is split into 2 parts \(possible: 1, 3\)'),
    ('batch:3', 8, r'batch = 8 is split into 3 parts \(possible: 1, 2, 4, 8\)'),
    ('model:8', 8, 'd_ff = 20 .*: 1, 2, 4, 5, 10, 20.*heads = 3'),
    ('model:3', 8, 'vocab = 128 is split into 3'),
    ('batch:2', ('tokens_per_batch', 100), '100 is not divisible by 16'),
  ],
)
def test_a_mesh_that_does_not_divide(tiny, shape, batch, message):
  with pytest.raises(UserError, match=message):
    check(tiny, shape, batch)


@pytest.mark.parametrize(
  'settings, is_named',
  [
    ('', False),
    ('utils.run.mesh_shape = @utils.tpu_mesh_shape()', False),
    ('tpu_mesh_shape.model_parallelism = 2', False),
    ("utils.tpu_mesh_shape.tpu_topology = 'v3-8'", True),
    ("utils.run.mesh_shape = 'batch:2'", True),
    ("utils.run.mesh_shape = ''", True),
  ],
)
def test_a_mesh_is_named(settings, is_named):
  gin_files.parse(
    model.files('random_vanilla'), [*model.TINY, *filter(None, [settings])]
  )
  assert RunConfig().names_mesh is is_named


def test_the_examples_may_determine_the_lengths(tiny):
  gin.parse_config(f"""
    utils.run.mesh_shape = 'batch:3'
    utils.run.layout_rules = {LAYOUT!r}
    utils.run.batch_size = 8
    utils.run.mode = 'eval'
  """)
  with pytest.raises(UserError, match='batch = 8 .* utils.run.batch_size'):
    checks.check_mesh(RunConfig(sequence_length=None), ways.InSession(), tiny)


@pytest.mark.parametrize('batch', [8, ('tokens_per_batch', 128)])
def test_meshes_that_divide(tiny, batch):
  check(tiny, 'batch:4', batch)
  check(tiny, '', batch)


def test_a_tensor_larger_than_the_memory(tiny, monkeypatch):
  embedding = 128 * 24 * 2  # bytes, the largest tensor

  def has(memory):
    size = {'SC_PAGE_SIZE': memory // 2, 'SC_PHYS_PAGES': 2}
    monkeypatch.setattr(os, 'sysconf', size.get)

  has(embedding)
  check(tiny, '', 1)
  has(embedding - 2)
  with pytest.raises(UserError, match='out of memory: shared/embedding'):
    check(tiny, '', 1)


@pytest.mark.parametrize(
  'names', [[], [''], ['cpu'], ['CPU:0'], ['/cpu:0', '/device:CPU:0']]
)
def test_devices_that_are_there(names):
  ways.check_devices(names)


@pytest.mark.parametrize(
  ('name', 'message'),
  [
    ('cpu:1', "there is no 'cpu:1'. This machine has 1 CPU and "),
    ('gpu:7', "there is no 'gpu:7'. This mach.*synth-mtf doctor"),
    ('grafik', "there is no 'grafik'"),
    ('/replica:0', "there is no '/replica:0'"),
    (REMOTE, 'of another process.* give --device with --coordinator'),
  ],
)
def test_devices_that_are_not(name, message):
  with pytest.raises(UserError, match=message):
    ways.check_devices(['cpu:0', name])
