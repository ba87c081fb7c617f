"""What TFDS and T5 accept is accepted, with the same rows, and reported.

The files are made, in the official formats and with the official files' odd
rows. The other side of each comparison is TFDS's own reading code.
"""

import json
import zlib

import pytest
import tensorflow.compat.v1 as tf
import tensorflow_datasets as tfds
from t5.data import preprocessors
from t5.data.preprocessors import _wsc_inputs
from tensorflow_datasets.translate.wmt import _parse_parallel_sentences

from synth_mtf import tasks
from synth_mtf.errors import UserError
from synth_mtf.tasks.super_glue import WscReader
from tests.tasks.folder import train_file, write
from tests.tasks.rows import frozen, run

_WSC_TASK = 'synth_super_glue_wsc_v102_simple_train'


def _ours(name):
  source = tasks.get(name).source
  rows = run(lambda: source.get_dataset('train', shuffle=False))
  assert source.num_input_examples('train') == len(rows)
  return [frozen(row) for row in rows]


def _tfds(name, tmp_path, *args):
  builder = tfds.builder(name, data_dir=str(tmp_path / 'tfds'))
  features = dict(builder.info.features)
  rows = []
  for _, row in builder._generate_examples(*args):  # noqa: SLF001  the oracle
    if hasattr(features.get('label'), 'names'):
      row['label'] = int(features['label'].encode_example(row['label']))
    rows.append(frozen(row))
  return rows


def _notes(name):
  source = tasks.get(name).source.chosen
  return '\n'.join(n for i in source.indexes('train') for n in i.notes)


