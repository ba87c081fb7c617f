"""The families that need their own files: T5's or TFDS's examples, counted."""

import gzip
import hashlib
import itertools
import json
import shutil

import gin
import numpy as np
import pytest
import seqio
import tensorflow_datasets as tfds

from synth_mtf import tasks
from synth_mtf.errors import UserError
from synth_mtf.tasks import generation
from synth_mtf.tasks.files import index
from tests.tasks import comparison, steps
from tests.tasks.folder import write
from tests.tasks.rows import frozen, run

ROWS = 40


def _copy_lines(source, target):
  """Copies the first lines of a file, and returns their text."""
  with source.open('rb') as stream:
    kept = list(itertools.islice(stream, ROWS))
  write(target, b''.join(kept))
  return [line.decode().rstrip('\n') for line in kept]


def test_c4(official_data, tmp_path, prepared):
  """Its own files, with T5's span corruption."""
  text = (official_data / 'corpus/books/moby_dick.txt').read_text()
  texts = [text[i : i + 2000] for i in range(0, 40_000, 2000)]
  lines = [json.dumps({'text': t, 'url': 'x'}) for t in texts]
  for name, part in (('train.00000', lines[:15]), ('validation.00000', lines)):
    data = gzip.compress('\n'.join(part).encode())
    for folder in ('en', 'en.noclean'):
      write(tmp_path / f'c4/{folder}/c4-{name}-of-00001.json.gz', data)
  others = ('url', 'timestamp', 'content-length', 'content-type')
  rows = [{'text': t, **dict.fromkeys(others, '')} for t in texts]
  prepared('c4/en:2.2.0', train=rows[:15], validation=rows)
  ours = tasks.get('synth_c4_span_corruption')
  t5_own = seqio.TaskRegistry.get('c4_v220_span_corruption')
  expected = [*map(steps.compared, t5_own.preprocessors)]
  assert [*map(steps.compared, ours.preprocessors)] == expected

  def read(source, split):
    rows = run(lambda: source.get_dataset(split, shuffle=False))
    return sorted(row['text'].decode() for row in rows)

  for split, count in (('train', 15), ('validation', 20)):
    gin.clear_config()
    assert read(t5_own.source, split) == sorted(texts[:count])
    assert read(ours.source, split) == sorted(texts[:count])
    gin.bind_parameter('synth_mtf.tasks.settings.data_dir', str(tmp_path))
    assert read(ours.source, split) == sorted(texts[:count])


@pytest.mark.slow  # reads a corpus, twice
def test_rows_of_any_text_are_full(official_data):
  """512 inputs and 114 targets are full rows, and the stream repeats."""
  gin.bind_parameter('synth_mtf.tasks.settings.data_dir', str(official_data))
  lengths = {'inputs': 512, 'targets': 114}
  task = tasks.get('synth_text_span_corruption')
  rows, again = (
    run(lambda: task.get_dataset(lengths, 'train', seed=1), limit=50)
    for _ in range(2)
  )
  assert list(map(frozen, rows)) == list(map(frozen, again))
  sizes = 512, 114
  full = [r for r in rows if (r['inputs'].size, r['targets'].size) == sizes]
  assert len(full) > 45


def test_lm1b(official_data, tmp_path, prepared):
  texts = _copy_lines(
    official_data / 'corpus/news_sentences/newstest2014.en.tok.txt',
    tmp_path
    / 'lm1b/1-billion-word-language-modeling-benchmark-r13output'
    / 'training-monolingual.tokenized.shuffled/news.en-00001-of-00100',
  )
  prepared('lm1b:1.1.0', train=[{'text': text.strip()} for text in texts])
  rows = comparison.three_ways('synth_lm1b', 'train', tmp_path)
  assert sum(rows.values()) == ROWS
  assert list(tasks.get('synth_lm1b').output_features) == ['targets']


