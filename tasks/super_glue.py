"""SuperGLUE from its official JSON lines, arXiv 1905.00537.

Each reader gives the structure of TFDS's `super_glue/<config>:1.0.2`.
"""

from __future__ import annotations

import itertools
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow_datasets as tfds
from typing_extensions import override

from synth_mtf.tasks.files import formats
from synth_mtf.tasks.files.formats import (
  INT,
  LABEL,
  TEXT,
  TEXTS,
  Example,
  Oddity,
  Reader,
  Record,
  RowError,
  decode,
  json_row,
  quote,
)
from synth_mtf.tasks.files.source import Split
from synth_mtf.tasks.registering import adopt

_ROOTS = ('superglue/', 'SuperGLUE/', 'super_glue/', '')
_CONFIGS = tfds.text.super_glue.SuperGlue.builder_configs


class SuperGlueReader(Reader):
  """JSON lines of a TFDS config; a row is an example, whose features are text.

  Attributes:
    labels: the JSON values of the classes, in the order of TFDS's classes.
    structure: what a row must have, as for `check_json`.
  """

  labels: Sequence[Any] = ()
  structure: Mapping[str, Any]

  def __init__(self, name: str, labelled: bool) -> None:
    self._name = name
    self._labelled = labelled
    classes = _CONFIGS[name].label_classes
    booleans = classes == ('False', 'True')
    self.labels = self.labels or ((False, True) if booleans else classes)
    kinds = {int: INT, str: TEXT}
    features = {name: kinds[kind] for name, kind in self.features.items()}
    self.schema = {**features, 'label': LABEL, 'idx': INT}
    self.structure = {**self.features, 'idx': int}

  @property
  def features(self) -> Mapping[str, type]:
    """The features of an example without label and index: text."""
    return dict.fromkeys(_CONFIGS[self._name].features, str)

  @property
  @override
  def key(self) -> str:
    part = 'labelled' if self._labelled else 'test'
    return f'super_glue/{self._name}/{part}'

  @override
  def parse(
    self, record: Record, number: int, columns: Sequence[str] | None
  ) -> Sequence[Example | RowError]:
    return self.examples(json_row(record, self.structure))

  def examples(self, row: dict[str, Any]) -> Sequence[Example | RowError]:
    """Returns the examples of a row that has the structure."""
    example = {name: row[name] for name in self.schema if name != 'label'}
    self.check(**example)
    return [{**example, 'label': self.label(row)}]

  def check(self, **features: Any) -> None:
    """Raises a RowError if the features do not fit each other."""

  def label(self, row: Mapping[str, Any]) -> int:
    """Returns the class, or what stands for it in a test set without any."""
    if not self._labelled and 'label' not in row:
      return formats.NO_LABEL
    formats.check_json(row, {'label': object})
    label = row['label']
    for i, known in enumerate(self.labels):
      # In JSON 1 is not true; TFDS takes true for 1, but no 1 for true.
      if label == known and isinstance(label, type(known)):
        return i
    classes = ', '.join(map(json.dumps, self.labels))
    raise RowError(f'the label {quote(json.dumps(label))}', f'one of {classes}')


class CopaReader(SuperGlueReader):
  """COPA: the first or the second choice."""

  labels = (0, 1)

  @override
  def check(self, **features: Any) -> None:
    if features['question'] not in ('cause', 'effect'):
      raise RowError(
        f'the question {quote(features["question"])}', 'one of cause, effect'
      )


class WicReader(SuperGlueReader):
  """WiC: one word in two sentences."""

  @property
  @override
  def features(self) -> Mapping[str, type]:
    numbers = dict.fromkeys(('start1', 'start2', 'end1', 'end2'), int)
    return {**super().features, **numbers}

  @override
  def check(self, **features: Any) -> None:
    for i in '12':
      start, end = features[f'start{i}'], features[f'end{i}']
      length = len(features[f'sentence{i}'])
      if not 0 <= start < end <= length:
        raise RowError(
          f'the word from {start} to {end}',
          f'a span of sentence{i}, which has {length} characters',
        )


