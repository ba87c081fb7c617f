"""A run refuses a cache whose files are not those that were written."""

import json
import shutil

import pytest
import tensorflow.compat.v1 as tf

from synth_mtf import tasks
from synth_mtf.errors import UserError
from synth_mtf.tasks import cache_damage, cache_record, cached, caching
from tests.cli import command
from tests.tasks import caches

RTE = 'synth_glue_rte_v002'
WNLI = 'synth_glue_wnli_v002'
SPLIT = 'validation'


@pytest.fixture(scope='module')
def intact(made_data, tmp_path_factory):
  """Caches of two tasks with labels."""
  folder = tmp_path_factory.mktemp('intact')
  status, _, err = command.run(
    *('cache', f'--task={RTE},{WNLI}', f'--out={folder}'),
    *('--vocabulary=bytes', f'--data_dir={made_data}'),
  )
  assert status == 0, err
  return folder


@pytest.fixture
def cache(intact, made_data, tmp_path, monkeypatch):
  """A copy of both, which seqio searches."""
  monkeypatch.setenv('SYNTH_MTF_DATA_DIR', str(made_data))
  folder = tmp_path / 'cache'
  shutil.copytree(intact, folder)
  with caches.used(str(folder)):
    yield folder


def files(folder, split=SPLIT):
  return sorted(folder.glob(f'{split}.tfrecord-*'))


def cut(path):
  """Cuts a file off after its first example."""
  records = list(tf.python_io.tf_record_iterator(str(path)))
  with tf.io.TFRecordWriter(str(path)) as writer:
    writer.write(records[0])
  assert len(records) > 1


def edit(path, **changes):
  content = json.loads(path.read_text())
  path.write_text(json.dumps({**content, **changes}))


def refused(split=SPLIT):
  with pytest.raises(UserError) as caught:
    cached.check(RTE, split)
  return str(caught.value)


def forget_record(cache):
  """Makes a cache as seqio's own job leaves it."""
  (cache / RTE / cache_record.RECORD).unlink()


def test_what_is_intact_is_read(cache):
  cached.check(RTE, SPLIT)
  cached.check(RTE, 'train')
  forget_record(cache)
  cached.check(RTE, SPLIT)
  cached.check(RTE, 'train')