# Task: TFDS's dataset, what is in the file, the notes about it.
_ODD = {
  'glue_qqp_v002': (
    'glue/qqp:1.0.0',
    b'id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n'
    b'1\t2\t3\tWhy?\tHow?\t0\n'
    b'2\t4\t5\tHow can I create an app?\t\t0\n'  # ids 310137 and 362246
    b'3\t6\t7\tWhy is\nthat?\tHow "so?\t1\n'  # cut by a line break
    b'4\t8\t9\tWhat is  a b\xc3\xa9b\xc3\xa9 ?  \t "No" \t1\n'
    b'5\t8\t9\tA\tB\n'
    b'6\t8\t9\tC\tD\t\n',
    ["3: an empty 'question2'; kept", '4: a broken row', '4 of 7 rows'],
  ),
  'glue_sst2_v002': (
    'glue/sst2:1.0.0',
    b'sentence\tlabel\r\nfine \t1\r\nwide\t0\tmore\r\n'
    b'a dull\r movie\t1\rb\t0\n\n \nlast \t1',
    [
      '1: a line that ends in CR LF',
      '3: more columns',
      '4: a line that ends in CR;',
      '4: a broken row; left out, as TensorFlow Datasets leaves it out (2 of 7',
      '7: a last line with',
    ],
  ),
  'glue_rte_v002': (
    'glue/rte:1.0.0',
    b'\xef\xbb\xbfindex\tsentence1\tsentence2\tlabel\n'
    b'0\tA dog ran.\tA dog moved.\tentailment\n'
    b'1\tA dog ran.\tA dog moved.\n'
    b'2\t \tA "dog\tnot_entailment\n'
    b'3\ta\tb\t1\n\n4\ta\tb\t0\n',
    ['1: a byte order mark', '3: a broken row', "4: an empty 'sentence1'"],
  ),
  'glue_cola_v002': (
    'glue/cola:1.0.0',
    b'gj04\t1\t\tThe "car" honked.\r\nx\t0\t*\t\n',
    ['1: a line that ends in CR LF', "2: an empty 'sentence'"],
  ),
  'glue_wnli_v002': (
    'glue/wnli:1.0.0',
    b'index\tsentence1\tsentence2\tlabel\r\r\n'
    + b''.join(b'%d\ta\tb\t1\r\r\n5\tc\td\t0\r' % i for i in range(40)),
    ['1: a line that ends in CR;'],
  ),
  'super_glue_multirc_v102': (
    'super_glue/multirc:1.0.2',
    b'{"idx": 0, "passage": {"text": "<b>Sent 1: </b>Ann ran.<br>", '
    b'"questions": [{"question": "", "idx": 0, "answers": ['
    b'{"text": "", "idx": 0, "label": 0}, '
    b'{"text": "Ann", "idx": 1, "label": true}]}, '
    b'{"question": "Who?", "idx": 1, "answers": []}]}}\n',
    [],
  ),
  'super_glue_record_v102': (
    'super_glue/record:1.0.2',
    b'{"idx": 0, "passage": {"text": "Ann met Bob.\\n@highlight\\nAnn smiled",'
    b' "entities": [{"start": 0, "end": 2}, {"start": 30, "end": 90}]}, '
    b'"qas": [{"idx": 0, "query": "@placeholder met", '
    b'"answers": [{"text": "Ann"}, {"text": "Bob"}, {"text": "Ann"}]}]}\n',
    ['1: an answer that is not one of the'],
  ),
  'super_glue_wsc_v102_simple_train': (
    'super_glue/wsc.fixed:1.0.2',
    b'{"text": "Mark told Pete lies, so he lied.", "target": '
    b'{"span1_index": 0, "span1_text": "Mark", "span2_index": 5, '
    b'"span2_text": "He"}, "idx": 0, "label": true}\n',
    [],
  ),
  'squad_v010_allanswers': (
    'squad/v1.1:3.0.0',
    b'{"version": "1.1", "data": [{"title": "Cats [1] {", "paragraphs": '
    b'[{"context": "The cat\\u2028 sat.  ", "qas": ['
    b'{"id": "q0", "question": "Where?", '
    b'"answers": [{"text": "cat", "answer_start": 4}]}, '
    b'{"id": "q1", "question": " ", '
    b'"answers": [{"text": "cat", "answer_start": 4}, '
    b'{"text": "cat", "answer_start": 4}]}]}]}, {"paragraphs": []}], '
    b'"after": {"data": [1, 2]}}',
    [],
  ),
  'dpr_v001_simple': (
    'definite_pronoun_resolution:1.1.0',
    b'A met B\xe2\x80\xa8 as he ran. \r\nhe\r\nA , B\r\n A\r\n\r\n'
    b'It hit it!\nit\nthe dog,the cat\nthe cat\n\n',
    ['train.c.txt:7: a pronoun that T5 does not mark'],
  ),
  'ag_news': (
    'ag_news_subset:1.0.0',
    b'"3","Wall St. ""Bears""","AP - \\$1\\b and #39;s"\n'
    b'4,plain,\n'
    b'"1","a"x,"b"\n'
    b'"2","two\nlines, ""one""\n\nfield","c","d"\n'
    b'"1","last","one"',
    [],
  ),
}
_ARGUMENTS = {'glue': ('train', None), 'super_glue': (tfds.Split.TRAIN,)}


@pytest.mark.sampled
@pytest.mark.parametrize('name', _ODD)
def test_odd_rows_are_read_as_tfds_reads_them(name, data_dir, tmp_path, caplog):
  dataset, data, notes = _ODD[name]
  path = write(data_dir / train_file(f'synth_{name}'), data)
  arguments = _ARGUMENTS.get(dataset.split('/')[0], ())
  expected = _tfds(dataset, tmp_path, str(path), *arguments)
  assert expected
  with caplog.at_level('WARNING', logger='absl'):
    assert _ours(f'synth_{name}') == expected
  reported = _notes(f'synth_{name}')
  for note in notes:
    assert note in reported
    assert note in caplog.text
  tasks.check([f'synth_{name}'], ['train'])


def test_imdb(data_dir, tmp_path):
  reviews = {
    'neg/0_1.txt': b'\xc2\xa0Bad.\r\nVery bad.\xc2\x85 \n',
    'neg/1_1.txt': b'',
    'pos/0_9.txt': b'\xef\xbb\xbf\tGood\xe3\x80\x80',
  }
  archive = [
    (f'aclImdb/train/{name}', write(data_dir / 'aclImdb/train' / name, data))
    for name, data in reviews.items()
  ]
  expected = _tfds(
    'imdb_reviews/plain_text:1.0.0',
    tmp_path,
    [(name, path.open('rb')) for name, path in archive],
    'aclImdb/train',
  )
  assert len(expected) == 3
  # Classes alternate, so that the first examples are of both.
  assert _ours('synth_imdb_reviews') == [expected[i] for i in (0, 2, 1)]


