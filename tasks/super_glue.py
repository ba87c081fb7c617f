"""SuperGLUE from its official JSON lines, arXiv 1905.00537.

Each reader gives the structure of TFDS's `super_glue/<config>:1.0.2`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
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
  JsonLinesReader,
  JsonObject,
  Reader,
)
from synth_mtf.tasks.files.rows import Record, RowError, decode, quote
from synth_mtf.tasks.files.source import Split
from synth_mtf.tasks.files.streams import ByteStream
from synth_mtf.tasks.registering import adopt

_ROOTS = ('superglue/', 'SuperGLUE/', 'super_glue/', '')
_CONFIGS = tfds.text.super_glue.SuperGlue.builder_configs
_BOOLEANS = (False, True)


class SuperGlueReader(JsonLinesReader):
  """JSON lines of one set; subclasses say what is inside.

  Attributes:
    name: the TFDS config.
    numbers: which of its features are integers; the others are text.
    labels: the JSON values of the classes, in the order of TFDS's classes.
  """

  name: str
  numbers: Sequence[str] = ()
  labels: Sequence[Any] = _BOOLEANS

  def __init__(self, labelled: bool) -> None:
    self._labelled = labelled
    self._features = _CONFIGS[self.name].features
    self.schema = {
      **{f: INT if f in self.numbers else TEXT for f in self._features},
      'label': LABEL,
      'idx': INT,
    }

  @property
  @override
  def key(self) -> str:
    part = 'labelled' if self._labelled else 'test'
    return f'super_glue/{self.name}/{part}'

  @override
  def examples(self, row: JsonObject, number: int) -> Sequence[Example]:
    del number
    example = self.features(row)
    example['label'] = self.label(row)
    example['idx'] = row.integer('idx')
    return [example]

  def features(self, row: JsonObject) -> dict[str, Any]:
    """Returns the features, without label and index."""
    return {
      name: row.integer(name) if name in self.numbers else row.text(name)
      for name in self._features
    }

  def label(self, row: JsonObject) -> int:
    """Returns the class, or what stands for it in a test set without any."""
    if not self._labelled and 'label' not in row:
      return formats.NO_LABEL
    label = row.value('label')
    for i, known in enumerate(self.labels):
      # In JSON, 1 is not true; in Python, they are equal.
      if label == known and type(label) is type(known):
        return i
    classes = ', '.join(map(json.dumps, self.labels))
    raise RowError(f'the label {quote(json.dumps(label))}', f'one of {classes}')


class BoolqReader(SuperGlueReader):
  """BoolQ: a question about a passage."""

  name = 'boolq'


class CbReader(SuperGlueReader):
  """CommitmentBank: three-way entailment."""

  name = 'cb'
  labels = _CONFIGS['cb'].label_classes


class CopaReader(SuperGlueReader):
  """COPA: the first or the second choice."""

  name = 'copa'
  labels = (0, 1)


class RteReader(SuperGlueReader):
  """RTE: two-way entailment."""

  name = 'rte'
  labels = _CONFIGS['rte'].label_classes


class WicReader(SuperGlueReader):
  """WiC: one word in two sentences."""

  name = 'wic'
  numbers = ('start1', 'start2', 'end1', 'end2')


class WscReader(SuperGlueReader):
  """WSC: spans as in TFDS's `wsc.fixed`, where they are parts of the text."""

  name = 'wsc.fixed'
  numbers = ('span1_index', 'span2_index')

  @override
  def features(self, row: JsonObject) -> dict[str, Any]:
    target = row.object('target')
    example: dict[str, Any] = {'text': row.text('text')}
    for span in ('span1', 'span2'):
      example[f'{span}_text'] = target.text(f'{span}_text')
      index = example[f'{span}_index'] = target.integer(f'{span}_index')
      words = len(example['text'].split())
      if not 0 <= index < words:
        raise RowError(
          f'{span}_index {index}', f'a word of the text, 0 to {words - 1}'
        )
    return tfds_fixed(example)


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

  name = 'multirc'
  labels = (0, 1)

  def __init__(self, labelled: bool) -> None:
    super().__init__(labelled)
    self.schema = {
      **self.schema,
      'idx': {'paragraph': INT, 'question': INT, 'answer': INT},
    }

  @override
  def examples(self, row: JsonObject, number: int) -> Sequence[Example]:
    del number
    passage = row.object('passage')
    return [
      {
        'paragraph': passage.text('text'),
        'question': question.text('question'),
        'answer': answer.text('text'),
        'label': self.label(answer),
        'idx': {
          'paragraph': row.integer('idx'),
          'question': question.integer('idx'),
          'answer': answer.integer('idx'),
        },
      }
      for question in passage.objects('questions')
      for answer in question.objects('answers')
    ]


