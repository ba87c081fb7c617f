"""`synth-mtf vocabulary`: a model of the data's own text, or a clear error."""

import json
import pathlib

import pytest

from synth_mtf import cli
from synth_mtf.cli.vocabulary import texts
from synth_mtf.tasks import vocabulary as vocabularies


@pytest.fixture
def train(capsys, monkeypatch, tmp_path):
  # `run` sets them; monkeypatch takes them back.
  monkeypatch.setenv('SYNTH_MTF_DATA_DIR', '')
  monkeypatch.setenv('SYNTH_MTF_SKIP_BAD_ROWS', '')
  monkeypatch.setenv('SYNTH_MTF_INDEX_DIR', str(tmp_path / 'index'))

  def run(*words):
    status = cli.main(['vocabulary', *map(str, words)])
    return status, capsys.readouterr()

  return run


@pytest.fixture
def data_dir(tmp_path) -> pathlib.Path:
  """Text below corpus/ and two tasks."""
  folder = tmp_path / 'data'
  rows = [f'x\t{i % 2}\t\tA zebra counted {i} stripes.\n' for i in range(99)]
  text = [f'The lamp number {i} went out again.\n\n' for i in range(300)]
  row = {'question': 'q', 'passage': 'quagga ' * 9, 'idx': 0, 'label': True}
  for name, content in {
    'glue/CoLA/train.tsv': ''.join(rows),
    'corpus/deep/text.txt': ''.join(text),
    'superglue/BoolQ/train.jsonl': (json.dumps(row) + '\n') * 5,
  }.items():
    path = folder / name
    path.parent.mkdir(parents=True)
    path.write_text(content)
  return folder


@pytest.mark.slow  # trains
def test_text_of_corpus_and_tasks(train, data_dir, tmp_path):
  model = tmp_path / 'new' / 'a.model'
  status, shown = train('--data_dir', data_dir, '--out', model, '--size', 80)
  assert status == 0, shown.err
  assert f'--vocabulary={model}' in shown.out
  for name in ('text_span_corruption', 'glue_cola', 'super_glue_boolq'):
    assert f'synth_{name}' in shown.out
  vocabulary = vocabularies.load(str(model))  # checks T5's ids
  for text in ('The lamp went out.', 'A zebra counted 12 stripes.', 'quagga'):
    assert vocabulary.decode(vocabulary.encode(text)) == text


def test_sources_take_turns_and_texts_come_once():
  class Source:
    def __init__(self, rows):
      self.examples = {'train': rows}.get

  long = Source({'a': [text], 'label': 1} for text in 'xyxz')
  assert ''.join(texts([long, Source([{'b': 'c', 'd': 'x'}])])) == 'xcyz'


def test_mistakes_are_explained(train, data_dir, tmp_path):
  out = tmp_path / 'new' / 'x.model'
  (tmp_path / 'empty').mkdir()
  (tmp_path / 'file').write_text('')
  for words, message in (
    (('--data_dir', data_dir, '--out', 'x.txt'), 'ends in .model'),
    (('--data_dir', tmp_path / 'no', '--out', out), 'has no text'),
    (('--data_dir', tmp_path / 'empty', '--out', out), 'has no text'),
    (
      ('--data_dir', data_dir, '--out', tmp_path / 'file' / 'x.model'),
      'its folder cannot be created',
    ),
  ):
    status, shown = train(*words)
    assert status == 2
    assert message in shown.err
  assert not out.parent.exists()


@pytest.mark.slow  # trains
def test_bad_rows_are_refused_or_skipped(train, data_dir, tmp_path):
  out = tmp_path / 'x.model'
  words = '--data_dir', data_dir, '--out', out, '--size'
  for size in (-1, 0, 5):
    status, shown = train(*words, size)
    assert (status, f'no vocabulary of {size} pieces' in shown.err) == (2, True)
  path = data_dir / 'glue/CoLA/train.tsv'
  path.write_text('x\t7\t\tA sentence.\nx\t1\t\tAnother.\n')
  status, shown = train(*words, 70)
  assert (status, f'{path}:1' in shown.err) == (2, True)
  assert not out.exists()
  assert train(*words, 70, '--skip_bad_rows')[0] == 0
