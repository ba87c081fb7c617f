"""The generated samples: official formats, labels that follow from the text."""

import csv
import json
import pathlib

import pytest

from synth_mtf import tasks
from synth_mtf.demo import samples


@pytest.fixture(scope='module')
def folder(tmp_path_factory) -> pathlib.Path:
  path = tmp_path_factory.mktemp('samples')
  samples.write(path, seed=0)
  return path


def files(folder):
  paths = sorted(path for path in folder.rglob('*') if path.is_file())
  return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def tsv(path):
  with open(path, encoding='utf-8', newline='') as file:
    return list(csv.reader(file, delimiter='\t', quoting=csv.QUOTE_NONE))


def json_lines(path):
  return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_seed_decides(folder, tmp_path):
  samples.write(tmp_path / 'same', seed=0)
  samples.write(tmp_path / 'other', seed=1)
  assert files(tmp_path / 'same') == files(folder)
  other = files(tmp_path / 'other')
  changed = {name for name, content in files(folder).items()
             if content != other[name]}  # fmt: skip
  assert changed == set(other) - {'GENERATED_SAMPLE.txt'}


def test_it_says_what_it_is(folder):
  assert 'GENERATED SAMPLE' in (folder / 'GENERATED_SAMPLE.txt').read_text()


def test_every_task_accepts_its_files(folder, tmp_path, monkeypatch):
  monkeypatch.setenv('SYNTH_MTF_DATA_DIR', str(folder))
  monkeypatch.setenv('SYNTH_MTF_INDEX_DIR', str(tmp_path))
  tasks.check(['synth_en_mix', 'synth_glue_wnli_v002'], ['train', 'validation'])


def test_columns_are_those_of_the_official_files(folder, real_data):
  for path in sorted((folder / 'glue').rglob('*.tsv')):
    official = tsv(real_data / path.relative_to(folder))
    rows = tsv(path)
    assert {len(row) for row in rows} == {len(official[0])}, path
    if 'CoLA' not in path.parts:
      header = [name.lstrip('\ufeff') for name in official[0]]
      assert rows[0] == header, path


def test_keys_are_those_of_the_official_files(folder, real_data):
  for path in sorted((folder / 'superglue').rglob('*.jsonl')):
    official = json_lines(real_data / path.relative_to(folder))[0]
    assert {shape(line) for line in json_lines(path)} == {shape(official)}
  for name in ('train-v1.1.json', 'dev-v1.1.json'):
    made, official = (
      json.loads((root / 'squad' / name).read_text())
      for root in (folder, real_data)
    )
    assert shape(made) == shape(official)


def shape(value):
  """The keys and types of nested JSON, the first element for a list."""
  if isinstance(value, dict):
    return tuple(sorted((key, shape(one)) for key, one in value.items()))
  if isinstance(value, list):
    return ('list', shape(value[0]))
  return type(value).__name__


def test_labels_are_balanced(folder):
  for task, column in (('CoLA', 1), ('SST-2', 1), ('RTE', 3), ('WNLI', 3)):
    rows = tsv(folder / 'glue' / task / 'train.tsv')
    labels = [row[column] for row in rows if row[column] != 'label']
    for one in set(labels):
      assert 0.4 < labels.count(one) / len(labels) < 0.6, task


def test_spans_are_where_they_say(folder):
  squad = json.loads((folder / 'squad' / 'dev-v1.1.json').read_text())
  for article in squad['data']:
    for paragraph in article['paragraphs']:
      for question in paragraph['qas']:
        for answer in question['answers']:
          start = answer['answer_start']
          assert paragraph['context'][start:].startswith(answer['text'])
  for line in json_lines(folder / 'superglue' / 'ReCoRD' / 'val.jsonl'):
    text = line['passage']['text']
    for answer in line['qas'][0]['answers']:
      assert text[answer['start'] : answer['end'] + 1] == answer['text']
      assert answer['text'] not in line['qas'][0]['query']
  for line in json_lines(folder / 'superglue' / 'WiC' / 'val.jsonl'):
    for i in ('1', '2'):
      span = line['sentence' + i][line['start' + i] : line['end' + i]]
      assert span == line['word']
  for line in json_lines(folder / 'superglue' / 'WSC' / 'val.jsonl'):
    words, target = line['text'].split(), line['target']
    for i in ('1', '2'):
      assert words[target[f'span{i}_index']] == target[f'span{i}_text']
