"""SQuAD v1.1 from its official JSON, arXiv 1606.05250.

The file is one JSON object, `{"data": [article, ...], "version": "1.1"}`, which
is read one article at a time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from typing_extensions import override

from synth_mtf.tasks.files.formats import (
  INTS,
  TEXT,
  TEXTS,
  Example,
  JsonObject,
  Reader,
)
from synth_mtf.tasks.files.rows import Record, RowError, decode, quote
from synth_mtf.tasks.files.source import Split
from synth_mtf.tasks.files.streams import ByteStream
from synth_mtf.tasks.registering import adopt

# A string is skipped as a whole, since a bracket inside it opens nothing.
_STRING = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_TOKEN = re.compile(_STRING + rb'|[][{}]|"', re.DOTALL)
# Up to the next bracket.
_BRACKET = re.compile(
  rb'[^][{}"]*(?:' + _STRING + rb'[^][{}"]*)*([][{}])', re.DOTALL
)
_DEPTH_CHANGE = {b'{': 1, b'[': 1, b'}': -1, b']': -1}
# Between two articles.
_NO_GAP = re.compile(rb'[^\s,]')


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
  def records(
    self, stream: ByteStream, end: int | None = None
  ) -> Iterator[Record]:
    if not stream.offset:
      _skip_to_articles(stream)
    while _at_article(stream) and (end is None or stream.offset < end):
      start = stream.offset
      yield Record(_take_object(stream), start)

  @override
  def parse(
    self, record: Record, number: int, header: None
  ) -> Sequence[Example | RowError]:
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
      _question(question, context, title)
      for paragraph in article.objects('paragraphs')
      for context in [paragraph.text('context')]
      for question in paragraph.objects('qas')
    ]


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
  """Moves the stream into the list that "data" names."""
  depth = 0
  names_data = False
  for token, size in _tokens(stream):
    if names_data and token == b'[':
      stream.take(size)
      return
    depth += _DEPTH_CHANGE.get(token, 0)
    names_data = token == b'"data"' and depth == 1
  raise RowError('JSON without articles', '{"data": [{...}, ...]}')


def _at_article(stream: ByteStream) -> bool:
  """Whether an article follows; moves the stream to its brace."""
  while True:
    found = _NO_GAP.search(stream.buffer, stream.start)
    gap = found.start() if found else len(stream.buffer)
    stream.take(gap - stream.start)
    if found:
      break
    if not stream.more():
      raise RowError('the file ends inside the list of articles', ']}')
  byte = found.group()
  if byte not in (b'{', b']'):
    raise RowError(f'{byte!r} between two articles', "'{' or ']'")
  return byte == b'{'


def _take_object(stream: ByteStream) -> bytes:
  """Returns the JSON object that starts here, up to its closing brace."""
  depth = size = 0
  while True:
    match = _BRACKET.match(stream.buffer, stream.start + size)
    if match:
      size = match.end() - stream.start
      depth += _DEPTH_CHANGE[match.group(1)]
      if not depth:
        return stream.take(size)
    elif not stream.more():
      raise RowError('the file ends inside an article', 'its last brace')


def _tokens(stream: ByteStream) -> Iterator[tuple[bytes, int]]:
  """Yields strings and brackets, and how many bytes there are up to their end.

  The stream itself does not move, so that these bytes stay in its buffer.
  """
  size = 0
  while True:
    match = _TOKEN.search(stream.buffer, stream.start + size)
    if match and match.group() != b'"':
      size = match.end() - stream.start
      yield match.group(), size
    else:
      size = (match.start() if match else len(stream.buffer)) - stream.start
      if not stream.more():
        return


def _split(file: str) -> Split:
  roots = ('squad/', 'SQuAD/', '')
  return Split.of([f'{root}{file}-v1.1.json' for root in roots], SquadReader())


TASKS = {
  'squad': adopt(
    'squad_v010_allanswers',
    {'train': _split('train'), 'validation': _split('dev')},
  )
}
