"""SQuAD v1.1 from its official JSON, arXiv 1606.05250.

The file is one object, `{"data": [article, ...], "version": "1.1"}`.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Iterator, Sequence
from typing import Any

from typing_extensions import override

from synth_mtf.tasks.files import storage
from synth_mtf.tasks.files.formats import (
  INTS,
  TEXT,
  TEXTS,
  Example,
  Position,
  Reader,
  Record,
  RowError,
  check_json,
  decode,
  quote,
)
from synth_mtf.tasks.registering import adopt, splits

_EXPECTED = '{"data": [{...}, ...], "version": "1.1"}'
_ARTICLE = {'paragraphs': [{'context': str, 'qas': list}]}
_QUESTION = {
  'id': str,
  'question': str,
  'answers': [{'text': str, 'answer_start': int}],
}


class SquadReader(Reader):
  """A record is an article, an example a question; as TFDS's `squad/v1.1`."""

  schema = {
    'id': TEXT,
    'title': TEXT,
    'context': TEXT,
    'question': TEXT,
    'answers': {'text': TEXTS, 'answer_start': INTS},
  }

  @override
  def place(self, path: str, start: Position, error: RowError) -> str:
    line = 1 + error.line
    if error.near:
      with storage.reading(path) as stream:
        before, found, _ = stream.read().partition(error.near.encode())
      line += before.count(b'\n') if found else 0
    return f'{path}:{line}'

  @override
  @contextlib.contextmanager
  def open(
    self, path: str, start: Position = 0, end: Position | None = None
  ) -> Iterator[tuple[Sequence[Any], Position]]:
    yield _articles(path, storage.state([path]))[start:end], start

  @override
  def records(self, stream: Any, start: Position) -> Iterator[Record]:
    for number, article in enumerate(stream, start):
      yield Record(article, number)

  @override
  def oddity(self, record: Record) -> None:
    return None

  @override
  def parse(
    self, record: Record, number: int, columns: Sequence[str] | None
  ) -> Sequence[Example | RowError]:
    article = record.data
    try:
      check_json(article, _ARTICLE, f'article {number}')
    except RowError as error:
      error.near = _quoted(article, 'title')
      raise
    return [
      _example(question, paragraph['context'], article.get('title', ''))
      for paragraph in article['paragraphs']
      for question in paragraph['qas']
    ]


@functools.lru_cache(maxsize=2)
def _articles(path: str, _state: str) -> Sequence[Any]:
  """Returns the articles of a file, which stay in memory."""
  with storage.reading(path) as stream:
    text = decode(stream.read())
  try:
    whole = json.loads(text)
  except (json.JSONDecodeError, RecursionError) as error:
    raise RowError(
      f'JSON that does not parse ({error.args[0]})',
      _EXPECTED,
      line=getattr(error, 'lineno', 1) - 1,
    ) from error
  check_json(whole, {'data': list}, 'file')
  return whole['data']


def _quoted(value: Any, key: str) -> str:
  """Returns a value as it is in the file, '' if it is not there."""
  found = value.get(key) if isinstance(value, dict) else None
  return json.dumps(found) if found else ''


def _example(question: Any, context: str, title: str) -> Example | RowError:
  try:
    check_json(title, str, "'title'")
    check_json(question, _QUESTION, 'question')
    answers = question['answers']
    if not answers:
      raise RowError('a question without answers', 'at least one')
    for answer in answers:
      _check_answer(answer['text'], answer['answer_start'], context)
  except RowError as error:
    error.near = _quoted(question, 'id')
    return error.within(f'question {error.near[1:-1] or "?"}')
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


def _check_answer(text: str, start: int, context: str) -> None:
  found = context[max(start, 0) : start + len(text)]
  if start < 0 or not text or found != text:
    raise RowError(
      f'the answer {quote(text)} at character {start} of a passage of '
      f'{len(context)} characters, which has {quote(found)} there',
      'a span of the passage',
    )


_ROOTS = ('squad/', 'SQuAD/', '')
_PATHS = {'train': 'train-v1.1.json', 'validation': 'dev-v1.1.json'}

SQUAD = adopt(
  'squad_v010_allanswers', splits(_ROOTS, _PATHS, lambda _: SquadReader())
)