def test_the_target_of_an_encoders_first_token_is_the_class(data_dir):
  write(data_dir / 'ag_news_csv/test.csv', b'"3","A title","B"\n"1","C","D"\n')

  def read(name):
    task = tasks.get(name)
    lengths = dict.fromkeys(task.output_features, 48)
    return run(lambda: task.get_dataset(lengths, 'test', shuffle=False))

  words = [row['targets_pretokenized'] for row in read('synth_ag_news')]
  assert words == [b'Business', b'World']
  to_class = tasks.get('synth_ag_news').postprocess_fn
  words = ['World', 'Sports', 'Business', 'Sci/Tech', 'x']
  assert [*map(to_class, words)] == [0, 1, 2, 3, -1]
  rows = read('synth_ag_news_class')
  assert [row['targets'].tolist() for row in rows] == [[3], [1]]
  text = tasks.VOCABULARY.decode(rows[0]['inputs'].tolist())
  assert text == 'ag_news title: A title description: B'
  for row in rows:
    assert row['inputs'][-1] == 1, 'the end of the text'
    ones = np.ones(len(row['inputs']))
    np.testing.assert_array_equal(row['targets_segmentation'], ones)


@pytest.mark.parametrize('with_lists', [False, True])
def test_summaries(with_lists, official_data, tmp_path, prepared):
  root = tmp_path / 'cnn_dailymail'
  shutil.copytree(official_data / 'cnn_dailymail', root)
  stories = sorted((root / 'cnn/stories').iterdir())
  train = [s for s in stories if s.name[0] not in '0f']
  if with_lists:
    # A story is named by the hash of its address: make addresses of our own.
    urls = [f'http://example.com/{i}' for i in range(5)]
    names = [f'{hashlib.sha1(url.encode()).hexdigest()}.story' for url in urls]
    train = [
      s.rename(s.with_name(n)) for s, n in zip(stories, names, strict=False)
    ]
    lists = '\ufeff' + '\n'.join(urls), 'http://val', 'http://test'
    for part, text in zip(('train', 'val', 'test'), lists, strict=True):
      write(root / f'url_lists/all_{part}.txt', text.encode())
  parse = tfds.summarization.cnn_dailymail._get_art_abs  # noqa: SLF001
  rows = [
    dict(
      zip(('article', 'highlights'), parse(str(path)), strict=True),
      id='',
      publisher='',
    )
    for path in train
  ]
  prepared('cnn_dailymail:3.4.0', train=rows)
  name = 'cnn_dailymail_v002'
  examples = comparison.three_ways(f'synth_{name}', 'train', tmp_path, name)
  assert sum(examples.values()) == len(train)


@pytest.mark.parametrize(
  ('lists', 'has'),
  [
    ({'url_lists/all_train.txt': b'x'}, 'all_train.txt'),
    ({'all_val.txt': b'x', 'all_test.txt': b'x'}, 'all_val.txt, all_test.txt'),
    ({'all_train.txt': b''}, 'no list'),
    ({'url_lists/other.txt': b'x'}, 'no list'),
  ],
)
def test_some_lists_of_stories(lists, has, data_dir):
  """They would mix two definitions of the splits."""
  root = data_dir / 'cnn_dailymail'
  write(root / 'cnn/stories/1.story', b'A.\n\n@highlight\n\nB.\n')
  tasks.check(['synth_cnn_dailymail_v002'], ['train'])
  for name, data in lists.items():
    write(root / name, data)
  with pytest.raises(UserError, match=f'has URLs in {has}; expected them in'):
    tasks.check(['synth_cnn_dailymail_v002'], ['train'])


