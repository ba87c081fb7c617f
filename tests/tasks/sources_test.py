"""Reading official files: order, shuffling, sharding, counts, memory."""

import collections
import functools
import gzip
import json
import os
import pathlib
import subprocess
import sys
import tracemalloc

import gin
import pytest
import seqio

from synth_mtf import tasks
from synth_mtf.errors import UserError
from synth_mtf.tasks.files import blocks, scanning, streams
from synth_mtf.tasks.glue import _CONFIGS, ColaReader
from tests.tasks.rows import frozen, run

_COLA = 'synth_glue_cola_v002'
_TEXT = 'synth_text_span_corruption'


@pytest.fixture
def data_dir(tmp_path) -> pathlib.Path:
  folder = tmp_path / 'data'
  gin.bind_parameter('synth_mtf.tasks.settings.data_dir', str(folder))
  return folder


def _write(path: pathlib.Path, data: bytes) -> pathlib.Path:
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_bytes(data)
  return path


def _write_cola(data_dir, rows, start=0) -> pathlib.Path:
  lines = (f'x\t{i % 2}\t\tSentence {start + i}.\n' for i in range(rows))
  return _write(data_dir / 'glue/CoLA/train.tsv', ''.join(lines).encode())


def _sentences(limit=-1, **kwargs) -> list[bytes]:
  source = tasks.get(_COLA).source
  return [
    row['sentence']
    for row in run(lambda: source.get_dataset('train', **kwargs), limit)
  ]


def _texts(split='train', **kwargs) -> list[bytes]:
  source = tasks.get(_TEXT).source
  return [
    row['text'] for row in run(lambda: source.get_dataset(split, **kwargs))
  ]


def test_unshuffled_rows_come_in_the_order_of_the_file(data_dir):
  _write_cola(data_dir, 700)
  expected = [f'Sentence {i}.'.encode() for i in range(700)]
  assert _sentences(shuffle=False) == expected


def test_shuffling_repeats_with_its_seed_and_loses_nothing(data_dir):
  _write_cola(data_dir, 3000)
  once = _sentences(shuffle=True, seed=1)
  assert once == _sentences(shuffle=True, seed=1)
  assert once != _sentences(shuffle=True, seed=2)
  assert sorted(once) == sorted(_sentences(shuffle=False))
  # Neighbours in the stream come from all over the file.
  first = [int(sentence.split()[1][:-1]) for sentence in once[:48]]
  assert max(first) - min(first) > 1500


@pytest.mark.parametrize('num_shards', [2, 5, 16])
@pytest.mark.parametrize('shuffle', [False, True])
def test_shards_part_the_rows(num_shards, shuffle, data_dir):
  _write_cola(data_dir, 1500)
  shards = [
    _sentences(
      shuffle=shuffle, seed=3, shard_info=seqio.ShardInfo(i, num_shards)
    )
    for i in range(num_shards)
  ]
  together = [sentence for shard in shards for sentence in shard]
  assert sorted(together) == sorted(_sentences(shuffle=False))
  assert all(shards)


def test_seqio_shards_the_task(data_dir):
  _write_cola(data_dir, 40)
  task = tasks.get(_COLA)
  shards = [
    run(
      functools.partial(
        task.get_dataset,
        {'inputs': 64, 'targets': 16},
        'train',
        shuffle=False,
        shard_info=seqio.ShardInfo(i, 2),
      )
    )
    for i in range(2)
  ]
  assert [len(shard) for shard in shards] == [20, 20]


def test_packed_and_plain_files_stream_together(data_dir):
  texts = [b'Text number %d, of some length.' % i for i in range(2000)]
  _write(data_dir / 'corpus/a.txt', b'\n\n'.join(texts[:500]))
  _write(
    data_dir / 'corpus/deep/er/b.txt.gz',
    gzip.compress(b'\n\n'.join(texts[500:1000])),
  )
  lines = [json.dumps({'text': t.decode()}).encode() for t in texts[1000:]]
  _write(data_dir / 'corpus/c.jsonl', b'\n'.join(lines[:500]))
  _write(data_dir / 'corpus/d.json.gz', gzip.compress(b'\n'.join(lines[500:])))
  train, held_out = _texts(shuffle=False), _texts('validation', shuffle=False)
  assert sorted(train + held_out) == sorted(texts)
  assert 15 <= len(held_out) <= 70  # one in fifty
  assert sorted(_texts(shuffle=True, seed=1)) == sorted(train)
  sharded = [
    _texts(shuffle=True, seed=1, shard_info=seqio.ShardInfo(i, 3))
    for i in range(3)
  ]
  assert sorted(sum(sharded, [])) == sorted(train)
  task = tasks.get(_TEXT)
  assert task.num_input_examples('train') == len(train)