class RecordReader(SuperGlueReader):
  """ReCoRD: a row is a passage; an example is one query.

  T5 makes one training example of each answer, and scores a prediction by its
  best answer.
  """

  name = 'record'

  def __init__(self, labelled: bool) -> None:
    super().__init__(labelled)
    self.schema = {
      'passage': TEXT,
      'query': TEXT,
      'entities': TEXTS,
      'answers': TEXTS,
      'idx': {'passage': INT, 'query': INT},
    }

  @override
  def examples(self, row: JsonObject, number: int) -> Sequence[Example]:
    del number
    passage = row.object('passage')
    text = passage.text('text')
    entities = sorted(
      {_entity(text, entity) for entity in passage.objects('entities')}
    )
    return [
      {
        'passage': text,
        'query': query.text('query'),
        'entities': entities,
        'answers': self._answers(query),
        'idx': {'passage': row.integer('idx'), 'query': query.integer('idx')},
      }
      for query in row.objects('qas')
    ]

  def _answers(self, query: JsonObject) -> list[str]:
    if not self._labelled and 'answers' not in query:
      return []
    answers = sorted({a.text('text') for a in query.objects('answers')})
    if not answers:
      raise RowError('a query without answers', 'at least one')
    return answers


def _entity(passage: str, entity: JsonObject) -> str:
  start, end = entity.integer('start'), entity.integer('end')
  if not 0 <= start <= end < len(passage):
    raise RowError(
      f'an entity from {start} to {end}',
      f'a span of the passage, which has {len(passage)} characters',
    )
  return passage[start : end + 1]


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
  def records(
    self, stream: ByteStream, end: int | None = None
  ) -> Iterator[Record]:
    while end is None or stream.offset < end:
      start = stream.offset
      lines: list[bytes] = []
      while (line := stream.readline()).strip():
        lines.append(line)
        if len(lines) > self._LINES:
          break
      if lines:
        yield Record(b''.join(lines), start)
      if not line:
        return

  @override
  def parse(
    self, record: Record, number: int, header: None
  ) -> Sequence[Example]:
    del number, header
    lines = [line.strip() for line in decode(record.data).splitlines()]
    if len(lines) != self._LINES:
      raise RowError(
        f'{len(lines)} lines up to the next empty one',
        'sentence, pronoun, two candidates with a comma between, the answer',
      )
    sentence, pronoun, both, correct = lines
    candidates = [candidate.strip() for candidate in both.split(',')]
    if len(candidates) != 2:
      raise RowError(f'the candidates {quote(both)}', 'two, a comma between', 2)
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
      }
    ]


def _split(folder: str, file: str, reader: type[SuperGlueReader]) -> Split:
  labelled = file != 'test'
  return Split.of(
    [f'{root}{folder}/{file}.jsonl' for root in _ROOTS],
    reader(labelled),
    optional=not labelled,
  )


def _splits(
  folder: str, reader: type[SuperGlueReader], *names: str
) -> dict[str, Split]:
  files = {'train': 'train', 'validation': 'val', 'test': 'test'}
  return {name: _split(folder, files[name], reader) for name in names or files}


def _dpr_split(file: str) -> Split:
  roots = ('dpr/', 'DPR/', 'definite_pronoun_resolution/', 'superglue/DPR/')
  return Split.of(
    [f'{root}{file}.c.txt' for root in roots],
    DprReader(),
    optional=file == 'train',
  )


_READERS = {
  'boolq': ('BoolQ', BoolqReader),
  'cb': ('CB', CbReader),
  'copa': ('COPA', CopaReader),
  'multirc': ('MultiRC', MultircReader),
  'record': ('ReCoRD', RecordReader),
  'rte': ('RTE', RteReader),
  'wic': ('WiC', WicReader),
}

TASKS = {
  name: adopt(f'super_glue_{name}_v102', _splits(*folder_and_reader))
  for name, folder_and_reader in _READERS.items()
}

# T5 trains WSC on the rows whose referent is correct, together with DPR, and
# evaluates it by whether the predicted referent is that of the row.
TASKS['wsc_train'] = adopt(
  'super_glue_wsc_v102_simple_train', _splits('WSC', WscReader, 'train')
)
TASKS['wsc'] = adopt(
  'super_glue_wsc_v102_simple_eval',
  _splits('WSC', WscReader, 'validation', 'test'),
)
# DPR is not part of SuperGLUE: without its files, the mixtures leave it out.
TASKS['dpr'] = adopt(
  'dpr_v001_simple', {'train': _dpr_split('train'), 'test': _dpr_split('test')}
)
