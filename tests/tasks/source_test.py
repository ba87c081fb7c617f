"""A folder of files as a source: order, shards, counts, seqio's own tools."""

import collections
import gzip
import json
import subprocess
import sys
import tracemalloc
import unittest.mock

import gin
import pytest
import seqio
import tensorflow.compat.v1 as tf

from synth_mtf import tasks
from synth_mtf.cli.data import print_odd
from synth_mtf.errors import UserError
from synth_mtf.storage import filesystem
from synth_mtf.tasks import cached
from synth_mtf.tasks.files import index, source
from synth_mtf.tasks.glue import GlueReader
from tests.cli import command
from tests.tasks import folder
from tests.tasks.rows import run


def test_other_spellings_of_the_layout(data_dir):
  row = {'question': 'q', 'passage': 'p', 'idx': 0, 'label': True}
  folder.write(data_dir / 'glue_data/CoLA/train.tsv', b'x\t1\t\tA sentence.\n')
  folder.write(data_dir / 'BoolQ/train.jsonl', json.dumps(row).encode() + b'\n')
  tasks.check([folder.COLA, 'synth_super_glue_boolq_v102'], ['train'])


def test_source_of_a_single_task(data_dir, tmp_path):
  other = tmp_path / 'other'
  folder.write(other / 'glue/CoLA/train.tsv', b'x\t1\t\tFrom elsewhere.\n')
  gin.bind_parameter(
    'synth_mtf.tasks.settings.task_data_dirs',
    {'synth_glue_rte*': 'tfds', 'synth_glue_c*': str(other)},
  )
  assert folder.sentences(shuffle=False) == [b'From elsewhere.']
  rte = tasks.get('synth_glue_rte_v002').source.chosen
  assert isinstance(rte, seqio.TfdsDataSource)
  sst2 = tasks.get('synth_glue_sst2_v002').source
  with pytest.raises(UserError, match=str(data_dir)):
    sst2.get_dataset('train')


@pytest.mark.slow  # reads a task again and again
def test_shuffling_repeats_with_its_seed_and_loses_nothing(data_dir):
  folder.write_cola(data_dir, 3000)
  in_order = [f'Sentence {i}.'.encode() for i in range(3000)]
  assert folder.sentences(shuffle=False) == in_order
  first = folder.sentences(shuffle=True, seed=1)
  assert first == folder.sentences(shuffle=True, seed=1)
  assert first != folder.sentences(shuffle=True, seed=2)
  assert sorted(first) == sorted(in_order)
  # Neighbours in the stream come from all over the file.
  numbers = [int(sentence.split()[1][:-1]) for sentence in first[:48]]
  assert max(numbers) - min(numbers) > 1500


@pytest.mark.sampled
@pytest.mark.parametrize('num_shards, shuffle', [(2, False), (5, True)])
@pytest.mark.parametrize(
  'large', [False, pytest.param(True, marks=pytest.mark.slow)]
)
def test_shards_share_the_rows(
  num_shards, shuffle, large, data_dir, monkeypatch
):
  if large:
    monkeypatch.setattr(source, '_SMALL_BYTES', 0)
  folder.write_cola(data_dir, 1500)
  shards = [
    folder.sentences(
      shuffle=shuffle, seed=3, shard_info=seqio.ShardInfo(i, num_shards)
    )
    for i in range(num_shards)
  ]
  together = [sentence for shard in shards for sentence in shard]
  assert sorted(together) == sorted(folder.sentences(shuffle=False))
  assert all(shards)


@pytest.mark.slow  # reads text again and again
def test_packed_and_plain_files_stream_together(data_dir):
  texts = [b'Text number %d, of some length.' % i for i in range(2000)]
  lines = [json.dumps({'text': t.decode()}).encode() for t in texts[1000:]]
  for name, data in {
    'a.txt': b'\n\n'.join(texts[:500]),
    'deep/er/b.txt.gz': gzip.compress(b'\n\n'.join(texts[500:1000])),
    'c.jsonl': b'\n'.join(lines[:500]),
    'd.json.gz': gzip.compress(b'\n'.join(lines[500:])),
  }.items():
    folder.write(data_dir / 'corpus' / name, data)
  train = folder.texts(shuffle=False)
  held_out = folder.texts('validation', shuffle=False)
  assert sorted(train + held_out) == sorted(texts)
  assert 15 <= len(held_out) <= 70  # one in fifty
  assert sorted(folder.texts(shuffle=True, seed=1)) == sorted(train)
  sharded = [
    folder.texts(shuffle=True, seed=1, shard_info=seqio.ShardInfo(i, 3))
    for i in range(3)
  ]
  assert sorted(sum(sharded, [])) == sorted(train)
  assert tasks.get(folder.TEXT).num_input_examples('train') == len(train)


