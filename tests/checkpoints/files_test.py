"""Reading and writing checkpoints."""

import re
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.checkpoints.files import Checkpoint, write
from synth_mtf.errors import UserError

VALUES: dict[str, npt.NDArray[Any]] = {
  'shared/embedding': np.arange(6, dtype=np.float32).reshape(3, 2),
  'encoder/positional_embedding/embedding': np.zeros([5, 2], np.float32),
  'encoder/q': np.ones([2, 4], np.float32),
  'encoder/q/adam_m': np.zeros([2, 4], np.float32),
  'encoder/q_slot_vr': np.zeros([4], np.float32),
  'global_step': np.asarray(11, np.int64),
}


@pytest.fixture
def path(tmp_path):
  return write(str(tmp_path / 'run'), 11, VALUES)


def test_what_is_written_is_read(path, tmp_path):
  assert path == str(tmp_path / 'run' / 'model.ckpt-11')
  for name in (path, f'{path}.index', str(tmp_path / 'run')):
    checkpoint = Checkpoint(name)
    assert checkpoint.path == path
    assert set(checkpoint.variables) == set(VALUES)
    for variable, value in VALUES.items():
      assert variable in checkpoint
      np.testing.assert_array_equal(checkpoint[variable], value)
    checkpoint.verify()
  assert tf.train.latest_checkpoint(str(tmp_path / 'run')) == path


def test_a_full_disk_is_one_line(tmp_path):
  """A limit of the size of files stands for the disk."""
  limit = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))
  try:
    with pytest.raises(UserError) as caught:
      write(str(tmp_path / 'run'), 11, {'a': np.zeros([100_000], np.float32)})
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, limit)
  message = str(caught.value)
  assert re.fullmatch(r'.*/run cannot be written: .*; File too large', message)
  assert not list((tmp_path / 'run').iterdir())


def test_what_it_holds(path):
  checkpoint = Checkpoint(path)
  assert checkpoint.weights == [
    'encoder/positional_embedding/embedding',
    'encoder/q',
    'shared/embedding',
  ]
  assert checkpoint.slots == ['encoder/q/adam_m', 'encoder/q_slot_vr']
  assert checkpoint.parameters == 10 + 8 + 6
  assert checkpoint.step == 11
  assert checkpoint.embeddings == {'shared/embedding': 3}
  assert checkpoint.vocab_size == 3
  assert str(checkpoint.variables['encoder/q']) == 'float32[2, 4]'
  assert 'nothing' not in checkpoint


def test_the_step_may_be_in_the_name_alone(tmp_path):
  path = write(str(tmp_path), 5, {'x': np.ones(2)})
  checkpoint = Checkpoint(path)
  assert checkpoint.step == 5
  with pytest.raises(UserError, match='has no embedding'):
    checkpoint.vocab_size  # noqa: B018


@pytest.mark.parametrize(
  'step',
  [np.float32('nan'), np.float32(7), np.zeros(3, np.int64), np.int64(-1)],
)
def test_a_step_is_a_whole_number(tmp_path, step):
  checkpoint = Checkpoint(write(str(tmp_path), 1, {'global_step': step}))
  with pytest.raises(UserError, match='global_step of .* expected a whole num'):
    _ = checkpoint.step


def test_a_step_may_be_in_the_name_alone_or_unknown(tmp_path):
  path = write(str(tmp_path), 7, {'x': np.zeros(1)})
  assert Checkpoint(path).step == 7
  for file in tmp_path.glob('model.ckpt-7.*'):
    file.rename(tmp_path / file.name.replace('model.ckpt-7', 'best'))
  assert Checkpoint(str(tmp_path / 'best')).step == 0


@pytest.mark.parametrize('shape', [[], [5]])
def test_an_embedding_has_rows(tmp_path, shape):
  value = np.zeros(shape, np.float32)
  checkpoint = Checkpoint(write(str(tmp_path), 1, {'shared/embedding': value}))
  with pytest.raises(UserError, match='embedding of .* is float32.* two dimen'):
    _ = checkpoint.embeddings


def test_a_folder_with_checkpoints_is_not_overwritten(path, tmp_path):
  before = {p: p.read_bytes() for p in (tmp_path / 'run').iterdir()}
  with pytest.raises(UserError, match='already holds model.ckpt-11'):
    write(str(tmp_path / 'run'), 12, VALUES)
  assert {p: p.read_bytes() for p in (tmp_path / 'run').iterdir()} == before


def test_a_folder_that_cannot_be_written(tmp_path):
  (tmp_path / 'file').write_text('')
  with pytest.raises(UserError, match='cannot be written'):
    write(str(tmp_path / 'file' / 'run'), 1, VALUES)


def test_what_is_not_there_is_named(path, tmp_path):
  folder = tmp_path / 'run'
  missing = r'there is no checkpoint .*model.ckpt-9; .* holds model.ckpt-11'
  with pytest.raises(UserError, match=missing):
    Checkpoint(str(folder / 'model.ckpt-9'))
  with pytest.raises(UserError, match='expected a folder that holds one'):
    Checkpoint(str(tmp_path))


_WRITER = """
import os, sys, time, numpy as np
from synth_mtf.checkpoints import files
os.replace = lambda *_: time.sleep(600)  # until it is killed
files.write(sys.argv[1], 1, {'x': np.zeros(2**20, np.float32)})
"""


@pytest.mark.slow
def test_a_killed_process_leaves_no_half(tmp_path):
  """What it wrote is in a folder that the next one removes."""
  folder = tmp_path / 'new'
  process = subprocess.Popen([sys.executable, '-c', _WRITER, folder])
  while not list(folder.glob('.*/*')):
    assert process.poll() is None
    time.sleep(0.001)
  process.kill()
  process.wait()
  assert [p.suffix for p in folder.iterdir()] == ['.partial']
  write(str(folder), 1, {'x': np.zeros(3)})
  names = sorted(path.name for path in folder.iterdir())
  assert names[1:] == ['model.ckpt-1.data-00000-of-00001', 'model.ckpt-1.index']


def test_a_checkpoint_of_t5x_is_recognized(tmp_path):
  folder = tmp_path / 'checkpoint_1000'
  (folder / 'target.encoder').mkdir(parents=True)
  (folder / 'checkpoint').write_bytes(b'\x82\xa7version\x03')
  for path, name in ((folder, 'target.encoder'), (tmp_path, folder.name)):
    with pytest.raises(UserError, match=f'{path} holds {name}, which T5X has'):
      Checkpoint(str(path))
  (tmp_path / 'a').mkdir()
  (tmp_path / 'a' / 'config.json').touch()
  with pytest.raises(UserError, match='model.ckpt-1000. .*a holds config.json'):
    Checkpoint(str(tmp_path / 'a'))


def test_a_place_that_cannot_be_opened():
  with pytest.raises(UserError, match='http://x/y cannot be read: File system'):
    Checkpoint('http://x/y')
