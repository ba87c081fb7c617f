"""Commands that read runs, in any order and beside a configuration in gin."""

import importlib.util
import random

import gin
import pytest

import synth_mtf
from synth_mtf import cli
from tests import trained_test

pytestmark = pytest.mark.slow  # builds whole models

TEXT = ['--text=a b', '--target=c']
COMMANDS = {
  'attention': ['attention', 'run', '--out=a.npz', *TEXT],
  'plot': ['plot', 'run', '--out=figures', *TEXT],
  'report': ['report', 'run', '--out=a.html', *TEXT],
  'replay': ['replay', 'run'],
  'table': ['table', 'other'],
  'export': ['checkpoint', 'export', '--to=hf', 'run', 'hf'],
  'other': ['attention', 'other', '--out=b.npz', *TEXT],
}


@pytest.fixture(scope='module')
def runs(tmp_path_factory):
  """Two runs, and the attention of each as it is without other commands."""
  folder = tmp_path_factory.mktemp('runs')
  for name, variant in (('run', 'random_vanilla'), ('other', 'dense')):
    (folder / name).mkdir()
    trained_test.write(folder / name, variant=variant)
  return folder


@pytest.mark.parametrize('seed', [0, 1])
def test_commands_do_not_touch_gin_or_each_other(
  runs, seed, tmp_path, monkeypatch, capsys
):
  monkeypatch.chdir(tmp_path)
  for name in ('run', 'other'):
    (tmp_path / name).symlink_to(runs / name)
  commands = dict(COMMANDS)
  if not importlib.util.find_spec('safetensors'):
    del commands['export']
  order = sorted(commands)
  random.Random(seed).shuffle(order)
  gin.parse_config('SelfAttention.num_heads = 77')
  before = gin.config_str()
  with synth_mtf.load('run') as model:
    scores = model.score(['a b'], ['c'])
    for name in order:
      assert cli.main(commands[name]) in (0, None), (name, capsys.readouterr())
      assert gin.config_str() == before, name
      assert model.score(['a b'], ['c']) == scores, name
  out = capsys.readouterr().out
  assert 'Syn (R+V), step 7, 1 example: a.npz' in out
  assert 'Syn (D), step 7, 1 example: b.npz' in out
