"""Indexes of checkpoints that end the process if TensorFlow reads them."""

import contextlib
import functools
import os
import shutil
import sys

import pytest
import tensorflow.compat.v1 as tf
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import tensor_bundle_pb2

from synth_mtf.checkpoints import files, index_file
from synth_mtf.checkpoints.folder import is_complete
from synth_mtf.errors import UserError
from synth_mtf.storage import filesystem
from tests import checkout
from tests.cli.command import run

NAME = 'shared/embedding'


@pytest.fixture
def path(t5, tmp_path):
  """A copy of that checkpoint."""
  folder = shutil.copytree(os.path.dirname(t5), tmp_path / 'run')
  name = os.path.basename(t5)
  (folder / 'checkpoint').write_text(f'model_checkpoint_path: "{name}"\n')
  return str(folder / name)


def entries(path):
  with open(f'{path}.index', 'rb') as stream:
    return dict(index_file.entries_of(stream.read()))


def number(value):
  data = b''
  while value >= 128:
    data += bytes([value & 127 | 128])
    value >>= 7
  return data + bytes([value])


def block(items, restart=0):
  data = b''
  for key, value in items:
    data += number(0) + number(len(key)) + number(len(value)) + key + value
  data += restart.to_bytes(4, 'little') + (1).to_bytes(4, 'little')
  return data, with_checksum(data)


def with_checksum(data):
  return data + b'\0' + masked(crc32c(data + b'\0'))


def masked(crc):
  rotated = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
  return rotated.to_bytes(4, 'little')


def crc32c(data):
  crc = 0xFFFFFFFF
  for byte in data:
    crc = _of_byte((crc ^ byte) & 255) ^ crc >> 8
  return crc ^ 0xFFFFFFFF


@functools.cache
def _of_byte(crc):
  for _ in range(8):
    crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
  return crc


def write(path, items, restart=0):
  """Writes an index, each key in full; `items` are a mapping or pairs."""
  pairs = sorted(items.items()) if isinstance(items, dict) else items
  body, whole = block(pairs, restart)
  _, meta = block([])
  place = number(0) + number(len(body))
  index, whole_index = block([(b'\xff', place)])
  start = len(whole) + len(meta)
  footer = number(len(whole)) + number(8) + number(start) + number(len(index))
  with open(f'{path}.index', 'wb') as stream:
    stream.write(whole + meta + whole_index)
    stream.write(footer.ljust(40, b'\0') + index_file.MAGIC)


def change(path, change_entry, name=NAME):
  """Changes the entry of a variable, or the header."""
  items = entries(path)
  made = tensor_bundle_pb2
  proto = made.BundleEntryProto if name else made.BundleHeaderProto
  entry = proto.FromString(items[name.encode()])
  change_entry(entry)
  items[name.encode()] = entry.SerializeToString()
  write(path, items)


def test_the_index_as_it_is_and_as_written_here_can_be_read(path):
  before = files.Checkpoint(path).variables
  items = entries(path)
  assert {name.decode() for name in items} == {'', *before}
  write(path, items)
  again = files.Checkpoint(path)
  assert again.variables == before and is_complete(path)
  assert tf.train.load_checkpoint(path).has_tensor(NAME)


def sized(*sizes):
  def change_entry(entry):
    entry.shape.ClearField('dim')
    for size in sizes:
      entry.shape.dim.add(size=size)

  return change_entry


def setting(name, value):
  def change_entry(entry):
    *parents, last = name.split('.')
    for parent in parents:
      entry = getattr(entry, parent)
    setattr(entry, last, value)

  return change_entry


@pytest.mark.parametrize(
  'change_entry, message',
  [
    (sized(-1, 24), r'has the shape \[-1, 24\]'),
    (sized(*[1] * 255), 'has 255 dimensions'),
    (sized(2**40, 2**40), 'has the shape'),
    (sized(2**40, 24), 'expected 26,388,279,066,624 x 4'),
    (sized(), 'expected 1 x 4'),
    (setting('shape.unknown_rank', True), 'has 2 dimensions'),
    (setting('dtype', types_pb2.DT_FLOAT_REF), 'has the type 101'),
    (setting('dtype', types_pb2.DT_RESOURCE), 'has the type 20'),
    (setting('dtype', 999), 'has the type 999'),
    (setting('dtype', 0), 'has the type 0'),
    (setting('offset', -8), 'is at byte -8'),
    (setting('offset', 2**60), 'is beyond the end of its data file'),
    (setting('size', -1), 'with -1 bytes'),
    (setting('shard_id', 1), 'is in data file 1 of 1'),
    (setting('shard_id', -1), 'is in data file -1 of 1'),
    (lambda e: e.slices.add(), 'is stored in slices'),
  ],
)
def test_an_entry_that_ends_the_process(path, change_entry, message):
  change(path, change_entry)
  with pytest.raises(UserError, match=f'cannot be read: .*{NAME}.*{message}'):
    files.Checkpoint(path)
  assert not is_complete(path)


