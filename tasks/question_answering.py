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

from synth_mtf.tasks.files import formats, storage
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
  with storage.reading(path) as stream:
    return formats.parse_json(formats.decode(stream.read()), expected)


@contextlib.contextmanager
def _near(value: Any, key: str) -> Iterator[None]:
  """Locates a fault in a JSON object by one of its texts."""
  try:
    yield
  except formats.RowError as error:
    found = value.get(key) if isinstance(value, dict) else None
    if isinstance(found, str) and found:
      error.args = (f'{key} {found}: {error}',)
      error.near = json.dumps(found)  # as the file spells it
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
      with storage.reading(path) as stream:
        before, found, _ = stream.read().partition(error.near.encode())
      line += before.count(b'\n') if found else 0
    return f'{path}:{line}'

  def records(
    self, path: str, start: int = 0, end: int | None = None
  ) -> Iterator[formats.Record]:
    whole = _parsed(path, self.expected, storage.state([path]))
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
      text, start = answer['text'], answer['answer_start']
      found = context[max(start, 0) : start + len(text)]
      formats.expect(
        start >= 0 and text and found == text,
        f'the answer {formats.quote(text)} at character {start} of a passage '
        f'of {len(context)} characters, which has {formats.quote(found)} there',
        'a span of the passage',
      )
  return {
    'id': question['id'],
    'title': title,
    'context': context,
    'question': question['question'],
    'answers': {
      key: [answer[key] for answer in answers]
      for key in ('text', 'answer_start')
    },
  }


@dataclasses.dataclass(eq=False)
class WebQuestionsReader(SquadReader):
  """Reads the questions in a part of what TFDS stores, as in 'train[:9]'."""

  part: str

  schema = {
    **dict.fromkeys(('url', 'question'), formats.TEXT),
    'answers': formats.TEXTS,
  }
  expected = '[{"url": ..., "utterance": ..., "targetValue": ...}, ...]'

  def items(self, whole: Any) -> list[Any]:
    formats.check_json(whole, list, 'file')
    start, _, end = self.part.partition('[')[2].rstrip(']').partition(':')
    stored = _stored_rows(len(whole))[int(start or 0) : int(end or len(whole))]
    return [whole[number] for number in sorted(stored)]

  def parse(self, record: formats.Record) -> formats.Items:
    row = record.data
    with _near(row, 'utterance'):
      formats.check_json(row, _WEB_QUESTION, 'question')
      target = row['targetValue']
      answers = [''.join(found) for found in _WEB_ANSWER.findall(target)]
      formats.expect(
        answers, f'no answer in {formats.quote(target)}', '(description A)'
      )
    question = {'url': row['url'], 'question': row['utterance']}
    yield {**question, 'answers': answers}


@functools.lru_cache(maxsize=2)
def _stored_rows(count: int) -> list[int]:
  """Returns row numbers in TFDS's order, which is that of their hashes."""
  return sorted(range(count), key=hashing.Hasher('train').hash_key)


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
# The first is to choose settings with, the second to report.
for name, parts in {
  'web_questions_open': ('train[:3417]', 'train[3417:]', 'test'),
  'web_questions_open_test': ('train', 'test'),
}.items():
  tfds_splits = dict(zip(('train', 'validation', 'test'), parts, strict=False))
  define(
    name,
    {
      split: Split.of(
        [
          f'{root}webquestions.examples.{part.partition("[")[0]}.json'
          for root in ('web_questions/', 'webquestions/', 'WebQuestions/', '')
        ],
        WebQuestionsReader(part),
        optional=part == 'test',
      )
      for split, part in tfds_splits.items()
    },
    'web_questions:1.0.0',
    tfds_splits,
    preprocessors=[_without_documents, *TOKENIZE],
    postprocess_fn=postprocessors.qa,
    metric_fns=[metrics.squad],
  )