def test_blocks_of_a_corpus_lose_no_line(data_dir, monkeypatch):
  lines = [b'Line %d has some words in it.' % i for i in range(3000)]
  _write(data_dir / 'corpus/a.txt', b'\n'.join(lines) + b'\n')
  monkeypatch.setattr(blocks, '_BLOCK_BYTES', 1000)
  texts = _texts(shuffle=False) + _texts('validation', shuffle=False)
  read = collections.Counter(b'\n'.join(texts).split(b'\n'))
  assert read == collections.Counter(lines)


def test_rows_are_counted_once_until_the_file_changes(data_dir, monkeypatch):
  _write_cola(data_dir, 300)
  task = tasks.get(_COLA)
  assert task.num_input_examples('train') == 300
  with monkeypatch.context() as patched:
    patched.setattr(scanning, 'scan', None)  # must not be called
    assert task.num_input_examples('train') == 300
    assert len(_sentences(shuffle=False)) == 300
  _write_cola(data_dir, 300, start=1)  # of the same length, nearly
  assert _sentences(shuffle=False)[0] == b'Sentence 1.'
  _write_cola(data_dir, 200)
  assert task.num_input_examples('train') == 200


def test_counts_lie_beside_the_run(data_dir, tmp_path):
  _write_cola(data_dir, 5)
  run_dir = tmp_path / 'run'
  gin.bind_parameter('synth_mtf.tasks.settings.index_dir', str(run_dir))
  assert tasks.get(_COLA).num_input_examples('train') == 5
  (stored,) = run_dir.iterdir()
  assert json.loads(stored.read_text())['num_examples'] == 5
  stored.write_text('{"damaged"')
  assert tasks.get(_COLA).num_input_examples('train') == 5


def test_folder_that_cannot_keep_counts_is_no_obstacle(data_dir, tmp_path):
  _write_cola(data_dir, 5)
  blocked = _write(tmp_path / 'file', b'')
  gin.bind_parameter('synth_mtf.tasks.settings.index_dir', str(blocked))
  assert tasks.get(_COLA).num_input_examples('train') == 5


def test_memory_does_not_grow_with_the_file(tmp_path):
  reader = ColaReader(_CONFIGS['cola'], labelled=True)
  peaks = []
  for megabytes in (4, 16):
    line = b'x\t1\t\t' + b'word ' * 200 + b'.\n'
    path = _write(tmp_path / f'{megabytes}.tsv', line * (megabytes * 1000))
    tracemalloc.start()
    index = scanning.scan(str(path), reader)
    rows = sum(
      1 for b in index.blocks for _ in blocks.read(b, reader, False, None)
    )
    peaks.append(tracemalloc.get_traced_memory()[1])
    tracemalloc.stop()
    assert rows == index.num_examples == megabytes * 1000
  assert peaks[1] < peaks[0] + 200_000
  assert peaks[1] < 4_000_000


def test_other_spellings_of_the_layout(data_dir):
  row = {'question': 'q', 'passage': 'p', 'idx': 0, 'label': True}
  _write(data_dir / 'glue_data/CoLA/train.tsv', b'x\t1\t\tA sentence.\n')
  _write(data_dir / 'BoolQ/train.jsonl', json.dumps(row).encode() + b'\n')
  tasks.check([_COLA, 'synth_super_glue_boolq_v102'], ['train'])


def test_test_files_are_optional_and_have_no_labels(data_dir):
  assert 'test' not in tasks.get(_COLA).splits
  _write(data_dir / 'glue/CoLA/test.tsv', b'index\tsentence\n0\tA sentence.\n')
  assert 'test' in tasks.get(_COLA).splits
  (row,) = run(lambda: tasks.get(_COLA).source.get_dataset('test'))
  assert row['label'] == -1


