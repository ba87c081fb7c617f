"""Blocks of rows as a stream: order, shuffling, sharding."""

import functools
import gzip
import json

import pytest
import seqio

from synth_mtf import tasks
from tests.tasks.files import folder
from tests.tasks.rows import run


def test_unshuffled_rows_come_in_the_order_of_the_file(data_dir):
  folder.write_cola(data_dir, 700)
  expected = [f'Sentence {i}.'.encode() for i in range(700)]
  assert folder.sentences(shuffle=False) == expected


@pytest.mark.slow  # reads a task again and again
def test_shuffling_repeats_with_its_seed_and_loses_nothing(data_dir):
  folder.write_cola(data_dir, 3000)
  once = folder.sentences(shuffle=True, seed=1)
  assert once == folder.sentences(shuffle=True, seed=1)
  assert once != folder.sentences(shuffle=True, seed=2)
  assert sorted(once) == sorted(folder.sentences(shuffle=False))
  # Neighbours in the stream come from all over the file.
  first = [int(sentence.split()[1][:-1]) for sentence in once[:48]]
  assert max(first) - min(first) > 1500


@pytest.mark.parametrize(
  'num_shards, shuffle',
  [(2, False), (5, True), pytest.param(16, True, marks=pytest.mark.slow)],
)
def test_shards_part_the_rows(num_shards, shuffle, data_dir):
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


def test_seqio_shards_the_task(data_dir):
  folder.write_cola(data_dir, 40)
  task = tasks.get(folder.COLA)
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


@pytest.mark.slow  # reads text again and again
def test_packed_and_plain_files_stream_together(data_dir):
  texts = [b'Text number %d, of some length.' % i for i in range(2000)]
  folder.write(data_dir / 'corpus/a.txt', b'\n\n'.join(texts[:500]))
  folder.write(
    data_dir / 'corpus/deep/er/b.txt.gz',
    gzip.compress(b'\n\n'.join(texts[500:1000])),
  )
  lines = [json.dumps({'text': t.decode()}).encode() for t in texts[1000:]]
  folder.write(data_dir / 'corpus/c.jsonl', b'\n'.join(lines[:500]))
  folder.write(
    data_dir / 'corpus/d.json.gz', gzip.compress(b'\n'.join(lines[500:]))
  )
  train, held_out = (
    folder.texts(shuffle=False),
    folder.texts('validation', shuffle=False),
  )
  assert sorted(train + held_out) == sorted(texts)
  assert 15 <= len(held_out) <= 70  # one in fifty
  assert sorted(folder.texts(shuffle=True, seed=1)) == sorted(train)
  sharded = [
    folder.texts(shuffle=True, seed=1, shard_info=seqio.ShardInfo(i, 3))
    for i in range(3)
  ]
  assert sorted(sum(sharded, [])) == sorted(train)
  task = tasks.get(folder.TEXT)
  assert task.num_input_examples('train') == len(train)