def test_translation(data_dir):
  folder = data_dir / 'parallel/wmt14_en_de'
  english = write(
    folder / 'train.en',
    b'\xef\xbb\xbfOne.\nTwo\rthirds.\n\nFour.\n\n \nLast.\r\n',
  )
  german = write(
    folder / 'train.de', 'Eins.\nZwei\u2028.\nDrei.\n\n\nSechs.\n \n'.encode()
  )
  pairs = _parse_parallel_sentences(str(english), str(german))
  expected = [frozen(pair) for _, pair in pairs if all(pair.values())]
  assert len(expected) == 4
  assert _ours('synth_wmt14_ende_v003') == expected
  for note in (
    '3: a pair with an empty side; left out',
    '(3 of 7 rows, this is the first)',
  ):
    assert note in _notes('synth_wmt14_ende_v003')


def test_stories_without_an_article_or_a_highlight(data_dir, tmp_path):
  stories = {
    '1a': b'(CNN) -- A dog ran\n\nIt barked!\n\n@highlight\n\nA dog ran\n',
    '2b': b'\n\n@highlight\n\nNo article\n',
    '3c': b'No highlight.\n',
  }
  folder = data_dir / 'cnn_dailymail/cnn/stories'
  paths = [
    str(write(folder / f'{name}.story', data)) for name, data in stories.items()
  ]
  (row,) = _tfds('cnn_dailymail:3.4.0', tmp_path, {'cnn': paths})
  kept = tuple(p for p in row if p[0] in ('article', 'highlights'))
  assert _ours('synth_cnn_dailymail_v002') == [kept]
  note = _notes('synth_cnn_dailymail_v002')
  assert '2b.story:1: a broken row; left out' in note
  assert '2 of 3 rows' in note


_BODY = 'Share this with\nIt barked.\r\nLinkedIn\n \nThen\x85it left. \n'
_EXTRACTED = (
  '[XSUM]URL[XSUM]\nhttp://x\n\n[XSUM]INTRODUCTION[XSUM]\nEmail\nA dog ran.\n'
  f'[XSUM]RESTBODY[XSUM]\n{_BODY}'
)
_GIVEN = (
  '[SN]URL[SN]\nhttp://x\n[SN]TITLE[SN]\nNews\n[SN]FIRST-SENTENCE[SN]\n'
  f'A dog ran.\n[SN]RESTBODY[SN]\n{_BODY}'
)


@pytest.mark.parametrize('given', [False, True])
def test_xsum(given, data_dir, tmp_path):
  ids = {'train': ['2', '1', '3'], 'validation': [], 'test': []}
  name = 'XSum-TRAINING-DEV-TEST-SPLIT-90-5-5.json'
  write(data_dir / 'xsum' / name, json.dumps(ids).encode())
  extracts = tmp_path / 'extracts'
  for number in '124':
    article = _EXTRACTED.replace('dog', f'dog {number}').encode()
    write(extracts / f'{number}.data', article)
    path = f'xsum-extracts-from-downloads/{number}.data'
    if given:
      article = _GIVEN.replace('dog', f'dog {number}').encode()
      path = f'bbc-summary-data/{number}.summary'
    write(data_dir / 'xsum' / path, article)
  expected = _tfds('xsum:1.1.0', tmp_path, ids['train'], str(extracts))
  assert len(expected) == 2
  assert _ours('synth_xsum_v110') == expected


def _wsc(text, pronoun, index):
  spans = {'span1_index': 0, 'span1_text': text.split()[0]}
  spans.update(span2_index=index, span2_text=pronoun)
  row = {'text': text, 'target': spans, 'idx': 0, 'label': True}
  return json.dumps(row).encode() + b'\n'


