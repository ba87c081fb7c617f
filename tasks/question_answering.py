"""Questions, from files that are one JSON value each.

SQuAD v1.1, arXiv 1606.05250, is `{"data": [article, ...], "version": "1.1"}`.
WebQuestions, asked without documents as in arXiv 2002.08910, is a list.
"""

import contextlib
import dataclasses
import functools
import json
import re
from collections.abc import Iterator
from typing import Any

import seqio
import tensorflow.compat.v2 as tf
from t5.data import postprocessors
from t5.evaluation import metrics
from tensorflow_datasets.core import hashing

from synth_mtf.rows import formats
from synth_mtf.storage import filesystem
from synth_mtf.tasks.files.source import Split
from synth_mtf.tasks.registering import TOKENIZE, adopt, define, splits

_ARTICLE = {'paragraphs': [{'context': str, 'qas': list}]}
_QUESTION = {
  'id': str,
  'question': str,
  'answers': [{'text': str, 'answer_start': int}],
}
_WEB_QUESTION = {'url': str, 'utterance': str, 'targetValue': str}
_WEB_ANSWER = re.compile(r'\(description (?:"([^"]+)"|([^)]+))\)')


@functools.lru_cache(maxsize=2)
def _parsed(path: str, expected: str, _state: str) -> Any:
  """Returns the value of a file, cached until its state changes."""
  data = filesystem.read(path, filesystem.DOCUMENT_BYTES)
  return formats.parse_json(formats.decode(data), expected)


@contextlib.contextmanager
def _near(value: Any, key: str) -> Iterator[None]:
  """Locates a fault in a JSON object by one of its texts."""
  try:
    yield
  except formats.RowError as error:
    text = value.get(key) if isinstance(value, dict) else None
    if isinstance(text, str) and text:
      error.args = (f'{key} {text}: {error}',)
      error.near = json.dumps(text)  # as the file spells it
    raise


class SquadReader(formats.Reader):
  """Reads one record per article, one example per question, as in TFDS."""

  schema = {
    **dict.fromkeys(('id', 'title', 'context', 'question'), formats.TEXT),
    'answers': {'text': formats.TEXTS, 'answer_start': formats.INTS},
  }
  expected = '{"data": [{...}, ...], "version": "1.1"}'

  def items(self, whole: Any) -> list[Any]:
    """Returns the records in the value of a file."""
    formats.check_json(whole, {'data': list}, 'file')
    return whole['data']

  def place(self, path: str, start: int, error: formats.RowError) -> str:
    line = 1 + error.line
    if error.near:
      with filesystem.reading(path) as stream:
        data = stream.read()
      offset = data.find(error.near.encode())
      if offset >= 0:
        line += data.count(b'\n', 0, offset)
    return f'{path}:{line}'

  def records(
    self, path: str, start: int = 0, end: int | None = None
  ) -> Iterator[formats.Record]:
    whole = _parsed(path, self.expected, filesystem.state([path]))
    for number, item in enumerate(self.items(whole)[start:end], start):
      yield formats.Record(item, number)

  def parse(self, record: formats.Record) -> formats.Items:
    article = record.data
    with _near(article, 'title'):
      formats.check_json(article, _ARTICLE, f'article {record.start}')
      title = article.get('title', '')
      formats.check_json(title, str, "'title'")
    for paragraph in article['paragraphs']:
      for question in paragraph['qas']:
        try:
          yield _example(question, paragraph['context'], title)
        except formats.RowError as error:
          yield error


def _example(question: Any, context: str, title: str) -> formats.Example:
  with _near(question, 'id'):
    formats.check_json(question, _QUESTION, 'question')
    answers = question['answers']
    formats.expect(answers, 'a question without answers', 'at least one')
    for answer in answers:
      text = answer['text']
      start = answer['answer_start']
      span = context[max(start, 0) : start + len(text)]
      formats.expect(
        start >= 0 and text and span == text,
        f'the answer {formats.quote(text)} at character {start} of a passage '
        f'of {len(context)} characters, which has {formats.quote(span)} there',
        'a span of the passage',
      )
  return {
    'id': question['id'],
    'title': title,
    'context': context,
    'question': question['question'],
    'answers': {
      'text': [answer['text'] for answer in answers],
      'answer_start': [answer['answer_start'] for answer in answers],
    },
  }


@dataclasses.dataclass(eq=False)
class WebQuestionsReader(SquadReader):
  """Reads a part of the questions that TFDS stores, such as 'train[:9]'."""

  part: str

  schema = {
    'url': formats.TEXT,
    'question': formats.TEXT,
    'answers': formats.TEXTS,
  }
  expected = '[{"url": ..., "utterance": ..., "targetValue": ...}, ...]'

  def items(self, whole: Any) -> list[Any]:
    formats.check_json(whole, list, 'file')
    stored = _stored_rows(len(whole))
    span = re.search(r'\[(\d*):(\d*)\]', self.part)
    if span:
      start, end = span.groups()
      stored = stored[int(start or 0) : int(end or len(stored))]
    return [whole[number] for number in sorted(stored)]

  def parse(self, record: formats.Record) -> formats.Items:
    row = record.data
    with _near(row, 'utterance'):
      formats.check_json(row, _WEB_QUESTION, 'question')
      target = row['targetValue']
      answers = [
        quoted or plain for quoted, plain in _WEB_ANSWER.findall(target)
      ]
      formats.expect(
        answers, f'no answer in {formats.quote(target)}', '(description A)'
      )
    yield {
      'url': row['url'],
      'question': row['utterance'],
      'answers': answers,
    }


@functools.lru_cache(maxsize=2)
def _stored_rows(count: int) -> list[int]:
  """Returns row numbers in TFDS's order, which is that of their hashes."""
  return sorted(range(count), key=hashing.Hasher('train').hash_key)


@tf.autograph.experimental.do_not_convert
@seqio.map_over_dataset
def _without_documents(row: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
  return {
    'inputs': tf.strings.join(['wq question: ', row['question']]),
    'targets': row['answers'][0],
    'answers': row['answers'],
  }


_ROOTS = ('squad/', 'SQuAD/', '')
_PATHS = {'train': 'train-v1.1.json', 'validation': 'dev-v1.1.json'}

SQUAD = adopt(
  'squad_v010_allanswers', splits(_ROOTS, _PATHS, lambda _: SquadReader())
)


def _web_questions(part: str) -> Split:
  file = f'webquestions.examples.{part.partition("[")[0]}.json'
  roots = ('web_questions/', 'webquestions/', 'WebQuestions/', '')
  return Split.of(
    [root + file for root in roots],
    WebQuestionsReader(part),
    optional=part == 'test',
  )


def _define_web_questions(name: str, parts: dict[str, str]) -> None:
  """Registers a task whose splits are parts of TFDS's."""
  define(
    name,
    {split: _web_questions(part) for split, part in parts.items()},
    'web_questions:1.0.0',
    parts,
    preprocessors=[_without_documents, *TOKENIZE],
    postprocess_fn=postprocessors.qa,
    metric_fns=[metrics.squad],
  )


# The first is for choosing settings, the second for the scores to report.
_define_web_questions(
  'web_questions_open',
  {'train': 'train[:3417]', 'validation': 'train[3417:]', 'test': 'test'},
)
_define_web_questions(
  'web_questions_open_test', {'train': 'train', 'validation': 'test'}
)