@pytest.mark.parametrize('part_bytes', [7, 31, 1000])
def test_parts_of_a_corpus_lose_no_line(part_bytes, data_dir, monkeypatch):
  lines = [b'Line %d has some words in it.' % i for i in range(300)]
  folder.write(data_dir / 'corpus/a.txt', b'\n\n'.join(lines) + b'\n')
  monkeypatch.setattr(source, '_PART_BYTES', part_bytes)
  texts = folder.texts(shuffle=False)
  texts += folder.texts('validation', shuffle=False)
  read = collections.Counter(b'\n'.join(texts).split(b'\n'))
  assert read == collections.Counter(lines)


def test_large_text_is_not_counted(data_dir, monkeypatch):
  path = folder.write(data_dir / 'corpus/a.txt', b'A text.\n\nAnother.\n')
  monkeypatch.setattr(source, '_LARGE_BYTES', 5)
  monkeypatch.setattr(source, '_FIRST_ROWS', 1)
  assert tasks.get(folder.TEXT).num_input_examples('train') is None
  path.write_bytes(b'A text.\n\nA caf\xe9.\n')
  tasks.check([folder.TEXT], ['train'])
  path.write_bytes(b'A caf\xe9.\n\nA text.')
  with pytest.raises(UserError, match=f'{path}:1: the byte 0xe9'):
    tasks.check([folder.TEXT], ['train'])


def test_rows_are_counted_once_until_the_file_changes(data_dir, monkeypatch):
  folder.write_cola(data_dir, 300)
  task = tasks.get(folder.COLA)
  find = unittest.mock.Mock(wraps=filesystem.find)
  monkeypatch.setattr(filesystem, 'find', find)
  index.of_states.cache_clear()
  task.get_dataset({'inputs': 9, 'targets': 9}, 'train')
  assert index.of_states.cache_info().misses == 1
  assert find.call_count < 16
  assert task.num_input_examples('train') == 300
  with monkeypatch.context() as patched:
    patched.setattr(index, 'scan', None)  # must not be called
    assert task.num_input_examples('train') == 300
    index.of_states.cache_clear()  # as in another process
    assert task.num_input_examples('train') == 300
    assert len(folder.sentences(shuffle=False)) == 300
  folder.write_cola(data_dir, 300, start=1)
  assert folder.sentences(shuffle=False)[0] == b'Sentence 1.'
  folder.write_cola(data_dir, 200)
  assert task.num_input_examples('train') == 200


def test_counts_are_kept_in_the_index_folder(data_dir, tmp_path):
  folder.write_cola(data_dir, 5)
  run_dir = tmp_path / 'run'
  gin.bind_parameter('synth_mtf.tasks.settings.index_dir', str(run_dir))
  task = tasks.get(folder.COLA)
  assert task.num_input_examples('train') == 5
  (stored,) = run_dir.iterdir()
  (kept,) = json.loads(stored.read_text()).values()
  assert kept['num_examples'] == 5
  # Neither a damaged index is an obstacle, nor a folder that cannot have one.
  for damage in (lambda: stored.write_text('{"damaged"'), stored.unlink):
    damage()
    index.of_states.cache_clear()
    assert task.num_input_examples('train') == 5
  gin.bind_parameter('synth_mtf.tasks.settings.index_dir', str(stored))
  assert task.num_input_examples('train') == 5


def test_many_files_have_one_index(data_dir, tmp_path, monkeypatch):
  index_dir = tmp_path / 'index'
  gin.bind_parameter('synth_mtf.tasks.settings.index_dir', str(index_dir))
  for number in range(300):
    text = f'Text {number} is one of many.\n'
    folder.write(data_dir / f'corpus/{number % 7}/{number}.txt', text.encode())
  tasks.check([folder.TEXT], ['train'])
  assert len([*index_dir.iterdir()]) == 1
  scan = unittest.mock.Mock(wraps=index.scan)
  monkeypatch.setattr(index, 'scan', scan)
  index.of_states.cache_clear()  # as in another process
  tasks.check([folder.TEXT], ['train'])
  assert scan.call_count == 0
  # Only the changed file is read again, and a new one for the first time.
  changed = folder.write(data_dir / 'corpus/1/1.txt', b'Another text.\n')
  new = folder.write(data_dir / 'corpus/new.txt', b'A new text.\n')
  tasks.check([folder.TEXT], ['train'])
  assert {call.args[0] for call in scan.call_args_list} == {
    str(changed),
    str(new),
  }
  (stored,) = index_dir.iterdir()
  for damage in ('[]', '{', '{"a": 1}', '[' * 100_000):
    stored.write_text(damage)
    index.of_states.cache_clear()
    tasks.check([folder.TEXT], ['train'])


