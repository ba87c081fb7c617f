"""Translation, LM1B, generation, classification, C4: text, counts, metrics.

T5's own tasks, where it has them, read TFDS datasets of the same rows.
"""

import collections
import csv
import gzip
import hashlib
import json
import pathlib
import shutil

import gin
import pytest
import sacrebleu
import seqio
import tensorflow_datasets as tfds

from benchmarks import tfds_samples
from synth_mtf import tasks
from synth_mtf.tasks import dialogue_metrics
from tests.tasks.rows import frozen, run

_LENGTHS = {'inputs': 512, 'targets': 114}
_ROWS = 40
_EXTRA = 'needs pip install synth-mtf[metrics]'


@pytest.fixture
def use_files(real_data):
  gin.bind_parameter('synth_mtf.tasks.settings.data_dir', str(real_data))
  return real_data


@pytest.fixture
def prepared(tmp_path):
  """Makes a TFDS dataset of given rows, which seqio then finds."""

  def prepare(name, files=None, **splits):
    generators = {
      split: iter(enumerate(rows)) for split, rows in splits.items()
    }
    tfds_samples.prepare(
      name, files, str(tmp_path / 'tfds'), generators or None
    )
    # seqio keeps builders by name and folder, for as long as it lives.
    seqio.utils.LazyTfdsLoader._MEMOIZED_BUILDERS.clear()  # noqa: SLF001
    seqio.set_tfds_data_dir_override(str(tmp_path / 'tfds'))

  yield prepare
  seqio.set_tfds_data_dir_override(None)
  for name in seqio.TaskRegistry.names():
    source = seqio.TaskRegistry.get(name).source
    if name.startswith('synth_'):
      source = source.tfds
    if source is not None:
      # seqio does not take it back.
      source.tfds_dataset._data_dir_override = None  # noqa: SLF001


def _examples(task, split, **kwargs):
  rows = run(lambda: task.get_dataset(_LENGTHS, split, shuffle=False, **kwargs))
  return collections.Counter(map(frozen, rows))


def _three_ways(name, split, data_dir, t5_name=None):
  """Ours over files and over TFDS and T5's own agree; returns the rows."""
  ours = tasks.get(name)
  over_tfds = _examples(ours, split)
  if t5_name:
    t5_own = seqio.TaskRegistry.get(t5_name)
    t5_own = t5_own.replace(output_features=tasks.OUTPUT_FEATURES)
    assert _examples(t5_own, split) == over_tfds
  gin.bind_parameter('synth_mtf.tasks.settings.data_dir', str(data_dir))
  assert _examples(ours, split) == over_tfds
  return over_tfds


def _copy_lines(source: pathlib.Path, target: pathlib.Path, lines=_ROWS):
  target.parent.mkdir(parents=True, exist_ok=True)
  kept = source.read_bytes().splitlines(keepends=True)[:lines]
  target.write_bytes(b''.join(kept))
  return [line.decode().rstrip('\n') for line in kept]


@pytest.mark.parametrize(
  'task,config,source,names',
  [
    ('wmt14_ende_v003', 'wmt14_translate/de-en', 'wmt14_en_de_tok', 'train'),
    ('wmt14_enfr_v003', 'wmt14_translate/fr-en', 'multi30k', 'train'),
    ('wmt16_enro_v003', 'wmt16_translate/ro-en', 'wmt16_en_ro', 'newsdev2016'),
  ],
)
def test_translation(
  task, config, source, names, real_data, tmp_path, prepared
):
  pair = task.split('_')[1]
  folder = f'{task[:5]}_{pair[:2]}_{pair[2:]}_sample'
  languages = pair[:2], pair[2:]
  sentences = [
    _copy_lines(
      real_data / 'parallel' / source / f'{names}.{language}',
      tmp_path / 'parallel' / folder / f'train.{language}',
    )
    for language in languages
  ]
  prepared(
    f'{config}:1.0.0',
    train=[dict(zip(languages, row)) for row in zip(*sentences)],
  )
  rows = _three_ways(f'synth_{task}', 'train', tmp_path, task)
  assert sum(rows.values()) == _ROWS


