"""Where a run computes: what flags and gin say, and what follows from it."""

import types
from typing import Any

import gin
import pytest
from absl import flags

from synth_mtf.errors import UserError
from synth_mtf.host import gin_files
from synth_mtf.run import checks, ways

NAMES = (
  *('device', 'tpu', 'coordinator_address', 'num_processes', 'process_id'),
)


def of_flags(**given):
  return ways.of_flags(
    types.SimpleNamespace(**{**dict.fromkeys(NAMES), **given})
  )


def test_flags_choose_the_way():
  assert type(of_flags()) is ways.InSession
  tpu = of_flags(tpu='mine')
  assert (type(tpu), tpu.tpu) == (ways.OnTpu, 'mine')
  devices = of_flags(device='gpu', process_id=0)
  assert (type(devices), devices.kind) == (ways.OnDevices, 'gpu')


@pytest.mark.parametrize(
  ('given', 'message'),
  [
    ({'device': 'cpu', 'tpu': 'mine'}, '--device=cpu and --tpu=mine exclude'),
    ({'process_id': 0}, 'belong to --device: give it'),
    ({'num_processes': 2}, 'belong to --device: give it'),
    ({'coordinator_address': 'a:1', 'tpu': 'x'}, 'belong to --device: give it'),
  ],
)
def test_flags_that_exclude_each_other(given, message):
  with pytest.raises(UserError, match=message):
    of_flags(**given)


def bind(kind):
  gin.bind_parameter('synth_mtf.run_on_devices.kind', kind)


def test_gin_chooses_where_flags_do_not():
  session, devices = ways.InSession(), ways.OnDevices('cpu')
  assert ways.chosen(session, None) is session
  assert ways.chosen(devices, None) is devices
  on_tpu = ways.chosen(session, 'mine')
  assert (type(on_tpu), on_tpu.tpu) == (ways.OnTpu, 'mine')
  assert ways.chosen(on_tpu, 'mine') is on_tpu
  bind('cpu')
  assert ways.chosen(devices, None) is devices
  assert ways.chosen(session, None).kind == 'cpu'
  with pytest.raises(UserError, match="kind = 'cpu' and --tpu=mine exclude"):
    ways.chosen(session, 'mine')
  with pytest.raises(UserError, match="=gpu, but .*kind = 'cpu' in gin"):
    ways.chosen(ways.OnDevices('gpu'), None)
  bind('npu')
  with pytest.raises(UserError, match="'npu': expected one of 'cpu', 'gpu'"):
    ways.chosen(session, None)


@pytest.mark.parametrize(
  ('way', 'takes', 'exports', 'reader'),
  [
    (ways.InSession(), False, True, ''),
    (ways.OnTpu('mine'), True, True, '--tpu=mine'),
    (ways.OnTpu('local'), True, True, ''),
    (ways.OnDevices('gpu'), True, False, ''),
  ],
  ids=['session', 'tpu', 'local', 'devices'],
)
def test_what_follows_from_a_way(way, takes, exports, reader):
  assert way.takes_types_of_gin() == takes
  assert way.other_reader() == reader
  assert way.memory_is_here == (way.tpu is None)
  way.check_mode('train')
  if exports:
    way.check_mode('export_infer')
    return
  with pytest.raises(UserError, match="'export_infer' .* without --device"):
    way.check_mode('export_infer')


def test_a_way_refuses_what_it_cannot_compute():
  run: Any = types.SimpleNamespace(mesh_devices=None, mode='export')
  ways.InSession().check(run)
  run.mesh_devices = ['gpu:7']
  with pytest.raises(UserError, match="there is no 'gpu:7'"):
    ways.InSession().check(run)
  with pytest.raises(UserError, match="'export' .* without --device"):
    ways.OnDevices('cpu').check(run)


@pytest.mark.parametrize(
  ('binding', 'takes'),
  [
    (None, False),
    ('d_ff = 9', False),
    ("get_variable_dtype.activation_dtype = 'bfloat16'", True),
  ],
)
def test_on_cpus_the_command_line_alone_decides_the_type(
  monkeypatch, binding, takes
):
  values = flags.FlagValues()
  flags.DEFINE_multi_string('gin_param', None, '', flag_values=values)
  values(['main', *([f'--gin_param={binding}'] if binding else [])])
  monkeypatch.setattr(flags, 'FLAGS', values)
  assert ways.OnDevices('cpu').takes_types_of_gin() == takes


@pytest.mark.parametrize('config', ['{', '[]'])
def test_tf_config_that_is_not_json(monkeypatch, config):
  monkeypatch.setenv('TF_CONFIG', config)
  with pytest.raises(UserError, match='TF_CONFIG is .*; expected JSON'):
    ways.InSession().other_reader()


@pytest.mark.parametrize(
  ('mesh', 'default', 'expected', 'shown'),
  [
    (None, 'batch:4', 'batch:4', 'Mesh: batch:4, all devices; utils'),
    (None, 'batch:1', 'batch:1', 'Mesh: batch:1, all devices; utils'),
    (None, '', None, ''),
    ('model:1,batch:1', 'batch:4', 'batch:4', 'in place of one core (Shape'),
    ('model:1,batch:1', 'batch:1', None, ''),
    ('model:2,batch:1', 'batch:4', None, ''),
    ('model:2,batch:1', '', None, ''),
  ],
)
def test_a_run_without_a_mesh_takes_all_devices(
  capsys, mesh, default, expected, shown
):
  gin_files.parse([], [f'utils.run.mesh_shape = {mesh!r}'] if mesh else [])
  way = ways.OnDevices('cpu')
  way.default_mesh = default
  found = checks._default_mesh(way)  # noqa: SLF001
  assert found == ({'mesh_shape': expected} if expected else {})
  err = capsys.readouterr().err
  assert shown in err and bool(shown) == bool(err)


def test_parallelism_that_has_no_effect_is_named(capsys):
  gin_files.parse([], ['utils.tpu_mesh_shape.model_parallelism = 2'])
  way = ways.OnDevices('cpu')
  way.default_mesh = 'batch:4'
  checks._default_mesh(way)  # noqa: SLF001
  assert 'model_parallelism = 2 has no effect' in capsys.readouterr().err
