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
  JsonObject,
  Position,
  Reader,
  Record,
)
from synth_mtf.tasks.files.rows import RowError, decode, quote
from synth_mtf.tasks.files.source import Split
from synth_mtf.tasks.registering import adopt

_EXPECTED = '{"data": [{...}, ...], "version": "1.1"}'


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
    article = JsonObject(record.data, f'article {number}')
    title = article.text('title') if 'title' in article else ''
    try:
      return [
        _question(question, context, title)
        for paragraph in article.objects('paragraphs')
        for context in [paragraph.text('context')]
        for question in paragraph.objects('qas')
      ]
    except RowError as error:
      error.near = json.dumps(title)
      raise error.within(f'article {number}') from None


@functools.lru_cache(maxsize=2)
def _articles(path: str, state: str) -> Sequence[Any]:
  """Returns the articles of a file, which stay in memory."""
  del state
  with storage.reading(path) as stream:
    text = decode(stream.read())
  try:
    whole = json.loads(text, object_pairs_hook=_with_one_data)
  except (json.JSONDecodeError, RecursionError) as error:
    raise RowError(
      f'JSON that does not parse ({error.args[0]})',
      _EXPECTED,
      line=getattr(error, 'lineno', 1) - 1,
    ) from error
  except RowError as error:
    error.line = text.count('\n', 0, text.rindex('"data"'))
    raise
  if not isinstance(whole, dict) or not isinstance(whole.get('data'), list):
    raise RowError('JSON without articles', _EXPECTED)
  return whole['data']


def _with_one_data(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  """Makes an object, in which "data" may not come twice."""
  count = [key for key, _ in pairs].count('data')
  if count > 1:
    raise RowError(f'{count} times "data"', 'one list of articles')
  return dict(pairs)


def _question(
  question: JsonObject, context: str, title: str
) -> Example | RowError:
  try:
    answers = question.objects('answers')
    if not answers:
      raise RowError('a question without answers', 'at least one')
    return {
      'id': question.text('id'),
      'title': title,
      'context': context,
      'question': question.text('question'),
      'answers': {
        'text': [_checked_answer(answer, context) for answer in answers],
        'answer_start': [answer.integer('answer_start') for answer in answers],
      },
    }
  except RowError as error:
    name = question.text('id') if 'id' in question else '?'
    error.near = json.dumps(name)
    return error.within(f'question {name}')


def _checked_answer(answer: JsonObject, context: str) -> str:
  text, start = answer.text('text'), answer.integer('answer_start')
  found = context[max(start, 0) : start + len(text)]
  if start < 0 or not text or found != text:
    raise RowError(
      f'the answer {quote(text)} at character {start} of a passage of '
      f'{len(context)} characters, which has {quote(found)} there',
      'a span of the passage',
    )
  return text


def _split(file: str) -> Split:
  roots = ('squad/', 'SQuAD/', '')
  return Split.of([f'{root}{file}-v1.1.json' for root in roots], SquadReader())


TASKS = {
  'squad': adopt(
    'squad_v010_allanswers',
    {'train': _split('train'), 'validation': _split('dev')},
  )
}
