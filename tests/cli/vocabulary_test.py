"""`synth-mtf vocabulary`: a model of the data's own text, or a clear error."""

import argparse
import json
import pathlib

import pytest
from sentencepiece import sentencepiece_model_pb2

from synth_mtf.cli.vocabulary import add_arguments, texts
from synth_mtf.tasks import vocabulary as vocabularies
from tests.cli.command import run


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
@pytest.mark.parametrize('kind', ['unigram', 'bpe'])
def test_text_of_corpus_and_tasks(data_dir, tmp_path, kind):
  model = tmp_path / 'a' / 'new' / 'a.model'
  words = f'vocabulary --data_dir {data_dir} --out {model} --size 80'
  if kind != 'unigram':
    words += f' --model_type={kind}'
  status, out, err = run(*words.split())
  assert status == 0, err
  assert f'--vocabulary={model}' in out
  for name in ('text_span_corruption', 'glue_cola', 'super_glue_boolq'):
    assert f'synth_{name}' in out
  vocabulary = vocabularies.load(str(model))  # checks T5's ids
  proto = sentencepiece_model_pb2.ModelProto.FromString(vocabulary.sp_model)
  kinds = proto.trainer_spec.ModelType
  assert kinds.Name(proto.trainer_spec.model_type).lower() == kind
  for text in ('The lamp went out.', 'A zebra counted 12 stripes.', 'quagga'):
    assert vocabulary.decode(vocabulary.encode(text)) == text


@pytest.mark.slow  # trains
@pytest.mark.parametrize('with_data', [True, False])
def test_text_of_a_task_file(data_dir, tmp_path, with_data):
  rows = ''.join(f'the yak {i}\tgnu\n' for i in range(300))
  (tmp_path / 'a.tsv').write_text(f'q\ta\n{rows}')
  (tmp_path / 'task.yaml').write_text(
    "name: animals\nfiles: {train: a.tsv}\ninputs: 'ask: {q}'\n"
    "targets: '{a}'\nmetrics: [accuracy]\n"
  )
  model = tmp_path / 'a.model'
  words = ['--task_file', tmp_path / 'task.yaml', '--out', model, '--size', 60]
  words += ['--data_dir', data_dir] if with_data else []
  status, out, err = run('vocabulary', *words)
  assert status == 0, err
  assert 'animals' in out and ('synth_glue_cola' in out) == with_data
  vocabulary = vocabularies.load(str(model))
  assert vocabulary.decode(vocabulary.encode('the yak')) == 'the yak'


def test_the_size_is_t5s_by_default():
  parser = argparse.ArgumentParser()
  add_arguments(parser)
  given = parser.parse_args(['--out', 'a.model'])
  assert (given.size, given.model_type) == (32_000, 'unigram')


def test_without_text_the_flags_are_named(tmp_path):
  status, _, err = run('vocabulary', '--out', tmp_path / 'a.model')
  assert status == 2 and '--text, --data_dir or --task_file' in err


def test_sources_take_turns_and_texts_come_once():
  class Source:
    def __init__(self, rows):
      self.examples = {'train': rows}.get

  long = Source({'a': [text], 'label': 1} for text in 'xyxz')
  assert ''.join(texts([long, Source([{'b': 'c', 'd': 'x'}])])) == 'xcyz'


@pytest.mark.parametrize(
  'data, out, message',
  [
    ('data', 'x.txt', 'ending in .model'),
    ('data', 'gs://bucket/x.model', 'a local name'),
    ('no', 'new/x.model', 'does not exist'),
    ('empty', 'new/x.model', 'has no text'),
    ('data', 'file/x.model', '--out: file cannot be written'),
  ],
)
@pytest.mark.usefixtures('data_dir')
def test_mistakes_are_explained(tmp_path, monkeypatch, data, out, message):
  monkeypatch.chdir(tmp_path)
  pathlib.Path('empty').mkdir()
  pathlib.Path('file').touch()
  status, _, err = run('vocabulary', f'--data_dir={data}', f'--out={out}')
  assert status == 2
  assert message in err
  assert {path.name for path in tmp_path.iterdir()} == {'data', 'empty', 'file'}


@pytest.mark.slow  # trains
def test_bad_rows_are_refused_or_skipped(data_dir, tmp_path):
  out = tmp_path / 'x.model'
  words = ['vocabulary', f'--data_dir={data_dir}', f'--out={out}', '--size']
  status, _, err = run(*words, 5)
  assert (status, 'no vocabulary of 5 pieces' in err) == (2, True)
  path = data_dir / 'glue/CoLA/train.tsv'
  path.write_text('x\t7\t\tA sentence.\nx\t1\t\tAnother.\n')
  status, _, err = run(*words, 70)
  assert (status, f'{path}:1' in err) == (2, True)
  assert not out.exists()
  assert run(*words, 70, '--skip_bad_rows')[0] == 0