def test_bleu_is_sacrebleus(real_data):
  german = (
    (real_data / 'parallel/wmt14_en_de_tok/val.de').read_text().splitlines()
  )
  predictions = [line.replace(' der ', ' die ') for line in german]
  (metric,) = tasks.get('synth_wmt14_ende_v003').metric_fns
  expected = sacrebleu.corpus_bleu(
    predictions, [german], tokenize='intl', smooth_value=0.0, force=False
  )
  assert metric(german, predictions)['bleu'] == pytest.approx(expected.score)


def test_lm1b_over_its_own_layout(real_data, tmp_path, prepared):
  layout = (
    tmp_path
    / 'lm1b/1-billion-word-language-modeling-benchmark-r13output'
    / 'training-monolingual.tokenized.shuffled'
  )
  texts = _copy_lines(
    real_data / 'corpus/news_sentences/newstest2014.en.tok.txt',
    layout / 'news.en-00001-of-00100',
  )
  prepared('lm1b:1.1.0', train=[{'text': text.strip()} for text in texts])
  rows = _three_ways('synth_lm1b', 'train', tmp_path)
  assert sum(rows.values()) == _ROWS
  assert list(tasks.get('synth_lm1b').output_features) == ['targets']


def test_ag_news(real_data, tmp_path, prepared):
  _copy_lines(
    real_data / 'ag_news_csv/test.csv', tmp_path / 'ag_news_csv/train.csv'
  )
  shutil.copy(
    tmp_path / 'ag_news_csv/train.csv', tmp_path / 'ag_news_csv/test.csv'
  )
  with (tmp_path / 'ag_news_csv/train.csv').open(newline='') as stream:
    rows = [
      {'label': int(label) - 1, 'title': title, 'description': text}
      for label, title, text in csv.reader(stream)
    ]
  prepared('ag_news_subset:1.0.0', train=rows)
  found = _three_ways('synth_ag_news', 'train', tmp_path)
  words = {dict(row)['targets_pretokenized'] for row in found}
  assert words == {b'World', b'Sports', b'Business', b'Sci/Tech'}
  ours = tasks.get('synth_ag_news')
  assert [ours.postprocess_fn(w) for w in ('World', 'Sci/Tech', 'x')] == [
    0,
    3,
    -1,
  ]


def test_imdb(real_data, tmp_path, prepared):
  rows = []
  for label in ('neg', 'pos'):
    for path in sorted((real_data / 'aclImdb/train' / label).iterdir())[:20]:
      target = tmp_path / 'aclImdb/train' / label / path.name
      target.parent.mkdir(parents=True, exist_ok=True)
      shutil.copy(path, target)
      rows.append({'text': path.read_text().strip(), 'label': label})
  prepared('imdb_reviews/plain_text:1.0.0', train=rows)
  found = _three_ways('synth_imdb_reviews', 'train', tmp_path)
  assert sum(found.values()) == _ROWS


@pytest.mark.parametrize('with_lists', [False, True])
def test_cnn_dailymail(with_lists, real_data, tmp_path, prepared):
  root = tmp_path / 'cnn_dailymail'
  shutil.copytree(real_data / 'cnn_dailymail', root)
  stories = sorted((root / 'cnn/stories').iterdir())
  train = [s for s in stories if s.name[0] not in '0f']
  if with_lists:
    # A story is named by the hash of its address: make addresses of our own.
    lists = root / 'url_lists'
    lists.mkdir()
    urls = [f'http://example.com/{i}' for i in range(len(stories))]
    for url, story in zip(urls, stories):
      digest = hashlib.sha1(url.encode()).hexdigest()
      story.rename(story.with_name(f'{digest}.story'))
    (lists / 'all_train.txt').write_text('\n'.join(urls[:5]) + '\n')
    train = [
      root / 'cnn/stories' / f'{hashlib.sha1(u.encode()).hexdigest()}.story'
      for u in urls[:5]
    ]
  parse = tfds.summarization.cnn_dailymail._get_art_abs  # noqa: SLF001
  rows = [
    dict(zip(('article', 'highlights'), parse(str(path))), id='', publisher='')
    for path in train
  ]
  prepared('cnn_dailymail:3.4.0', train=rows)
  found = _three_ways(
    'synth_cnn_dailymail_v002', 'train', tmp_path, 'cnn_dailymail_v002'
  )
  assert sum(found.values()) == len(train)


