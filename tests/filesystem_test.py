"""Files and folders, local and in a bucket (TensorFlow's `ram://`)."""

import os

import pytest
import tensorflow as tf

from synth_mtf import checksums, filesystem
from synth_mtf.errors import UserError


@pytest.fixture(params=['local', 'bucket'])
def place(request, tmp_path):
  if request.param == 'local':
    yield str(tmp_path)
    return
  folder = f'ram://{tmp_path}'
  filesystem.make_folder(folder)
  yield folder
  tf.io.gfile.rmtree(folder)


def test_what_is_there(place):
  path = f'{place}/below/a.txt'
  assert not filesystem.exists(path) and not filesystem.is_folder(place + '/x')
  assert filesystem.names(f'{place}/below') == []
  assert filesystem.text(path) is None
  filesystem.make_folder(f'{place}/below')
  with tf.io.gfile.GFile(path, 'wb') as stream:
    stream.write('ü\r\n'.encode())
  assert filesystem.names(f'{place}/below') == ['a.txt']
  assert filesystem.subfolders(place) == ['below']
  assert filesystem.size(path) == 4
  assert filesystem.text(path) == 'ü\r\n'
  with filesystem.reading(path) as stream:
    assert stream.read() == 'ü\r\n'.encode()
  filesystem.remove(path)
  assert not filesystem.exists(path)


def test_errors_are_those_of_the_operating_system(place):
  with pytest.raises(OSError):
    filesystem.read(f'{place}/nothing')
  with tf.io.gfile.GFile(f'{place}/a', 'wb') as stream:
    stream.write(b'\xff')
  with pytest.raises(UserError, match='a cannot be read: .*utf-8'):
    filesystem.text(f'{place}/a')


def test_what_cannot_be_asked_is_no_missing_folder():
  """As a bucket without a network."""
  for question in (filesystem.is_folder, filesystem.names):
    with pytest.raises(OSError, match="scheme 's4' not implemented"):
      question('s4://nobody/run')


def test_the_state_of_a_folder(tmp_path):
  (tmp_path / 'b').mkdir()
  (tmp_path / 'b' / 'a').write_text('1')
  (tmp_path / 'b' / 'again').symlink_to(tmp_path)
  first = filesystem.state(str(tmp_path))
  assert [name for name, *_ in first or ()] == [str(tmp_path / 'b' / 'a')]
  assert filesystem.state(str(tmp_path)) == first
  os.utime(tmp_path / 'b' / 'a', ns=(0, 1))
  assert filesystem.state(str(tmp_path)) != first
  (tmp_path / 'broken').symlink_to(tmp_path / 'nothing')
  assert filesystem.state(str(tmp_path)) is None
  assert filesystem.state('gs://bucket') is None


def test_checksums():
  """RFC 3720's values of CRC-32C, and one in parts."""
  for data, crc in (
    (b'', 0),
    (b'\0' * 32, 0x8A9136AA),
    (b'\xff' * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
  ):
    assert checksums.crc32c(data) == crc
  data = bytes(i * i % 251 for i in range(70_001))
  slow = 0xFFFFFFFF
  for byte in data:
    slow ^= byte
    for _ in range(8):
      slow = slow >> 1 ^ (0x82F63B78 if slow & 1 else 0)
  assert checksums.crc32c(data) == slow ^ 0xFFFFFFFF