class TestWithARecord:
  def test_a_file_that_was_cut_off(self, cache, made_data):
    (path,) = files(cache / RTE)
    size = path.stat().st_size
    content = path.read_bytes()
    cut(path)
    message = refused()
    assert (
      f'{RTE} is damaged: {path.name} has {path.stat().st_size:,} bytes; '
      f'{size:,} were written.'
    ) in message
    line = message.splitlines()[-1]
    assert line.startswith(f'synth-mtf cache --task={RTE},{WNLI} ')
    assert line.endswith(f' --out={cache}')  # it has been copied
    # As the message says:
    path.unlink()
    assert command.run(*line.split()[1:])[0] == 0
    assert path.read_bytes() == content
    cached.check(RTE, SPLIT)

  def test_an_empty_file(self, cache):
    (path,) = files(cache / RTE)
    path.write_bytes(b'')
    assert f'{path.name} has 0 bytes' in refused()

  def test_the_file_of_another_task(self, cache):
    (path,) = files(cache / RTE)
    (other,) = files(cache / WNLI)
    shutil.copy(other, path)
    assert f'{path.name} has ' in refused()

  def test_other_examples_of_the_same_size(self, cache):
    (path,) = files(cache / RTE)
    records = list(tf.python_io.tf_record_iterator(str(path)))
    with tf.io.TFRecordWriter(str(path)) as writer:
      for record in reversed(records):
        writer.write(record)
    message = refused()
    assert 'with the digest' in message and path.name in message

  def test_a_large_split_is_not_read(self, cache, monkeypatch):
    monkeypatch.setattr(cache_damage, '_MOST_BYTES_READ', 1000)
    (path,) = files(cache / RTE)
    content = path.read_bytes()
    path.write_bytes(content[:40] + bytes([content[40] ^ 1]) + content[41:])
    cached.check(RTE, SPLIT)
    path.write_bytes(content[:-16])
    assert f'{path.name} has {len(content) - 16:,} bytes' in refused()

  @pytest.mark.parametrize(
    ('kind', 'changes', 'fault'),
    [
      ('info', {'num_shards': 11}, 'num_shards is 11; 1 was written'),
      ('info', {'features': {}}, 'features is {}; '),
      ('stats', {'examples': 7}, 'examples is 7; '),
    ],
  )
  def test_a_description_that_lies(self, cache, kind, changes, fault):
    path = cache / RTE / f'{kind}.{SPLIT}.json'
    edit(path, **changes)
    assert f'in {path.name}, {fault}' in refused()

  @pytest.mark.parametrize('kind', ['info', 'stats'])
  def test_a_description_that_is_gone(self, cache, kind):
    (cache / RTE / f'{kind}.{SPLIT}.json').unlink()
    assert f'{kind}.{SPLIT}.json is missing' in refused()

  def test_a_file_that_seqio_would_read_as_well(self, cache):
    """Its pattern is `validation.tfrecord-*-of-*1`."""
    (path,) = files(cache / RTE)
    other = path.with_name(f'{SPLIT}.tfrecord-00003-of-00021')
    shutil.copy(path, other)
    assert len(list(path.parent.glob(f'{SPLIT}.tfrecord-*-of-*1'))) == 2
    assert f'{other.name} is not part of it' in refused()

  def test_the_folder_of_another_task(self, cache):
    shutil.rmtree(cache / RTE)
    shutil.copytree(cache / WNLI, cache / RTE)
    assert f'is that of the task {WNLI}' in refused()

  def test_many_faults_are_a_short_message(
    self, made_data, tmp_path, monkeypatch
  ):
    monkeypatch.setattr(caching, '_ROWS_PER_SHARD', 40)
    monkeypatch.setenv('SYNTH_MTF_DATA_DIR', str(made_data))
    words = 'cache', f'--task={RTE}', f'--out={tmp_path}', '--vocabulary=bytes'
    assert command.run(*words)[0] == 0
    with caches.used(str(tmp_path)):
      cached.check(RTE, 'train')
      paths = files(tmp_path / RTE, 'train')
      for path in paths:
        path.write_bytes(b'')
      message = refused('train')
    assert f'; and {len(paths) - 3} more. ' in message
    assert message.count(' has 0 bytes') == 3