@pytest.mark.parametrize(
  'change_header, message',
  [
    (setting('version.min_consumer', 9), 'needs a reader of version 9'),
    (setting('endianness', 1), 'big-endian'),
    (setting('num_shards', 0), 'has 0 data files'),
    (setting('num_shards', -1), 'has -1 data files'),
    (setting('num_shards', 2), 'model.ckpt-7.data-00000-of-00002 is missing'),
  ],
)
def test_a_header_that_ends_the_process(path, change_header, message):
  change(path, change_header, name='')
  with pytest.raises(UserError, match=f'cannot be read: .*{message}'):
    files.Checkpoint(path)


@pytest.mark.parametrize(
  'key, value, message',
  [
    (b'x', b'\xff\xff\xff', 'does not parse'),
    (b'caf\xe9', b'', 'is not UTF-8|has the type 0'),
    (b'', b'\xff', 'does not parse'),
  ],
)
def test_a_garbage_entry(path, key, value, message):
  write(path, {**entries(path), key: value})
  with pytest.raises(UserError, match=f'cannot be read: .*({message})'):
    files.Checkpoint(path)


def test_a_name_that_is_not_utf_8(path):
  items = entries(path)
  write(path, {**items, b'caf\xe9': items[NAME.encode()]})
  with pytest.raises(UserError, match=r"the name b'caf.xe9' is not UTF-8"):
    files.Checkpoint(path)


@pytest.mark.parametrize('name', ['index', 'data-00000-of-00001'])
def test_a_pointer_of_git_lfs(path, name):
  with open(f'{path}.{name}', 'wb') as stream:
    stream.write(b'version https://git-lfs.github.com/spec/v1\noid sha256:46')
  with pytest.raises(
    UserError, match='is a pointer of Git LFS; .*git lfs pull'
  ):
    files.Checkpoint(path).verify()


@pytest.mark.parametrize('name', ['index', 'data-00000-of-00001'])
def test_what_may_not_be_read_is_not_damaged(path, name, monkeypatch):
  """Root may read all files."""
  file = f'{path}.{name}'
  reading = filesystem.reading

  def reading_as_nobody(path):
    if path == file:
      with filesystem.explained(path):
        raise PermissionError(13, 'Permission denied', path)
    return reading(path)

  monkeypatch.setattr(filesystem, 'reading', reading_as_nobody)
  monkeypatch.setattr(os, 'access', lambda path, _: path != file)
  with pytest.raises(UserError) as caught:
    files.Checkpoint(path)
  assert f"Permission denied: '{file}'" in str(caught.value)
  assert 'damaged' not in str(caught.value)


def test_a_folder_of_the_name_of_its_data(path):
  os.remove(f'{path}.data-00000-of-00001')
  os.mkdir(f'{path}.data-00000-of-00001')
  with pytest.raises(UserError, match='data-00000-of-00001 is a folder'):
    files.Checkpoint(path).verify()


@pytest.mark.parametrize('count', range(0, 4000, 97))
def test_bytes_that_are_changed_or_missing(path, count):
  with open(f'{path}.index', 'rb') as stream:
    data = bytearray(stream.read())
  place = count % len(data)
  whole = bytes(data)
  data[place] ^= 0x55
  for damaged in (whole[:place], bytes(data)):
    with open(f'{path}.index', 'wb') as stream:
      stream.write(damaged)
    try:
      files.Checkpoint(path).verify()
    except UserError as error:
      assert 'cannot be read' in str(error)


def test_a_name_that_would_be_two_lines(path):
  items = entries(path)
  items[b'zzz\nb'] = items[NAME.encode()]
  write(path, items)
  with pytest.raises(UserError, match=r"name 'zzz\\nb' has control characters"):
    files.Checkpoint(path)


def test_a_name_that_is_there_twice(path):
  """TensorFlow reads both, or the first."""
  pairs = sorted(entries(path).items())
  for wrong in ([pairs[0], pairs[1], *pairs[1:]], pairs[::-1]):
    write(path, wrong)
    with pytest.raises(UserError, match='a name twice, or names out of order'):
      files.Checkpoint(path)


def test_a_search_that_would_begin_inside_an_entry(path):
  write(path, entries(path), restart=5)
  with pytest.raises(UserError, match='its index has a broken block'):
    files.Checkpoint(path)


