"""Files on a disk, local or remote: links, pipes, damage, alterations."""

import gzip
import os
import pathlib

import gin
import pytest
import tensorflow.compat.v2 as tf

from synth_mtf import tasks
from synth_mtf.errors import UserError
from synth_mtf.rows import formats
from synth_mtf.storage import filesystem
from tests.tasks import folder
from tests.tasks.rows import run


def test_patterns_find_files_in_any_folder(tmp_path):
  for name in ('a.txt', 'b/c.txt', 'b/[d]/e.txt', 'b/f.md'):
    folder.write(tmp_path / 'x' / name, b'')
  paths = filesystem.find(str(tmp_path), 'x/**/*.txt')
  names = [pathlib.Path(p).relative_to(tmp_path).as_posix() for p in paths]
  assert names == ['x/a.txt', 'x/b/[d]/e.txt', 'x/b/c.txt']
  for pattern in ('x/*.txt', f'{tmp_path}/x/*.txt'):
    assert filesystem.find(str(tmp_path), pattern) == [f'{tmp_path}/x/a.txt']
  assert filesystem.find(str(tmp_path), 'x/b/') == [f'{tmp_path}/x/b/']
  for absent in ('absent/**/*.txt', 'x/b.txt', 'x/c/', 'y/c/'):
    assert not filesystem.find(str(tmp_path), absent)
  with pytest.raises(UserError, match='x/b is a folder; expected a regular'):
    filesystem.find(str(tmp_path), 'x/b')


def test_loops_of_links_bring_each_text_once(data_dir):
  corpus = data_dir / 'corpus'
  folder.write(corpus / 'books/a.txt', b'A text.\n')
  folder.write(data_dir / 'elsewhere/b.txt', b'Another.\n')
  (corpus / 'books/up').symlink_to(corpus)
  (corpus / 'aside').symlink_to(corpus / 'books')
  (corpus / 'books/self').symlink_to('.')
  (corpus / 'more').symlink_to(data_dir / 'elsewhere')
  (data_dir / 'elsewhere/back').symlink_to(corpus)
  (corpus / 'again.txt').symlink_to(corpus / 'books/a.txt')
  assert filesystem.find(str(data_dir), 'corpus/**/*.txt') == [
    str(corpus / 'books/a.txt'),
    str(corpus / 'more/b.txt'),
  ]
  task = tasks.get(folder.TEXT)
  counts = [task.num_input_examples(s) for s in ('train', 'validation')]
  assert sum(counts) == 2


@pytest.mark.parametrize(
  'task,name',
  [
    (folder.COLA, 'glue/CoLA/train.tsv'),
    (folder.TEXT, 'corpus/a.txt'),
    ('synth_wmt14_ende_v003', 'parallel/wmt14_en_de/train.de'),
    ('synth_imdb_reviews', 'aclImdb/train/pos/0_9.txt'),
  ],
)
def test_a_pipe_is_refused_and_not_waited_for(task, name, data_dir):
  folder.write(data_dir / 'parallel/wmt14_en_de/train.en', b'One.\n')
  folder.write(data_dir / 'aclImdb/train/neg/0_1.txt', b'Bad.')
  (data_dir / name).parent.mkdir(parents=True, exist_ok=True)
  os.mkfifo(data_dir / name)
  with pytest.raises(UserError, match=f'{name} is a pipe, a socket or'):
    tasks.check([task], ['train'])


@pytest.mark.parametrize(
  'task, name, message',
  [
    ('cnn_dailymail_v002', 'cnn_dailymail/cnn/stories', 'is a file; expected'),
    ('imdb_reviews', 'aclImdb/train', 'is a file; expected a folder'),
    ('imdb_reviews', 'aclImdb', 'aclImdb/train cannot be read: .*Not a dir'),
  ],
)
def test_a_file_in_the_place_of_a_folder_is_named(
  task, name, message, data_dir
):
  folder.write(data_dir / name, b'')
  with pytest.raises(UserError, match=message):
    tasks.check([f'synth_{task}'], ['train'])


@pytest.mark.parametrize('name', ['a.txt', 'a.txt.gz'])
@pytest.mark.parametrize('remote', [False, True])
def test_lines_and_their_number(tmp_path, name, remote):
  lines = [b'one\n', b'\n', b'a much longer line\n', b'without an end']
  data = b''.join(lines)
  path = f'ram://{tmp_path}/{name}' if remote else f'{tmp_path}/{name}'
  with tf.io.gfile.GFile(path, 'wb') as stream:
    stream.write(gzip.compress(data) if filesystem.is_gzip(path) else data)
  with filesystem.reading(path) as stream:
    assert list(stream) == lines
  with filesystem.reading(path) as stream:
    stream.seek(5)
    assert stream.readline() == lines[2]
  for i in range(len(lines)):
    assert formats.lines_before(path, len(b''.join(lines[:i]))) == i


def test_remote_files_are_read_like_local_ones(data_dir, monkeypatch, tmp_path):
  root = f'ram://{tmp_path}'
  for name, data in {
    'glue/CoLA/train.tsv': b'x\t1\t\tA sentence.\n',
    'corpus/a/b.txt': b'One text.\n\nAnother text.\n',
  }.items():
    tf.io.gfile.makedirs(os.path.dirname(f'{root}/{name}'))
    with tf.io.gfile.GFile(f'{root}/{name}', 'wb') as stream:
      stream.write(data)
  monkeypatch.setenv('SYNTH_MTF_DATA_DIR', root)
  gin.clear_config()
  assert folder.sentences() == [b'A sentence.']
  assert sorted(folder.texts()) == [b'Another text.', b'One text.']


