"""Blocks lose no row, and say where a bad one is."""

import collections

import pytest

from synth_mtf.tasks.files import blocks, text
from tests.tasks.files import folder


def test_blocks_of_a_corpus_lose_no_line(data_dir, monkeypatch):
  lines = [b'Line %d has some words in it.' % i for i in range(3000)]
  folder.write(data_dir / 'corpus/a.txt', b'\n'.join(lines) + b'\n')
  monkeypatch.setattr(blocks, '_BLOCK_BYTES', 1000)
  texts = folder.texts(shuffle=False) + folder.texts(
    'validation', shuffle=False
  )
  read = collections.Counter(b'\n'.join(texts).split(b'\n'))
  assert read == collections.Counter(lines)


@pytest.mark.parametrize('block_bytes', [1, 7, 30, 1000])
def test_each_line_belongs_to_one_block(tmp_path, monkeypatch, block_bytes):
  monkeypatch.setattr(blocks, '_BLOCK_BYTES', block_bytes)
  lines = [f'line {"x" * (i % 5)} {i}' for i in range(20)]
  path = str(folder.write(tmp_path / 'a.txt', '\n'.join(lines).encode()))
  reader = text.SentenceReader()
  found = [
    row['text']
    for block in blocks.byte_blocks(path)
    for row in blocks.read(block, reader, False, None)
  ]
  assert found == lines


def test_a_packed_file_is_one_block(tmp_path):
  path = str(folder.write(tmp_path / 'a.txt.gz', b''))
  assert blocks.byte_blocks(path) == [blocks.Block(path, 0, None, 0)]


def test_a_file_without_a_header_has_none(tmp_path):
  path = str(folder.write(tmp_path / 'a.txt', b'one\n'))
  assert blocks.header_of(path, text.SentenceReader()) is None