class WscReader(SuperGlueReader):
  """WSC: spans as in TFDS's `wsc.fixed`, where they are parts of the text.

  T5's preprocessor puts marks around the word at `span2_index`, of words that
  single spaces separate, and ends the run if that is not the pronoun.
  """

  # Two texts of the official files whose pronoun is elsewhere: CRC-32. T5's
  # preprocessor knows them and marks the right word.
  FIXED_BY_T5 = (1896453270, 2994969774)

  def __init__(self, name: str, labelled: bool) -> None:
    super().__init__(name, labelled)
    target = {
      name: kind for name, kind in self.features.items() if name != 'text'
    }
    self.structure = {'text': str, 'target': target, 'idx': int}

  @property
  @override
  def features(self) -> Mapping[str, type]:
    numbers = dict.fromkeys(('span1_index', 'span2_index'), int)
    return {**super().features, **numbers}

  @override
  def examples(self, row: dict[str, Any]) -> Sequence[Example | RowError]:
    example = {'text': row['text'], 'idx': row['idx']}
    words = len(row['text'].split())
    for name in self.structure['target']:
      example[name] = row['target'][name]
      if name.endswith('_index') and not 0 <= example[name] < words:
        raise RowError(
          f'{name} {example[name]}', f'a word of the text, 0 to {words - 1}'
        )
    return super().examples({**row, **tfds_fixed(example)})

  @override
  def check(self, **features: Any) -> None:
    text, pronoun = features['text'], features['span2_text']
    index = features['span2_index']
    words = text.split(' ')
    word = words[index] if 0 < index < len(words) else ''
    fixed = zlib.crc32(text.encode('utf-8')) in self.FIXED_BY_T5
    # With a backslash in it, T5 would leave an X where the pronoun was.
    if not word or (word != pronoun and not fixed) or '\\' in pronoun:
      raise RowError(
        f'the pronoun {quote(pronoun)} with span2_index {index}, '
        + (f'where {quote(word)} is' if word else 'where T5 looks for none'),
        'the index of a word that is the pronoun, counted from 0 by single '
        'spaces, and not the first word',
      )


def tfds_fixed(example: dict[str, Any]) -> dict[str, Any]:
  """Returns the example with TFDS's repairs of misquoted spans."""
  try:
    return tfds.text.super_glue._fix_wst(example)  # noqa: SLF001  its own
  except (AssertionError, IndexError) as error:
    raise RowError(
      f'the spans {quote(example["span1_text"])} and '
      f'{quote(example["span2_text"])}',
      'words of the text',
    ) from error


class MultircReader(SuperGlueReader):
  """MultiRC: a row is a passage; an example is one answer of one question."""

  labels = (0, 1)

  def __init__(self, name: str, labelled: bool) -> None:
    super().__init__(name, labelled)
    self.schema = {
      **self.schema,
      'idx': {'paragraph': INT, 'question': INT, 'answer': INT},
    }
    question = {
      'question': str,
      'idx': int,
      'answers': [{'text': str, 'idx': int}],
    }
    self.structure = {
      'idx': int,
      'passage': {'text': str, 'questions': [question]},
    }

  @override
  def examples(self, row: dict[str, Any]) -> Sequence[Example]:
    passage = row['passage']
    return [
      {
        'paragraph': passage['text'],
        'question': question['question'],
        'answer': answer['text'],
        'label': self.label(answer),
        'idx': {
          'paragraph': row['idx'],
          'question': question['idx'],
          'answer': answer['idx'],
        },
      }
      for question in passage['questions']
      for answer in question['answers']
    ]


class RecordReader(SuperGlueReader):
  """ReCoRD: a row is a passage; an example is one query.

  T5 makes one training example of each answer, and scores a prediction by its
  best answer.
  """

  _PLACEHOLDER = '@placeholder'

  def __init__(self, name: str, labelled: bool) -> None:
    super().__init__(name, labelled)
    self.schema = {
      'passage': TEXT,
      'query': TEXT,
      'entities': TEXTS,
      'answers': TEXTS,
      'idx': {'passage': INT, 'query': INT},
    }
    self.structure = {
      'idx': int,
      'passage': {'text': str, 'entities': [{'start': int, 'end': int}]},
      'qas': [{'idx': int, 'query': str}],
    }

  @override
  def examples(self, row: dict[str, Any]) -> Sequence[Example | RowError]:
    text = row['passage']['text']
    spans = [(e['start'], e['end']) for e in row['passage']['entities']]
    entities = sorted({text[start : end + 1] for start, end in spans})
    found: list[Example | RowError] = []
    for query in row['qas']:
      answers = self._answers(query, text)
      if self._PLACEHOLDER not in query['query']:
        raise RowError(
          f'the query {quote(query["query"])}', f'a {self._PLACEHOLDER} in it'
        )
      found.append(
        {
          'passage': text,
          'query': query['query'],
          'entities': entities,
          'answers': answers,
          'idx': {'passage': row['idx'], 'query': query['idx']},
        }
      )
      if not set(answers) <= set(entities):
        found.append(Oddity('an answer that is none of the entities'))
    if not all(0 <= start <= end < len(text) for start, end in spans):
      found.append(Oddity('an entity that is not inside its passage'))
    return found

  def _answers(self, query: dict[str, Any], passage: str) -> list[str]:
    if not self._labelled and 'answers' not in query:
      return []
    formats.check_json(query, {'answers': [{'text': str}]})
    answers = sorted({answer['text'] for answer in query['answers']})
    if not answers:
      raise RowError('a query without answers', 'at least one')
    for answer in answers:
      if not answer or answer not in passage:
        raise RowError(
          f'the answer {quote(answer)}', 'an entity, a part of the passage'
        )
    return answers