class TestOfSeqiosOwnJob:
  @pytest.fixture(autouse=True)
  def written(self, cache):
    forget_record(cache)

  def test_a_file_that_was_cut_off(self, cache):
    stats = json.loads((cache / RTE / f'stats.{SPLIT}.json').read_text())
    cut(*files(cache / RTE))
    assert (
      f"examples of '{SPLIT}' are 1; {stats['examples']} were written"
    ) in refused()

  def test_a_file_that_was_cut_off_anywhere(self, cache):
    (path,) = files(cache / RTE)
    path.write_bytes(path.read_bytes()[:-5])
    assert f'{path.name} cannot be read (' in refused()

  def test_the_file_of_another_task(self, cache):
    (path,) = files(cache / RTE)
    (other,) = files(cache / WNLI)
    shutil.copy(other, path)
    assert f"inputs_tokens of '{SPLIT}' are " in refused()

  def test_a_file_of_something_else(self, cache):
    (path,) = files(cache / RTE)
    with tf.io.TFRecordWriter(str(path)) as writer:
      writer.write(b'no example')
    assert f'{path.name} cannot be read (' in refused()

  def test_an_empty_file(self, cache):
    (path,) = files(cache / RTE)
    path.write_bytes(b'')
    assert f"it has no example of '{SPLIT}'" in refused()

  def test_empty_files_among_others(self, cache):
    """By default, the job writes at least 64 files."""
    (path,) = files(cache / RTE)
    path.rename(path.with_name(f'{SPLIT}.tfrecord-00000-of-00002'))
    edit(cache / RTE / f'info.{SPLIT}.json', num_shards=2)
    message = refused()
    assert f'{SPLIT}.tfrecord-00001-of-00002 is missing' in message
    path.with_name(f'{SPLIT}.tfrecord-00001-of-00002').touch()
    cached.check(RTE, SPLIT)

  @pytest.mark.parametrize('kind', ['info', 'stats'])
  def test_a_description_that_is_gone_or_damaged(self, cache, kind):
    path = cache / RTE / f'{kind}.{SPLIT}.json'
    path.write_text('{')
    assert f'{path} is damaged' in refused()
    path.unlink()
    assert f'{path.name} is missing' in refused()

  @pytest.mark.parametrize('count', [None, '1', 0, True, 1.0, 10**9, -1, [1]])
  def test_a_number_of_files_that_is_none(self, cache, count):
    edit(cache / RTE / f'info.{SPLIT}.json', num_shards=count)
    assert f'num_shards is {count!r}; expected a number' in refused()

  @pytest.mark.parametrize(
    'features, message',
    [
      (None, f'info.{SPLIT}.json is damaged'),
      ([1], f'info.{SPLIT}.json is damaged'),
      ({'idx': 3}, f'info.{SPLIT}.json is damaged'),
      ({'idx': {'shape': None, 'dtype': 'int32'}}, 'is damaged'),
      ({'idx': {'shape': ['a'], 'dtype': 'int32'}}, "shape of 'idx' is ['a']"),
      ({'idx': {'shape': [], 'dtype': 'int31'}}, "'idx' has the dtype 'int31'"),
      ({'idx': {'shape': [], 'dtype': 'string'}}, 'do not hold what info'),
      ({'other': {'shape': [], 'dtype': 'int32'}}, 'do not hold what info'),
      ({'targets': {'shape': [7], 'dtype': 'int32'}}, 'do not hold what info'),
      ({}, 'do not hold what info'),
      ({'idx': {'shape': [], 'dtype': 'int32'}}, 'leaves out inputs'),
    ],
  )
  def test_a_description_of_other_features(self, cache, features, message):
    edit(cache / RTE / f'info.{SPLIT}.json', features=features)
    assert message in refused()

  @pytest.mark.parametrize('count', [None, '1', True, -1, [1], {}, 1e400])
  def test_statistics_that_are_no_numbers(self, cache, count):
    path = cache / RTE / f'stats.{SPLIT}.json'
    for name in ('examples', 'inputs_tokens'):
      before = path.read_text()
      edit(path, **{name: count})
      assert f'{name} is {count!r}; expected a number' in refused()
      path.write_text(before)
    path.write_text('[]')
    assert f'{path} is damaged' in refused()

  def test_a_split_that_is_absent(self, cache):
    for path in (cache / RTE).glob(f'*{SPLIT}*'):
      path.unlink()
    assert f'info.{SPLIT}.json is missing' in refused()
    assert f"{RTE} has no split 'no' in the cache; it has tr" in refused('no')

  def test_on_a_host_without_the_files(self, cache, monkeypatch):
    """Its own files say which splits there are, and how many examples."""
    examples = json.loads((cache / RTE / 'stats.train.json').read_text())
    monkeypatch.delenv('SYNTH_MTF_DATA_DIR')
    monkeypatch.setenv('SYNTH_MTF_CACHE_DIR', str(cache))
    task = tasks.get(RTE)
    assert sorted(task.splits) == ['train', 'validation']
    assert task.num_input_examples('train') == examples['examples']
    assert tasks.inspection.digest(RTE, SPLIT) == ''
    cached.check(RTE, SPLIT)
    assert f"{RTE} has no split 'no' in the cache; it has tr" in refused('no')

  def test_one_with_no_more_than_its_mark(self, cache, monkeypatch):
    monkeypatch.delenv('SYNTH_MTF_DATA_DIR')
    monkeypatch.setenv('SYNTH_MTF_CACHE_DIR', str(cache))
    for path in (cache / RTE).iterdir():
      if path.name != cache_record.COMPLETED:
        path.unlink()
    message = refused()
    assert f'{cache / RTE} has no split: there is no info.' in message
