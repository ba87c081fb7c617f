"""Files and folders, local and in a bucket (TensorFlow's `ram://`)."""

import gzip
import os
import re
import resource
import sys

import pytest
import tensorflow as tf

from synth_mtf.errors import UserError
from synth_mtf.storage import checksums, filesystem


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


def test_what_cannot_be_read_is_one_message(place):
  """With the flag or setting, the path, the cause and what to do."""
  path = f'{place}/nothing'
  with pytest.raises(OSError, match='Check ') as caught:
    filesystem.read(path)
  assert isinstance(caught.value, UserError)
  message = str(caught.value)
  assert message.startswith(f'{path} cannot be read: ')
  assert 'No such file' in message or 'NotFoundError' in message
  with (
    pytest.raises(UserError, match=f'^--data_dir: {re.escape(message)}$'),
    filesystem.named_by('--data_dir'),
  ):
    filesystem.size(path)
  with tf.io.gfile.GFile(f'{place}/a', 'wb') as stream:
    stream.write(b'\xff')
  with pytest.raises(UserError, match='a cannot be read: .*utf-8'):
    filesystem.text(f'{place}/a')


def test_a_byte_order_mark_is_not_text(place):
  path = f'{place}/a.txt'
  with tf.io.gfile.GFile(path, 'wb') as stream:
    stream.write(b'\xef\xbb\xbfa')
  assert filesystem.text(path) == 'a'
  assert filesystem.read(path) == b'\xef\xbb\xbfa'


def test_buckets_need_a_tensorflow_that_can_be_imported(monkeypatch):
  monkeypatch.setitem(sys.modules, 'tensorflow', None)
  with pytest.raises(UserError, match='cannot be imported.*synth-mtf doctor'):
    filesystem.exists('gs://bucket/a')


def test_a_file_that_is_too_large_is_not_read(tmp_path):
  """One of 5 GB takes no memory, nor does a small one that unpacks to more."""
  large, packed = tmp_path / 'model.json', tmp_path / 'a.gz'
  large.touch()
  os.truncate(large, 5 << 30)
  packed.write_bytes(gzip.compress(bytes(1 << 20)))
  before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  with pytest.raises(UserError, match='5,368,709,120 bytes or more; a file of'):
    filesystem.text(str(large))
  with pytest.raises(UserError, match='2,001 bytes or more; .* 2,000 at'):
    filesystem.read(str(packed), most=2000)
  after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  assert after - before < 100_000  # kB
  assert filesystem.read(str(packed), most=1 << 20) == bytes(1 << 20)


def test_hidden_names_are_not_listed(place):
  for name in ('a.txt', '.git/b.txt', '__MACOSX/c.txt', '._a.txt', 'd/.e.txt'):
    tf.io.gfile.makedirs(os.path.dirname(f'{place}/x/{name}'))
    with tf.io.gfile.GFile(f'{place}/x/{name}', 'wb') as stream:
      stream.write(b'a')
  assert sorted(filesystem.names(f'{place}/x')) == ['a.txt', 'd']
  assert filesystem.subfolders(f'{place}/x') == ['d']
  assert filesystem.find(place, 'x/**/*.txt') == [f'{place}/x/a.txt']
  # One that is named is meant.
  assert filesystem.find(place, 'x/.git/*.txt') == [f'{place}/x/.git/b.txt']
  assert filesystem.contents(f'{place}/x') == f'{place}/x holds a.txt, d'


def test_what_is_there_in_the_place_of_what_is_missing(tmp_path):
  for name in ('glue/cola/train.tsv', 'glue/CoLA.zip', 'wmt/train.en.gz'):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
  glue = f'{tmp_path}/glue'
  found = filesystem.similar(f'{glue}/CoLA/train.tsv')
  assert found == [f'{glue}/cola', f'{glue}/CoLA.zip']
  assert filesystem.similar(f'{tmp_path}/wmt/train.en') == [
    f'{tmp_path}/wmt/train.en.gz'
  ]
  for path in (f'{tmp_path}/wmt/*.de', glue, 'gs://a/b', '/nowhere/at/all'):
    assert filesystem.similar(path) == []
  assert filesystem.contents(f'{tmp_path}/b') == f'there is no {tmp_path}/b'
  for number in range(9):
    (tmp_path / 'wmt' / f'{number}').touch()
  holds = f'{tmp_path}/wmt holds 0, 1, 2, 3, 4, 5 more'
  assert filesystem.contents(f'{tmp_path}/wmt') == holds


def test_what_cannot_be_asked_is_no_missing_folder():
  """As a bucket without a network."""
  for question in (filesystem.is_folder, filesystem.names):
    with pytest.raises(OSError, match="scheme 's4' not implemented"):
      question('s4://nobody/run')


def test_the_state_of_a_folder(tmp_path):
  (tmp_path / 'b').mkdir()
  (tmp_path / 'b' / 'a').write_text('1')
  (tmp_path / 'b' / 'again').symlink_to(tmp_path)
  first = filesystem.state_below(str(tmp_path))
  assert [name for name, *_ in first or ()] == [str(tmp_path / 'b' / 'a')]
  assert filesystem.state_below(str(tmp_path)) == first
  os.utime(tmp_path / 'b' / 'a', ns=(0, 1))
  assert filesystem.state_below(str(tmp_path)) != first
  (tmp_path / 'broken').symlink_to(tmp_path / 'nothing')
  assert filesystem.state_below(str(tmp_path)) is None
  assert filesystem.state_below('gs://bucket') is None


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