def test_stories_are_listed_once_for_all_parts(data_dir, monkeypatch):
  """With the hash of every URL, a listing takes seconds."""
  root = data_dir / 'cnn_dailymail'
  for number in range(50):
    write(root / f'cnn/stories/1{number}.story', b'A.\n\n@highlight\n\nB.\n')
  listed = []
  find = generation.StoryReader.find

  def counted(reader, path):
    listed.append(path)
    return find(reader, path)

  monkeypatch.setattr(generation.StoryReader, 'find', counted)
  source = tasks.get('synth_cnn_dailymail_v002').source.chosen
  source.check('train')
  before = len(listed)
  parts = source.indexes('train')[0].parts()
  assert len(parts) > 1 and len(listed) <= before + 1
  before = len(listed)
  rows = [row for part in parts for row in index.read(part)]
  assert len(rows) == 50 and len(listed) == before
  # The listing is as new as the index.
  write(root / 'cnn/stories/150.story', b'A.\n\n@highlight\n\nB.\n')
  source = tasks.get('synth_cnn_dailymail_v002').source.chosen
  assert len([*source.examples('train')]) == 51


def test_personachat_turns(data_dir):
  """An empty response is kept and reported."""
  path = write(
    data_dir / 'convai2/train_self_original_no_cands.txt',
    '\ufeff1 your persona: i run.\r\n2 hi\x85 there\t\n3 \thello\t\tbye\n'
    '1 your persona: i sit.\n2 a\tb\n3 c\td'.encode(),
  )
  task = tasks.get('synth_personachat')
  assert task.num_input_examples('train') == 4
  lengths = comparison.LENGTHS
  rows = run(lambda: task.get_dataset(lengths, 'train', shuffle=False))
  start = 'personachat persona: i'
  assert [
    tuple(row[f'{key}_pretokenized'].decode() for key in ('inputs', 'targets'))
    for row in rows
  ] == [
    (f'{start} run. dialogue: hi\x85 there', ''),
    (f'{start} run. dialogue: hi\x85 there  ', 'hello'),
    (f'{start} sit. dialogue: a', 'b'),
    (f'{start} sit. dialogue: a b c', 'd'),
  ]
  (file,) = task.source.chosen.indexes('train')
  assert file.notes == [f'{path}:2: an empty response; kept (1 of 2 rows)']


@pytest.mark.sampled
@pytest.mark.parametrize(
  'task, config, source',
  [
    ('wmt14_ende_v003', 'wmt14_translate/de-en', 'wmt14_en_de_tok/train'),
    ('wmt14_enfr_v003', 'wmt14_translate/fr-en', 'multi30k/train'),
    ('wmt_t2t_ende_v003', 'wmt_t2t_translate/de-en', 'wmt14_en_de_tok/train'),
    ('wmt16_enro_v003', 'wmt16_translate/ro-en', 'wmt16_en_ro/newsdev2016'),
  ],
)
def test_translation(task, config, source, official_data, tmp_path, prepared):
  wmt, pair, _ = task.rsplit('_', 2)
  languages = pair[:2], pair[2:]
  folder = tmp_path / 'parallel' / f'{wmt}_{pair[:2]}_{pair[2:]}_sample'
  sentences = [
    _copy_lines(
      official_data / 'parallel' / f'{source}.{language}',
      folder / f'train.{language}',
    )
    for language in languages
  ]
  rows = [
    dict(zip(languages, row, strict=True))
    for row in zip(*sentences, strict=True)
  ]
  prepared(f'{config}:1.0.0', train=rows)
  examples = comparison.three_ways(f'synth_{task}', 'train', tmp_path, task)
  assert sum(examples.values()) == ROWS


def test_xsum(tmp_path, prepared):
  rows = [{'document': f'It ran {i}.', 'summary': f'{i}.'} for i in range(ROWS)]
  lines = '\n'.join(map(json.dumps, rows))
  write(tmp_path / 'xsum/validation.jsonl', lines.encode())
  prepared('xsum:1.1.0', validation=rows)
  examples = comparison.three_ways('synth_xsum_v110', 'validation', tmp_path)
  assert sum(examples.values()) == ROWS
  texts = {dict(row)['inputs_pretokenized'] for row in examples}
  assert texts == {f'summarize: It ran {i}.' for i in range(ROWS)}