def test_c4_over_its_own_files(real_data, tmp_path, prepared):
  text = (real_data / 'corpus/books/moby_dick.txt').read_text()
  texts = [text[i : i + 3000] for i in range(0, 60_000, 3000)]
  lines = [json.dumps({'text': t, 'url': 'x'}) for t in texts]
  for name, part in (('train.00000', lines[:15]), ('validation.00000', lines)):
    path = tmp_path / 'c4/en' / f'c4-{name}-of-00001.json.gz'
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress('\n'.join(part).encode()))
  rows = [
    {
      'text': t,
      'url': 'x',
      'timestamp': '',
      'content-length': '',
      'content-type': '',
    }
    for t in texts
  ]
  prepared('c4/en:2.2.0', train=rows[:15], validation=rows)
  ours = tasks.get('synth_c4_span_corruption')
  t5_own = seqio.TaskRegistry.get('c4_v220_span_corruption')

  def texts_of(source, split):
    rows = run(lambda: source.get_dataset(split, shuffle=False))
    return collections.Counter(row['text'] for row in rows)

  for split in ('train', 'validation'):
    gin.clear_config()
    expected = texts_of(t5_own.source, split)
    assert texts_of(ours.source, split) == expected
    gin.bind_parameter('synth_mtf.tasks.settings.data_dir', str(tmp_path))
    assert texts_of(ours.source, split) == expected
    assert sum(expected.values()) == (15 if split == 'train' else 20)
  assert ours.preprocessors == t5_own.preprocessors


def test_personachat_turns(use_files):
  task = tasks.get('synth_personachat')
  rows = run(
    lambda: task.get_dataset(_LENGTHS, 'validation', shuffle=False), limit=3
  )
  assert task.num_input_examples('validation') == 5449
  assert rows[1]['inputs_pretokenized'].decode() == (
    'personachat persona: i have two dogs. i like to work on vintage cars. my '
    'favorite music is country. i own two vintage mustangs. dialogue: hi ! how '
    "are you doing tonight ? i'm doing great . just relaxing with my two dogs "
    '. great . in my spare time i do volunteer work .'
  )
  assert rows[1]['targets_pretokenized'].decode() == (
    "that's neat . what kind of volunteer work do you do ?"
  )


_SAID = ['i like my two dogs a lot', 'hello , how are you ?', 'yes i do']
_HEARD = ['i like dogs', 'hello , how are you today ?', 'no']


@pytest.mark.parametrize('name', ['bleu', 'rouge_l', 'cider'])
def testdialogue_metrics_are_pycocoevalcaps(name):
  pytest.importorskip('pycocoevalcap', reason=_EXTRA)
  metric = getattr(dialogue_metrics, name)
  perfect, other = metric(_SAID, _SAID), metric(_SAID, _HEARD)
  assert perfect.keys() == other.keys()
  for key in perfect:
    assert 0 < other[key] < perfect[key]
    if name != 'cider':
      assert perfect[key] == pytest.approx(100, abs=1e-4)


def test_meteor_runs_where_there_is_java():
  pytest.importorskip('pycocoevalcap', reason=_EXTRA)
  score = dialogue_metrics.meteor(_SAID, _HEARD)
  if shutil.which('java'):
    assert 20 < score['meteor'] < 35
  else:
    assert score == {}


def test_metric_without_its_package_is_left_out(monkeypatch, caplog):
  monkeypatch.setitem(__import__('sys').modules, 'pycocoevalcap.bleu', None)
  with caplog.at_level('WARNING', logger='absl'):
    assert dialogue_metrics.bleu(_SAID, _HEARD) == {}
  assert 'pip install synth-mtf[metrics]' in caplog.text


def test_embedding_similarity(tmp_path, monkeypatch, caplog):
  with caplog.at_level('WARNING', logger='absl'):
    assert dialogue_metrics.embedding_similarity(_SAID, _HEARD) == {}
  assert 'SYNTH_MTF_WORD_VECTORS' in caplog.text
  pytest.importorskip('gensim', reason=_EXTRA)
  vectors = tmp_path / 'vectors.txt'
  vectors.write_text('a 1 0\nb 0 1\n')
  monkeypatch.setenv('SYNTH_MTF_WORD_VECTORS', str(vectors))
  score = dialogue_metrics.embedding_similarity(
    ['a', 'a', 'a b', 'x'], ['a', 'b', 'a', 'x']
  )
  expected = 100 * (1 + 0 + 0.5**0.5 + 0) / 4
  assert score == {'embedding_similarity': pytest.approx(expected)}
