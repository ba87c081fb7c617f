"""Files as they lie on a disk: links, pipes, alterations, forms of one text."""

import os
import pathlib

import gin
import pytest

from synth_mtf import tasks
from synth_mtf.errors import UserError
from synth_mtf.tasks.files import scanning, streams
from synth_mtf.tasks.translation import rawest
from tests.tasks.rows import run

_COLA = 'synth_glue_cola_v002'
_ENDE = 'synth_wmt14_ende_v003'
_TEXT = 'synth_text_span_corruption'


@pytest.fixture
def data_dir(tmp_path) -> pathlib.Path:
  folder = tmp_path / 'data'
  folder.mkdir()
  gin.bind_parameter('synth_mtf.tasks.settings.data_dir', str(folder))
  return folder


def _write(path: pathlib.Path, data: bytes) -> pathlib.Path:
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_bytes(data)
  return path


def test_loops_of_links_bring_each_text_once(data_dir):
  corpus = data_dir / 'corpus'
  _write(corpus / 'books/a.txt', b'A text.\n')
  _write(data_dir / 'elsewhere/b.txt', b'Another.\n')
  (corpus / 'books/up').symlink_to(corpus)
  (corpus / 'aside').symlink_to(corpus / 'books')
  (corpus / 'books/self').symlink_to('.')
  (corpus / 'more').symlink_to(data_dir / 'elsewhere')
  (data_dir / 'elsewhere/back').symlink_to(corpus)
  (corpus / 'again.txt').symlink_to(corpus / 'books/a.txt')
  assert streams.find(str(data_dir), 'corpus/**/*.txt') == [
    str(corpus / 'books/a.txt'),
    str(corpus / 'more/b.txt'),
  ]
  task = tasks.get(_TEXT)
  counts = [task.num_input_examples(s) for s in ('train', 'validation')]
  assert sum(counts) == 2


@pytest.mark.parametrize(
  'task,name',
  [
    (_COLA, 'glue/CoLA/train.tsv'),
    (_TEXT, 'corpus/a.txt'),
    (_ENDE, 'parallel/wmt14_en_de/train.de'),
    ('synth_imdb_reviews', 'aclImdb/train/pos/0_9.txt'),
  ],
)
def test_a_pipe_is_refused_and_not_waited_for(task, name, data_dir):
  _write(data_dir / 'parallel/wmt14_en_de/train.en', b'One.\n')
  _write(data_dir / 'aclImdb/train/neg/0_1.txt', b'Bad.')
  (data_dir / name).parent.mkdir(parents=True, exist_ok=True)
  os.mkfifo(data_dir / name)
  with pytest.raises(UserError, match=f'{name} is a pipe, a socket or'):
    tasks.check([task], ['train'])


def test_an_alteration_that_keeps_size_and_time_is_seen(data_dir):
  rows = b''.join(b'x\t%d\t\tA sentence.\n' % (i % 2) for i in range(9000))
  path = _write(data_dir / 'glue/CoLA/train.tsv', rows)
  task = tasks.get(_COLA)
  tasks.check([_COLA], ['train'])
  before = path.stat()
  middle = rows.index(b'x\t1', len(rows) // 2)
  path.write_bytes(rows[:middle] + b'x\t7' + rows[middle + 3 :])
  os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
  assert path.stat().st_mtime_ns == before.st_mtime_ns
  with pytest.raises(UserError, match="the label '7'"):
    tasks.check([_COLA], ['train'])
  assert task.num_input_examples('train') == 8999


def test_a_copy_keeps_its_index(data_dir, monkeypatch):
  path = _write(data_dir / 'glue/CoLA/train.tsv', b'x\t1\t\tA sentence.\n')
  assert tasks.get(_COLA).num_input_examples('train') == 1
  os.utime(path, (1, 1))
  monkeypatch.setattr(scanning, 'scan', None)  # must not be called
  assert tasks.get(_COLA).num_input_examples('train') == 1


@pytest.mark.parametrize(
  'names,kept',
  [
    (['d/train.en', 'd/train.tok.clean.bpe.32000.en'], ['d/train.en']),
    (['d/train.tok.bpe.32000.en', 'd/train.tok.en'], ['d/train.tok.en']),
    (['d/train.tok.clean.bpe.32000.en'], ['d/train.tok.clean.bpe.32000.en']),
    (
      ['d/train.1.en', 'd/train.2.en', 'd/train-europarl.en'],
      ['d/train-europarl.en', 'd/train.1.en', 'd/train.2.en'],
    ),
    (['en_de/train.en', 'en_de_tok/train.en'], ['en_de/train.en']),
    (
      ['en_de/train.en', 'en_de_news/train.en'],
      ['en_de/train.en', 'en_de_news/train.en'],
    ),
    (
      ['d/train.lc.en', 'd/train.tok.lc.en', 'd/train.spm.en'],
      ['d/train.lc.en'],
    ),
  ],
)
def test_the_rawest_form_of_a_text_is_chosen(names, kept):
  assert rawest(names) == kept
  assert rawest(names[::-1]) == kept


def test_the_choice_is_told_once(data_dir, caplog):
  folder = data_dir / 'parallel/wmt14_en_de'
  for language in ('en', 'de'):
    _write(folder / f'train.{language}', b'Hello world.\n')
    _write(folder / f'train.tok.clean.bpe.32000.{language}', b'Hel@@ lo\n' * 2)
  with caplog.at_level('WARNING', logger='absl'):
    source = tasks.get(_ENDE).source
    rows = run(lambda: source.get_dataset('train'))
    assert source.num_input_examples('train') == 1
  assert [row['en'] for row in rows] == [b'Hello world.']
  told = [r.getMessage() for r in caplog.records if 'other forms' in r.message]
  assert told == [
    f'{folder}/train.en: read; other forms of the same text are left out: '
    f'{folder}/train.tok.clean.bpe.32000.en'
  ]


def test_imdb_with_one_class_is_refused(data_dir):
  _write(data_dir / 'aclImdb/train/pos/0_9.txt', b'Good.')
  with pytest.raises(UserError, match=r'train/ has reviews of one.*neg/\*.txt'):
    tasks.check(['synth_imdb_reviews'], ['train'])