ANSWERS = (
  '(list (description A) (description "Anakin \u00e9 (Ani)"))',
  '(list (description "A b") (description 3.5) (description x (y)))',
  '(description "A, Bieber") (description Jaxon))',
)


@pytest.mark.sampled
@pytest.mark.parametrize(
  ('task', 'split', 'count'),
  [
    pytest.param('web_questions_open', 'train', 3417, marks=pytest.mark.slow),
    ('web_questions_open', 'validation', 361),
    ('web_questions_open_test', 'validation', 2),
  ],
)
def test_web_questions(task, split, count, tmp_path, prepared):
  """TFDS stores rows in an order of its own, by which `train` is divided."""
  rows = [
    {
      'url': 'x',
      'utterance': f'who is {i}?',
      'targetValue': target.replace('A', f'A{i}'),
    }
    for i, target in enumerate(itertools.islice(itertools.cycle(ANSWERS), 3778))
  ]
  paths = {}
  for name, part in (('train', rows), ('test', rows[:2])):
    path = tmp_path / f'web_questions/webquestions.examples.{name}.json'
    paths[name] = str(write(path, json.dumps(part).encode()))
  prepared('web_questions:1.0.0', paths)
  examples = comparison.three_ways(f'synth_{task}', split, tmp_path)
  assert sum(examples.values()) == count
  example = dict(next(iter(examples)))
  assert example['inputs_pretokenized'].startswith('wq question: who is ')
  assert example['targets_pretokenized'].startswith('A')
  provider = tasks.get(f'synth_{task}')
  read = provider.postprocess_fn('x', example=example, is_target=True)
  assert len(read) > 1
  assert read[0] == example['targets_pretokenized']
  (metric,) = provider.metric_fns
  assert metric([read], [f'the {read[1]}']) == {'em': 100, 'f1': 100}


@pytest.mark.parametrize(
  'german, message',
  [
    (b'Eins.\n', 'train.en:2: a line that only the .en file has'),
    (b'Eins.\nZwei.\nDrei.\n', 'train.en:3: a line that only the .de file has'),
    (None, 'train.de'),
    (
      b'Eins.\nZw',
      'train.en:2: a last line without a line end in the .de file',
    ),
    (b'\n<srcset setid="x">\nZwei\n', 'the .de file has'),
    (b'<srcset setid="x">\nZwei\n', 'train.de:1: SGML or XML: .<srcset'),
    (b'<?xml version="1.0"?>\n<tmx>\n', 'train.de:1: SGML or XML: '),
    (
      b'version https://git-lfs.github.com/spec/v1\noid x\n',
      'train.de is a pointer of Git LFS',
    ),
    (b'\x1f\x8b\x08\n\n', 'train.de:1: gzip, whose name must end in .gz'),
    (b'\xff\xfeE\0i\0\n\0\n', 'train.de:1: UTF-16 .the byte 0xff'),
  ],
)
def test_parallel_files_that_are_not(german, message, data_dir):
  folder = data_dir / 'parallel/wmt14_en_de'
  write(folder / 'train.en', b'One.\nTwo.\n')
  if german:
    write(folder / 'train.de', german)
  with pytest.raises(UserError, match=message):
    tasks.check(['synth_wmt14_ende_v003'], ['train'])


def test_parallel_files_may_both_lack_the_last_line_end(data_dir):
  folder = data_dir / 'parallel/wmt14_en_de'
  write(folder / 'train.en', b'One.\nTwo.')
  write(folder / 'train.de', b'Eins.\nZwei.')
  assert tasks.check(['synth_wmt14_ende_v003'], ['train']) == []


@pytest.mark.parametrize(
  ('name', 'classes'), [('ag_news', 4), ('imdb_reviews', 2)]
)
def test_an_encoder_has_an_output_for_each_class_and_padding(name, classes):
  features = tasks.get(f'synth_{name}_class').output_features
  for side in ('targets', 'targets_segmentation'):
    assert features[side].vocabulary.vocab_size == classes + 1
    assert not features[side].add_eos
