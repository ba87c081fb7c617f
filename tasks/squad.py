"""SQuAD v1.1 from its official JSON, arXiv 1606.05250.

The file is one JSON object, `{"data": [article, ...], "version": "1.1"}`. It is
read one article at a time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Optional, Union

from typing_extensions import override

from synth_mtf.tasks._files import ByteStream, Record, RowError, decode, quote
from synth_mtf.tasks._readers import (
  INTS,
  TEXT,
  TEXTS,
  Example,
  JsonObject,
  Reader,
)
from synth_mtf.tasks._sources import Split
from synth_mtf.tasks._tasks import adopt

# A string is skipped as a whole: a bracket inside it opens nothing.
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[][{}]|"', re.DOTALL)
_NEXT_ARTICLE = re.compile(rb'[\s,]*')


class SquadReader(Reader):
  """An article a record, a question an example, as TFDS's `squad/v1.1:3.0.0`."""

  schema = {
    'id': TEXT,
    'title': TEXT,
    'context': TEXT,
    'question': TEXT,
    'answers': {'text': TEXTS, 'answer_start': INTS},
  }

  @override
  def records(
    self, stream: ByteStream, end: Optional[int] = None
  ) -> Iterator[Record]:
    if not stream.offset:
      _skip_to_articles(stream)
    while _at_article(stream) and (end is None or stream.offset < end):
      start = stream.offset
      yield Record(_take_object(stream), start)

  @override
  def parse(
    self, record: Record, number: int, context: None
  ) -> Sequence[Union[Example, RowError]]:
    del context
    text = decode(record.data)
    try:
      article = JsonObject(json.loads(text), f'article {number}')
    except (json.JSONDecodeError, RecursionError) as error:
      raise RowError(
        f'article {number}: JSON that does not parse ({error.args[0]})',
        'a JSON object',
        line=getattr(error, 'lineno', 1) - 1,
      ) from error
    title = article.text('title') if 'title' in article else ''
    return [
      _question(question, paragraph.text('context'), title)
      for paragraph in article.objects('paragraphs')
      for question in paragraph.objects('qas')
    ]


def _question(
  question: JsonObject, context: str, title: str
) -> Union[Example, RowError]:
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
    return error.at(f'question {name}')


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


def _skip_to_articles(stream: ByteStream) -> None:
  depth = 0
  while True:
    token = _next_token(stream)
    if token is None:
      raise RowError('JSON without articles', '{"data": [{...}, ...]}')
    depth += _depth_change(token)
    if token == b'"data"' and depth == 1:
      token = _next_token(stream)
      if token == b'[':
        return
      depth += _depth_change(token or b'')


def _at_article(stream: ByteStream) -> bool:
  """Whether an article follows; moves the stream to its brace."""
  while True:
    gap = _NEXT_ARTICLE.match(stream.buffer, stream.start).end()
    stream.take(gap - stream.start)
    if stream.start < len(stream.buffer):
      break
    if not stream.more():
      raise RowError('the file ends inside the list of articles', ']}')
  byte = stream.buffer[stream.start : stream.start + 1]
  if byte not in (b'{', b']'):
    raise RowError(f'{byte!r} between two articles', "'{' or ']'")
  return byte == b'{'


def _take_object(stream: ByteStream) -> bytes:
  """Returns the JSON object that starts here, up to its last brace."""
  pieces = []
  depth = 0
  while True:
    token = _next_token(stream, pieces)
    if token is None:
      raise RowError('the file ends inside an article', 'its last brace')
    depth += _depth_change(token)
    if not depth:
      return b''.join(pieces)


def _next_token(
  stream: ByteStream, pieces: Optional[list[bytes]] = None
) -> Optional[bytes]:
  """Returns the next string or bracket; `pieces` takes all that is passed."""
  searched = 0
  while True:
    match = _TOKEN.search(stream.buffer, stream.start + searched)
    if match and match.group() != b'"':
      passed = stream.take(match.end() - stream.start)
      if pieces is not None:
        pieces.append(passed)
      return match.group()
    searched = (match.start() if match else len(stream.buffer)) - stream.start
    if not stream.more():
      return None


def _depth_change(token: bytes) -> int:
  return (token in (b'{', b'[')) - (token in (b'}', b']'))


def _split(file: str) -> Split:
  roots = ('squad/', 'SQuAD/', '')
  return Split.of([f'{root}{file}-v1.1.json' for root in roots], SquadReader())


TASKS = {
  'squad': adopt(
    'squad_v010_allanswers',
    {'train': _split('train'), 'validation': _split('dev')},
  )
}