def test_source_of_a_single_task(data_dir, tmp_path):
  other = tmp_path / 'other'
  _write(other / 'glue/CoLA/train.tsv', b'x\t1\t\tFrom elsewhere.\n')
  gin.bind_parameter(
    'synth_mtf.tasks.settings.task_data_dirs',
    {'synth_glue_rte*': 'tfds', 'synth_glue_c*': str(other)},
  )
  assert _sentences(shuffle=False) == [b'From elsewhere.']
  rte = tasks.get('synth_glue_rte_v002').source.chosen
  assert isinstance(rte, seqio.TfdsDataSource)
  sst2 = tasks.get('synth_glue_sst2_v002').source
  with pytest.raises(UserError, match=str(data_dir)):
    sst2.get_dataset('train')


def test_patterns_find_files_in_any_folder(tmp_path):
  for name in ('a.txt', 'b/c.txt', 'b/[d]/e.txt', 'b/f.md'):
    _write(tmp_path / 'x' / name, b'')
  found = streams.find(str(tmp_path), 'x/**/*.txt')
  names = [pathlib.Path(p).relative_to(tmp_path).as_posix() for p in found]
  assert names == ['x/a.txt', 'x/b/[d]/e.txt', 'x/b/c.txt']
  assert streams.find(str(tmp_path), 'x/*.txt') == [str(tmp_path / 'x/a.txt')]
  assert not streams.find(str(tmp_path), 'absent/**/*.txt')


def test_cache_job_of_seqio(real_data, tmp_path, monkeypatch):
  """seqio's own command caches a task, and the cached rows are the task's."""
  pytest.importorskip('apache_beam', reason='needs synth-mtf[cache]')
  environment = {**os.environ, 'SYNTH_MTF_DATA_DIR': str(real_data)}
  subprocess.run(
    [
      sys.executable,
      '-m',
      'seqio.scripts.cache_tasks_main',
      '--module_import=synth_mtf.tasks',
      '--tasks=synth_super_glue_record_v102',
      f'--output_cache_dir={tmp_path}',
    ],
    check=True,
    env=environment,
    cwd=tmp_path,
  )
  folder = tmp_path / 'synth_super_glue_record_v102'
  stats = json.loads((folder / 'stats.train.json').read_text())
  assert stats['examples'] == 59  # 41 queries, one example for each answer
  assert (folder / 'COMPLETED').exists()

  monkeypatch.setenv('SYNTH_MTF_DATA_DIR', str(real_data))
  before = seqio.get_global_cache_dirs()
  seqio.add_global_cache_dirs([str(tmp_path)])
  try:
    cached, direct = (
      _tokens('synth_super_glue_record_v102', use_cached)
      for use_cached in (True, False)
    )
  finally:
    seqio.set_global_cache_dirs(before)
  assert sum(cached.values()) == 59
  assert cached == direct


def _tokens(name, use_cached) -> collections.Counter[tuple[bytes, bytes]]:
  rows = run(
    lambda: tasks.get(name).get_dataset(
      {'inputs': 512, 'targets': 114}, 'train', use_cached, shuffle=False
    )
  )
  return collections.Counter(
    (row['inputs'].tobytes(), row['targets'].tobytes()) for row in rows
  )


def test_span_corruption_is_t5s(data_dir, real_data):
  """512 inputs and 114 targets are full rows, and the stream repeats."""
  gin.bind_parameter('synth_mtf.tasks.settings.data_dir', str(real_data))
  lengths = {'inputs': 512, 'targets': 114}
  rows = [
    run(
      lambda: tasks.get(_TEXT).get_dataset(lengths, 'train', seed=1), limit=50
    )
    for _ in range(2)
  ]
  assert list(map(frozen, rows[0])) == list(map(frozen, rows[1]))
  full = [
    r for r in rows[0] if (len(r['inputs']), len(r['targets'])) == (512, 114)
  ]
  assert len(full) > 45
  first_sentinel = tasks.VOCABULARY.vocab_size - 1
  noise = sum((r['targets'] < first_sentinel - 99).sum() - 1 for r in full)
  text = sum((r['inputs'] < first_sentinel - 99).sum() - 1 for r in full)
  assert noise / (noise + text) == pytest.approx(0.15, abs=0.005)
  spans = sum((r['inputs'] > first_sentinel - 99).sum() for r in full)
  assert noise / spans == pytest.approx(3.0, abs=0.1)
