"""Devices that a mesh names and that are not there."""

import json

import pytest

from synth_mtf.errors import UserError
from synth_mtf.run import devices

REMOTE = '/job:worker/task:1/device:CPU:0'


@pytest.mark.parametrize(
  'names',
  [None, [], [''], ['cpu:0'], ['cpu'], ['CPU:0'], ['/cpu:0', '/device:CPU:0']],
)
def test_devices_that_are_there(names):
  devices.check(names)


@pytest.mark.parametrize(
  ('name', 'message'),
  [
    ('cpu:1', "there is no 'cpu:1'. This machine has cpu:0"),
    ('gpu:7', "there is no 'gpu:7'. This mach.*synth-mtf doctor"),
    ('grafik', "'grafik' is no name of a device"),
    ('/replica:0', "'/replica:0' is no name of a device"),
    (REMOTE, 'needs `synth-mtf cluster`'),
  ],
)
def test_devices_that_are_not(name, message):
  with pytest.raises(UserError, match=message):
    devices.check(['cpu:0', name])


@pytest.mark.parametrize('config', [{'cluster': {}}, {'session_master': 'x'}])
def test_those_of_a_cluster(monkeypatch, config):
  monkeypatch.setenv('TF_CONFIG', json.dumps(config))
  devices.check([REMOTE])