class DprReader(Reader):
  """Definite Pronoun Resolution: four lines per example, then an empty one."""

  schema = {
    'sentence': TEXT,
    'pronoun': TEXT,
    'candidates': TEXTS,
    'label': LABEL,
  }
  _LINES = 4

  @override
  def records(self, stream: Any, start: int) -> Iterator[Record]:
    lines: list[bytes] = []
    for line in itertools.chain(stream, [b'']):
      if line.strip():
        lines.append(line)
      if lines and (not line.strip() or len(lines) > self._LINES):
        data = b''.join(lines)
        yield Record(data, start)
        start, lines = start + len(data), []
      start += 0 if line.strip() else len(line)

  @override
  def parse(
    self, record: Record, number: int, columns: Sequence[str] | None
  ) -> Sequence[Example | RowError]:
    lines = [line.strip() for line in _text_lines(decode(record.data))]
    if len(lines) != self._LINES:
      raise RowError(
        f'{len(lines)} lines up to the next empty one',
        'sentence, pronoun, two candidates with a comma between, the answer',
      )
    sentence, pronoun, both, correct = lines
    candidates = [candidate.strip() for candidate in both.split(',')]
    if len(candidates) != 2:
      raise RowError(f'the candidates {quote(both)}', 'two, a comma between', 2)
    if not pronoun or pronoun.lower() not in sentence.lower():
      raise RowError(
        f'the pronoun {quote(pronoun)}', f'a word of {quote(sentence)}', 1
      )
    if correct not in candidates:
      raise RowError(
        f'the answer {quote(correct)}', f'one of {quote(both)}', line=3
      )
    return [
      {
        'sentence': sentence,
        'pronoun': pronoun,
        'candidates': candidates,
        'label': candidates.index(correct),
      },
      *self._oddities(sentence, pronoun),
    ]

  def _oddities(self, sentence: str, pronoun: str) -> list[Oddity]:
    if re.search(rf' ({re.escape(pronoun)})( |\.|,)', sentence):
      return []
    return [Oddity('a pronoun that T5 does not mark in its sentence', line=1)]


def _text_lines(text: str) -> list[str]:
  """Returns the lines of a text as a file in text mode has them."""
  lines = re.split('\r\n|\r|\n', text)
  return lines if lines[-1] else lines[:-1]


def _splits(
  name: str, folder: str, reader: type[SuperGlueReader], *splits: str
) -> dict[str, Split]:
  files = {'train': 'train', 'validation': 'val', 'test': 'test'}
  return {
    split: Split.of(
      [f'{root}{folder}/{files[split]}.jsonl' for root in _ROOTS],
      reader(name, split != 'test'),
      optional=split == 'test',
    )
    for split in splits or files
  }


def _dpr_split(file: str) -> Split:
  roots = ('dpr/', 'DPR/', 'definite_pronoun_resolution/', 'superglue/DPR/')
  return Split.of(
    [f'{root}{file}.c.txt' for root in roots],
    DprReader(),
    optional=file == 'train',
  )


_READERS = {
  'boolq': ('BoolQ', SuperGlueReader),
  'cb': ('CB', SuperGlueReader),
  'copa': ('COPA', CopaReader),
  'multirc': ('MultiRC', MultircReader),
  'record': ('ReCoRD', RecordReader),
  'rte': ('RTE', SuperGlueReader),
  'wic': ('WiC', WicReader),
}

TASKS = {
  name: adopt(f'super_glue_{name}_v102', _splits(name, *folder_and_reader))
  for name, folder_and_reader in _READERS.items()
}

# T5 trains WSC on the rows whose referent is correct, together with DPR, and
# evaluates it by whether the predicted referent is that of the row.
TASKS['wsc_train'] = adopt(
  'super_glue_wsc_v102_simple_train',
  _splits('wsc.fixed', 'WSC', WscReader, 'train'),
)
TASKS['wsc'] = adopt(
  'super_glue_wsc_v102_simple_eval',
  _splits('wsc.fixed', 'WSC', WscReader, 'validation', 'test'),
)
# DPR is not part of SuperGLUE: without its files, the mixtures leave it out.
TASKS['dpr'] = adopt(
  'dpr_v001_simple', {'train': _dpr_split('train'), 'test': _dpr_split('test')}
)