def test_texts_that_t5_corrects_are_accepted(data_dir):
  """The two official texts whose pronoun is elsewhere: T5 has them in code."""
  texts = [
    value
    for value in _wsc_inputs.__code__.co_consts
    if isinstance(value, str)
    and zlib.crc32(value.encode()) in WscReader.FIXED_BY_T5
  ]
  assert len(texts) == len(WscReader.FIXED_BY_T5) == 2
  lines = (_wsc(text, 'him' if 'him' in text else 'it', 20) for text in texts)
  write(data_dir / 'superglue/WSC/train.jsonl', b''.join(lines))
  lengths = {'inputs': 999, 'targets': 99}
  rows = run(lambda: tasks.get(_WSC_TASK).get_dataset(lengths, 'train'))
  marked = [row['inputs_pretokenized'] for row in rows]
  assert len(marked) == 2
  assert all(b' *him* ' in text or b' *it* ' in text for text in marked)


@pytest.mark.sampled
@pytest.mark.parametrize(
  'text,index,pronoun',
  [
    ('Ann ran because she was late.', 3, 'she'),
    ('Ann ran because she was late.', 2, 'she'),
    ('Ann  ran because she was late.', 3, 'she'),
    ('Ann  ran because she was late.', 4, 'she'),
    ('She ran because she was late.', 0, 'She'),
    ('Ann ran because she, was late.', 3, 'she'),
    ('Ann ran, and late was she.', 5, 'she.'),
  ],
)
def test_wsc_is_refused_where_t5_would_end_the_run(
  text, index, pronoun, data_dir
):
  path = write(
    data_dir / 'superglue/WSC/train.jsonl', _wsc(text, pronoun, index)
  )
  row = {'text': text, 'span1_text': text.split()[0], 'label': 1, 'idx': 0}
  row.update(span2_text=pronoun, span2_index=index)
  rows = tf.data.Dataset.from_tensors
  try:
    run(lambda: preprocessors.wsc_simple(rows(row), correct_referent_only=True))
  except tf.errors.InvalidArgumentError:
    with pytest.raises(UserError, match=f'{path}:1: the pronoun'):
      tasks.check([_WSC_TASK], ['train'])
  else:
    tasks.check([_WSC_TASK], ['train'])


def test_sentences_of_white_space_and_with_carriage_returns(data_dir, tmp_path):
  folder = 'lm1b/training-monolingual.tokenized.shuffled'
  text = 'One .\n\u00a0\n\u0085\n\u2028\n\nFour\u2028x .\rFive\r\r\n'.encode()
  path = write(data_dir / folder / 'news.en-00001-of-00100', text)
  assert _ours('synth_lm1b') == _tfds('lm1b:1.1.0', tmp_path, [str(path)])


def test_names_and_lists_that_are_not_utf8_and_folders_are_named(data_dir):
  stories = 'cnn_dailymail/cnn/stories'
  write(data_dir / stories / '1.story', b'A.')
  write(data_dir / 'cnn_dailymail/url_lists/all_train.txt', b'\xe9\n')
  write(data_dir / 'dpr/train.c.txt/a', b'')
  write(data_dir / 'corpus/\udce9.txt', b'A.')
  for name, place in (
    ('cnn_dailymail_v002', 'all_train.txt'),
    ('dpr_v001_simple', 'train.c.txt is a folder'),
    ('text_span_corruption', 'corpus'),
  ):
    with pytest.raises(UserError, match=place):
      tasks.check([f'synth_{name}'], ['train'])


@pytest.mark.parametrize('to', ['gone', 'all_train.txt', None])
@pytest.mark.parametrize('place', ['url_lists', 'url_lists/all_train.txt'])
def test_a_list_that_is_broken_is_not_taken_for_none(data_dir, place, to):
  stories = data_dir / 'cnn_dailymail'
  write(stories / 'cnn/stories/1.story', b'A.')
  (stories / place).parent.mkdir(exist_ok=True)
  if to:
    (stories / place).symlink_to(to)
  elif place == 'url_lists':
    write(stories / place, b'')
  else:
    (stories / place).mkdir()
  with pytest.raises(
    UserError, match='(url_lists|all_train.txt) (cannot be|is a f)'
  ):
    tasks.check(['synth_cnn_dailymail_v002'], ['train'])
