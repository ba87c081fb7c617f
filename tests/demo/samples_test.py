"""The shipped samples: the layout of the official files."""

import csv
import json

from synth_mtf import paths, tasks


def tsv(path):
  with open(path, encoding='utf-8', newline='') as file:
    return list(csv.reader(file, delimiter='\t', quoting=csv.QUOTE_NONE))


def json_lines(path):
  return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_task_accepts_the_samples(tmp_path, monkeypatch):
  monkeypatch.setenv('SYNTH_MTF_DATA_DIR', paths.samples_path())
  monkeypatch.setenv('SYNTH_MTF_INDEX_DIR', str(tmp_path))
  tasks.check(['synth_en_mix', 'synth_glue_wnli_v002'], ['train', 'validation'])


_PAIR = ('index', 'sentence1', 'sentence2', 'label')
_PARSES = (
  *('index', 'promptID', 'pairID', 'genre'),
  *('sentence1_binary_parse', 'sentence2_binary_parse'),
  *('sentence1_parse', 'sentence2_parse', 'sentence1', 'sentence2'),
)
# The official first lines; CoLA has none, and four columns.
COLUMNS = {
  'SST-2': ('sentence', 'label'),
  'MRPC': ('Quality', '#1 ID', '#2 ID', '#1 String', '#2 String'),
  'QQP': ('id', 'qid1', 'qid2', 'question1', 'question2', 'is_duplicate'),
  'STS-B': (
    *('index', 'genre', 'filename', 'year', 'old_index'),
    *('source1', 'source2', 'sentence1', 'sentence2', 'score'),
  ),
  'MNLI/train.tsv': (*_PARSES, 'label1', 'gold_label'),
  'MNLI': (*_PARSES, *(f'label{i}' for i in range(1, 6)), 'gold_label'),
  'QNLI': ('index', 'question', 'sentence', 'label'),
  'RTE': _PAIR,
  'WNLI': _PAIR,
}
_ENTAILMENT = {'hypothesis': str, 'idx': int, 'label': str, 'premise': str}
_SPAN = {'start': int, 'end': int}
# The official keys and the types of their values.
KEYS = {
  'superglue/BoolQ': {
    'idx': int, 'label': bool, 'passage': str, 'question': str,
  },
  'superglue/CB': _ENTAILMENT,
  'superglue/COPA': {
    'choice1': str, 'choice2': str, 'idx': int, 'label': int, 'premise': str,
    'question': str,
  },
  'superglue/MultiRC': {
    'idx': int,
    'version': float,
    'passage': {
      'text': str,
      'questions': [
        {
          'idx': int,
          'question': str,
          'answers': [{'idx': int, 'label': int, 'text': str}],
        }
      ],
    },
  },
  'superglue/RTE': _ENTAILMENT,
  'superglue/ReCoRD': {
    'idx': int,
    'source': str,
    'passage': {'text': str, 'entities': [_SPAN]},
    'qas': [{'idx': int, 'query': str, 'answers': [{**_SPAN, 'text': str}]}],
  },
  'superglue/WSC': {
    'idx': int,
    'label': bool,
    'text': str,
    'target': {
      'span1_index': int, 'span1_text': str,
      'span2_index': int, 'span2_text': str,
    },
  },
  'superglue/WiC': {
    'end1': int, 'end2': int, 'idx': int, 'label': bool, 'sentence1': str,
    'sentence2': str, 'start1': int, 'start2': int, 'version': float,
    'word': str,
  },
  'squad': {
    'version': str,
    'data': [
      {
        'title': str,
        'paragraphs': [
          {
            'context': str,
            'qas': [
              {
                'id': str,
                'question': str,
                'answers': [{'answer_start': int, 'text': str}],
              }
            ],
          }
        ],
      }
    ],
  },
}  # fmt: skip


def test_columns_are_those_of_the_official_files(official_data):
  paths = sorted(official_data.glob('glue/*/*.tsv'))
  assert len(paths) == 2 * 9 + 1
  for path in paths:
    rows = tsv(path)
    task = path.parent.name
    if task == 'CoLA':
      assert {len(row) for row in rows} == {4}
      continue
    columns = COLUMNS.get(f'{task}/{path.name}') or COLUMNS[task]
    assert tuple(name.lstrip('\ufeff') for name in rows[0]) == columns, path
    assert {len(row) for row in rows} == {len(columns)}, path


def test_keys_are_those_of_the_official_files(official_data):
  paths = sorted(official_data.glob('superglue/*/*.jsonl'))
  assert len(paths) == 2 * 8
  for path in paths:
    for row in json_lines(path):
      assert shape(row) == KEYS[f'superglue/{path.parent.name}'], path
  for part in ('train', 'dev'):
    path = official_data / 'squad' / f'{part}-v1.1.json'
    assert shape(json.loads(path.read_text())) == KEYS['squad']


def shape(value):
  """The keys and types of nested JSON, the first element for a list."""
  if isinstance(value, dict):
    return {key: shape(one) for key, one in value.items()}
  if isinstance(value, list):
    return [shape(value[0])]
  return type(value)