def test_first_rows_of_large_text_are_read_once(data_dir, monkeypatch):
  folder.write(data_dir / 'corpus/a.txt', b'A text.\n\nAnother.\n')
  monkeypatch.setattr(source, '_LARGE_BYTES', 5)
  tasks.check([folder.TEXT], ['train'])
  monkeypatch.setattr(index, 'scan', None)  # must not be called
  index.of_states.cache_clear()
  tasks.check([folder.TEXT], ['train'])


def test_faults_of_many_files_are_one_short_message(data_dir, capsys):
  for number in range(300):
    folder.write(data_dir / f'corpus/{number}.txt', b'A caf\xe9.\n\n' * 30)
  with pytest.raises(
    UserError, match='\n290 more files have faults\n'
  ) as error:
    tasks.check([folder.TEXT], ['train'])
  assert len(str(error.value).splitlines()) < 300
  splits = tasks.inspection.splits_of(tasks.get(folder.TEXT))
  assert print_odd(splits)
  *shown, last = capsys.readouterr().out.splitlines()
  assert len(shown) == 50 and last == '6,250 more such lines'


def test_no_rows_in_many_files_are_one_short_message(data_dir):
  for number in range(300):
    folder.write(data_dir / f'corpus/{number}.txt', b'')
  with pytest.raises(UserError, match=r'no rows in .*, \.\.\.; exp') as error:
    tasks.check([folder.TEXT], ['train'])
  assert str(error.value).count('.txt') == 10


@pytest.mark.parametrize(
  'text',
  [b'<doc id="1">\nA text.\n', b'\xef\xbb\xbf<?xml version="1.0"?>\n<a/>\n'],
)
def test_markup_in_text_is_reported(data_dir, text):
  folder.write(data_dir / 'corpus/a.txt', text)
  folder.write(data_dir / 'corpus/b.txt', b'A <doc> in a text.\n')
  notes = tasks.check([folder.TEXT], ['train'])
  shown = [note for note in notes if 'SGML' in note]
  assert len(shown) == 1 and 'a.txt:1: SGML, XML or HTML' in shown[0]


def test_memory_does_not_grow_with_the_file(tmp_path):
  reader = GlueReader('cola', labelled=True)
  peaks = []
  for megabytes in (4, 16):
    line = b'x\t1\t\t' + b'word ' * 200 + b'.\n'
    path = folder.write(
      tmp_path / f'{megabytes}.tsv', line * (megabytes * 1000)
    )
    tracemalloc.start()
    file = index.scan(str(path), reader)
    rows = sum(1 for part in file.parts() for _ in index.read(part))
    peaks.append(tracemalloc.get_traced_memory()[1])
    tracemalloc.stop()
    assert rows == file.num_examples == megabytes * 1000
  assert peaks[1] < peaks[0] + 200_000
  assert peaks[1] < 4_000_000


@pytest.mark.slow  # a process of its own
def test_cache_job_of_seqio(some_data, tmp_path, monkeypatch):
  """seqio's own command caches the task's rows, and ours writes the same."""
  pytest.importorskip('apache_beam', reason='needs the extra [cache]')
  name = 'synth_super_glue_record_v102'
  monkeypatch.setenv('SYNTH_MTF_DATA_DIR', str(some_data))
  job = [sys.executable, '-m', 'seqio.scripts.cache_tasks_main']
  job += ['--module_import=synth_mtf.tasks', f'--tasks={name}']
  subprocess.run([*job, f'--output_cache_dir={tmp_path}'], check=True)
  assert (tmp_path / name / 'COMPLETED').exists()
  before = seqio.get_global_cache_dirs()
  seqio.add_global_cache_dirs([str(tmp_path)])
  try:
    cached.check(name, 'train')
    stored, direct = (_tokens(name, use_cached) for use_cached in (True, False))
  finally:
    seqio.set_global_cache_dirs(before)
  assert stored == direct
  ours = tmp_path / 'ours'
  words = 'cache', f'--task={name}', '--vocabulary=bytes', f'--out={ours}'
  assert command.run(*words)[0] == 0
  for path in (tmp_path / name).glob('*.json'):
    theirs = json.loads(path.read_text())
    written = json.loads((ours / name / path.name).read_text())
    theirs.pop('num_shards', None)
    written.pop('num_shards', None)
    assert written == theirs
  assert _records(ours / name) == _records(tmp_path / name)


def _records(folder):
  """Counts the examples in the files of a cache's training split."""
  records: collections.Counter[bytes] = collections.Counter()
  for path in folder.glob('train.tfrecord*'):
    for record in tf.python_io.tf_record_iterator(str(path)):
      example = tf.train.Example.FromString(record)
      records[example.SerializeToString(deterministic=True)] += 1
  return records


def _tokens(name, use_cached):
  get, lengths = tasks.get(name).get_dataset, {'inputs': 512, 'targets': 114}
  rows = run(lambda: get(lengths, 'train', use_cached, shuffle=False))
  return collections.Counter(
    (row['inputs'].tobytes(), row['targets'].tobytes()) for row in rows
  )