def test_texts_that_do_not_fit_in_their_bytes(path):
  def change_entry(entry):
    entry.dtype = types_pb2.DT_STRING
    entry.shape.dim[0].size = 2**40

  change(path, change_entry)
  with pytest.raises(UserError, match='26,388,279,066,624 texts in 12,288 byt'):
    files.Checkpoint(path)


@pytest.fixture
def texts(tmp_path):
  """A checkpoint of three texts."""
  path = str(tmp_path / 'model.ckpt-1')
  with tf.Graph().as_default(), tf.Session() as session:
    values = tf.constant(['a', 'of some length', 'x' * 300])
    session.run(tf.raw_ops.SaveV2(
      prefix=path, tensor_names=['names'], shape_and_slices=[''],
      tensors=[values],
    ))  # fmt: skip
  return path


def with_lengths(path, lengths):
  """Writes lengths of texts into the data file, with their checksums.

  TensorFlow's checksum of lengths counts each as 4 bytes, or 8 if it is larger.
  """
  shard = f'{path}.data-00000-of-00001'
  data = b''.join(map(number, lengths))
  fixed = b''.join(n.to_bytes(4 if n < 2**32 else 8, 'little') for n in lengths)
  data += masked(crc32c(fixed)) + b'y' * 100
  with open(shard, 'wb') as stream:
    stream.write(data)

  def change_entry(entry):
    entry.size = len(data)

  change(path, change_entry, 'names')


def test_texts_are_read(texts):
  assert files.Checkpoint(texts)['names'].tolist()[:2] == [
    b'a',
    b'of some length',
  ]


@pytest.mark.parametrize('length', [2**31, 2**40, 2**63, 2**64 - 1, 100])
def test_a_length_of_a_text_that_ends_the_process(texts, length):
  with_lengths(texts, [1, length, 0])
  with pytest.raises(UserError, match=r"'names' has texts of [0-9,]* bytes in"):
    files.Checkpoint(texts)


def test_a_length_without_an_end(texts):
  with open(f'{texts}.data-00000-of-00001', 'r+b') as stream:
    stream.write(b'\xff' * 12)
  with pytest.raises(UserError, match="'names' has a text without a length"):
    files.Checkpoint(texts)


def test_more_texts_than_any_model_has(texts):
  def change_entry(entry):
    entry.shape.dim[0].size = entry.size = 1 << 21

  change(texts, change_entry, 'names')
  with open(f'{texts}.data-00000-of-00001', 'ab') as stream:
    stream.truncate(1 << 21)
  with pytest.raises(UserError, match='has 2,097,152 texts; no model has more'):
    files.Checkpoint(texts)


def change_each_bit(path):
  """Opens a checkpoint with each bit of its index changed in turn.

  Checksums fit, so that TensorFlow does not notice.
  """
  with open(f'{path}.index', 'rb') as stream:
    data = stream.read()
  # The block of entries ends where the empty one of the metadata begins.
  end = data.index(with_checksum(block([])[0])) - 5
  for place in range(8 * end):
    changed = bytearray(data[:end])
    changed[place // 8] ^= 1 << place % 8
    with open(f'{path}.index', 'wb') as stream:
      stream.write(with_checksum(changed) + data[end + 5 :])
    with contextlib.suppress(UserError):
      checkpoint = files.Checkpoint(path)
      for name in checkpoint.variables:
        with contextlib.suppress(UserError):
          checkpoint[name]
  print(f'{8 * end} bits')


@pytest.mark.slow  # opens two thousand checkpoints
def test_no_changed_bit_ends_the_process(path):
  """An index of the header and of one variable of each number of dimensions."""
  one_of_each = {}
  for name, spec in files.Checkpoint(path).variables.items():
    one_of_each[len(spec.shape)] = name.encode()
  assert one_of_each.keys() == {0, 1, 2}
  every = entries(path)
  write(path, {name: every[name] for name in (b'', *one_of_each.values())})
  program = f'import {__name__} as test; test.change_each_bit({path!r})'
  found = checkout.run(sys.executable, '-c', program)
  assert int(found.stdout.split()[-2]) > 1000


@pytest.mark.parametrize(
  'words',
  [
    'checkpoint inspect {run}',
    'checkpoint compare {run} {run}',
    'attention {run} --out {run}/a.npz',
    pytest.param(
      'checkpoint export --to=hf {run} {run}/new', marks=pytest.mark.hf
    ),
  ],
)
def test_each_command_prints_one_message(path, words):
  if 'export' in words:
    pytest.importorskip('torch', reason='needs the extra [hf]')
  change(path, sized(-1, 24))
  status, _, err = run(*words.format(run=os.path.dirname(path)).split())
  assert status == 2 and 'has the shape [-1, 24]' in err, err
