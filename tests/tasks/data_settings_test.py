"""Settings: three ways to give each, read when a task is used."""

import os
import subprocess
import sys
from typing import Any

import gin
import pytest
from absl import flags

from synth_mtf import tasks
from synth_mtf.errors import UserError

_NAMES = list(tasks.Settings.__dataclass_fields__)


@pytest.fixture(autouse=True)
def unset(monkeypatch):
  for name in _NAMES:
    monkeypatch.delenv(f'SYNTH_MTF_{name.upper()}', raising=False)


@pytest.fixture
def parsed_flags(monkeypatch):
  """A registry of flags of our own, as t5's main would have parsed it."""
  values = flags.FlagValues()
  monkeypatch.setattr(flags, 'FLAGS', values)

  def parse(*argv):
    tasks.define_flags()
    values(['program', *argv])

  return parse


@pytest.mark.parametrize('name', _NAMES)
def test_flag_wins_over_gin_and_gin_over_the_environment(
  name, monkeypatch, parsed_flags
):
  given: dict[str, list[Any]] = {
    'skip_bad_rows': ['yes', False, 'true'],
    'task_data_dirs': ['a=/a', {'b': '/b'}, 'c=tfds'],
  }
  expected: dict[str, list[Any]] = {
    'skip_bad_rows': [True, False, True],
    'task_data_dirs': [(('a', '/a'),), (('b', '/b'),), (('c', None),)],
  }
  values = given.get(name, ['/a', '/b', '/c'])
  first, second, third = expected.get(name, values)
  assert tasks.settings() == tasks.Settings()
  monkeypatch.setenv(f'SYNTH_MTF_{name.upper()}', values[0])
  assert getattr(tasks.settings(), name) == first
  gin.bind_parameter(f'synth_mtf.tasks.settings.{name}', values[1])
  assert getattr(tasks.settings(), name) == second
  parsed_flags(f'--{name}={values[2]}')
  assert getattr(tasks.settings(), name) == third


@pytest.mark.parametrize(
  'name,value,message',
  [
    ('SKIP_BAD_ROWS', 'maybe', "'maybe'; expected one of 1, yes"),
    ('TASK_DATA_DIRS', 'x', "item 'x'; expected `task=folder`"),
  ],
)
def test_mistyped_setting_is_refused(name, value, message, monkeypatch):
  monkeypatch.setenv(f'SYNTH_MTF_{name}', value)
  with pytest.raises(UserError, match=message):
    tasks.settings()


_IMPORT = """
import sys
import pkg_resources  # t5 does, and it reads what is installed
opened = []
def audit(event, args):
  if event == 'socket.connect' or event == 'open' and str(args[0]).endswith(
      ('.tsv', '.jsonl', '.model', '.json', '.txt', '.tfrecord')):
    opened.append((event, str(args[0])))
sys.addaudithook(audit)
import tensorflow, tensorflow_datasets, t5.data.mixtures, seqio
opened.clear()
before = set(seqio.TaskRegistry.names())
import synth_mtf.tasks
assert not opened, opened
ours = set(seqio.TaskRegistry.names()) - before
assert ours and all(name.startswith('synth_') for name in ours)
assert 'en_mix' in seqio.MixtureRegistry.names()
"""


@pytest.mark.slow  # a process of its own
def test_importing_registers_and_opens_nothing():
  environment = {**os.environ, 'SYNTH_MTF_DATA_DIR': '/absent'}
  subprocess.run([sys.executable, '-c', _IMPORT], check=True, env=environment)
