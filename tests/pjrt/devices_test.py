"""Whether a run fits the devices that JAX finds; these are made up."""

import types
from typing import Any

import gin
import mesh_tensorflow as mtf
import pytest

import synth_mtf
from synth_mtf.errors import UserError
from synth_mtf.pjrt import compiler, devices, fitting
from synth_mtf.pjrt.hosts import Group, Hosts


def check(platform, count, mesh, mode='train', hosts=None):
  found: Any = [types.SimpleNamespace(platform=platform)] * count
  devices.check_run(found, hosts or Hosts(), mtf.convert_to_shape(mesh), mode)


def test_a_run_takes_all_devices():
  check('gpu', 4, 'batch:4')
  check('gpu', 4, 'model:2,batch:2', 'eval')
  for mesh in ('batch:2', 'batch:8'):
    with pytest.raises(UserError, match='but JAX finds 4 devices .gpu.') as e:
      check('gpu', 4, mesh)
    assert 'XLA_FLAGS' not in str(e.value)
    assert 'logical_cores' not in str(e.value)


def test_advice_is_for_the_kind_of_devices():
  with pytest.raises(
    UserError, match='8 cores, but JAX finds 4.*give --logical_cores'
  ):
    check('tpu', 4, 'batch:8')
  with pytest.raises(UserError, match=r'or utils.tpu_mesh_shape\.\Z'):
    check('tpu', 4, 'batch:4,model:4')
  with pytest.raises(UserError, match='platform_device_count=3'):
    check('cpu', 1, 'batch:3')


def test_several_hosts_only_train():
  hosts = Hosts(Group(2, 1))
  check('gpu', 2, 'batch:2', hosts=hosts)
  with pytest.raises(UserError, match="mode 'eval' runs on one host"):
    check('gpu', 2, 'batch:2', 'eval', hosts)


@pytest.mark.parametrize(
  ('platform', 'name', 'is_told'),
  [
    ('gpu', 'EmbeddingByIndex', True),
    ('cpu', 'EmbeddingByIndex', False),
    ('gpu', None, False),
  ],
)
def test_a_setting_for_cpus_is_told_elsewhere(caplog, platform, name, is_told):
  if name:
    cls = getattr(synth_mtf, name)
    gin.bind_parameter('get_vocab_embedding_cls.cls', cls)
  check(platform, 1, '')
  assert ('has no effect on a' in caplog.text) == is_told


def test_what_a_program_updates_counts_once():
  sizes = types.SimpleNamespace(
    argument_size_in_bytes=10,
    output_size_in_bytes=7,
    alias_size_in_bytes=4,
    temp_size_in_bytes=5,
  )
  memory = compiler.memory_of(
    types.SimpleNamespace(get_compiled_memory_stats=lambda: sizes)
  )
  assert memory == (13, 5)
  assert memory.needed == 18


@pytest.mark.parametrize(
  ('there', 'fits'), [(None, True), (17.0, False), (18.0, True)]
)
def test_a_program_fits_what_is_there(there, fits):
  assert fitting.Fit(None, None, 18.0, there).fits is fits