def test_litter_is_no_text(data_dir):
  """What Jupyter, git and an archive from macOS leave."""
  folder.write(data_dir / 'corpus/a.txt', b'A text.\n')
  for name in ('.ipynb_checkpoints/a-checkpoint.txt', '.git/description.txt'):
    folder.write(data_dir / 'corpus' / name, b'Another.\n')
  assert folder.texts() == [b'A text.']
  for name in ('neg/._0_1.txt', 'neg/__MACOSX/0.txt', '._pos'):
    folder.write(data_dir / 'aclImdb/train' / name, b'\xb0')
  folder.write(data_dir / 'aclImdb/train/neg/0_1.txt', b'Bad.')
  folder.write(data_dir / 'aclImdb/train/pos/0_9.txt', b'Good.')
  assert tasks.check(['synth_imdb_reviews'], ['train']) == []


def test_blank_lines_between_texts(data_dir):
  data = b'{"text": "One."}\n\n{"text": "Two."}\n  \n'
  path = folder.write(data_dir / 'corpus/a.jsonl', data)
  (note,) = tasks.check([folder.TEXT], ['train'])
  assert note.startswith(f'{path}:2: a blank line; skipped (2 of 4 rows')
  assert sorted(folder.texts()) == [b'One.', b'Two.']


def test_a_line_that_is_too_long_for_a_row(data_dir, monkeypatch):
  monkeypatch.setattr(formats, '_MOST_ROW_BYTES', 100)
  for name in ('corpus/b.jsonl', 'glue/CoLA/train.tsv'):
    path = folder.write(data_dir / name, b'x\t1\t\t' + b'a' * 100)
    task = folder.TEXT if 'corpus' in name else folder.COLA
    with pytest.raises(UserError, match=f'{path}:1: a line of 100 bytes or mo'):
      tasks.check([task], ['train'])
    path.unlink()


def test_what_is_there_in_the_place_of_a_file(data_dir):
  folder.write(data_dir / 'glue/cola/train.tsv', b'x\t1\t\tA sentence.\n')
  found = f'; there is {data_dir}/glue/cola. Put it there, or set '
  with pytest.raises(UserError, match=found):
    tasks.check([folder.COLA], ['train'])


def test_what_cannot_be_read_is_named(data_dir):
  path = str(data_dir / 'absent.txt')
  cannot = pytest.raises(UserError, match='absent.txt cannot be read')
  with cannot, filesystem.reading(path):
    pass
  with cannot:
    filesystem.state([path])
  lines = b'\n\n'.join(b'Some text, number %d.' % i for i in range(20_000))
  packed = gzip.compress(lines, compresslevel=1)
  for damaged in (
    packed[: len(packed) // 2],
    packed[:200] + b'\xff' * 40 + packed[240:],
    packed[:-8] + bytes(8),  # the check sum
  ):
    folder.write(data_dir / 'corpus/a.txt.gz', damaged)
    with pytest.raises(UserError, match='a.txt.gz cannot be read: .* is whole'):
      tasks.check([folder.TEXT], ['train'])


def test_an_alteration_that_keeps_size_and_time_is_seen(data_dir):
  path = folder.write_cola(data_dir, 9000)
  tasks.check([folder.COLA], ['train'])
  before = path.stat()
  rows = path.read_bytes()
  middle = rows.index(b'x\t1', len(rows) // 2)
  path.write_bytes(rows[:middle] + b'x\t7' + rows[middle + 3 :])
  os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
  with pytest.raises(UserError, match="the label '7'"):
    tasks.check([folder.COLA], ['train'])
  assert tasks.get(folder.COLA).num_input_examples('train') == 8999


@pytest.mark.parametrize(
  'files, read',
  [
    (['en_de/train', 'en_de/train.tok.bpe.32000'], ['en_de/train']),
    (['en_de_tok/train', 'en_de_tok/train.tok'], ['en_de_tok/train']),
    (['en_de/train', 'en_de_tok/train'], ['en_de/train']),
    (['en_de/train.1', 'en_de/train.2'], None),
    (['en_de_a/train.1', 'en_de_b/train.2'], None),
  ],
)
def test_plain_names_of_parallel_text_come_first(files, read, data_dir):
  for name in files:
    for language in ('en', 'de'):
      path = data_dir / f'parallel/wmt14_{name}.{language}'
      folder.write(path, f'{name} {language}\n'.encode())
  source = tasks.get('synth_wmt14_ende_v003').source
  rows = run(lambda: source.get_dataset('train', shuffle=False))
  english = [row['en'].decode() for row in rows]
  assert english == [f'{name} en' for name in read or files]


def test_imdb_with_one_class_is_refused(data_dir):
  folder.write(data_dir / 'aclImdb/train/pos/0_9.txt', b'Good.')
  with pytest.raises(UserError, match=r'train/ has reviews of one.*neg/\*.txt'):
    tasks.check(['synth_imdb_reviews'], ['train'])
