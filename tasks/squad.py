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
_NO_GAP = re.compile(rb'[^ \t\r\n,]')


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
    whole = not stream.offset and end is None
    head = b'' if stream.offset else _take_head(stream)
    commas = 0
    while _at_article(stream, commas) and (end is None or stream.offset < end):
      start = stream.offset
      yield Record(_take_object(stream), start)
      commas = 1
    if whole:
      _check_tail(head, stream)

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


def _take_head(stream: ByteStream) -> bytes:
  """Moves the stream into the list that "data" names; returns what it passed.

  Raises:
    RowError: it is not the start of a JSON object.
  """
  depth = 0
  names_data = False
  for token, size in _tokens(stream):
    if names_data and token == b'[':
      head = stream.buffer[stream.start : stream.start + size]
      _check_envelope(head, b']}')
      return stream.take(size)
    depth += _DEPTH_CHANGE.get(token, 0)
    names_data = token == b'"data"' and depth == 1
  raise RowError('JSON without articles', '{"data": [{...}, ...]}')


def _check_tail(head: bytes, stream: ByteStream) -> None:
  """Checks what follows the articles, up to the end of the file."""
  while stream.more():
    pass
  tail = stream.buffer[stream.start :]
  _check_envelope(head, tail, head.count(b'\n'))
  stream.take(len(tail))


def _check_envelope(head: bytes, tail: bytes, lines_before: int = 0) -> None:
  """Checks the file as it would be without an article: JSON, with one "data".

  Args:
    head: up to the list of articles.
    tail: from its end on.
    lines_before: how many lines of these the stream has passed.
  """
  text = decode(head + tail)
  try:
    pairs = json.loads(text, object_pairs_hook=list)
  except (json.JSONDecodeError, RecursionError) as error:
    raise RowError(
      f'around the articles, JSON that does not parse ({error.args[0]})',
      'nothing but {"data": [{...}, ...], "version": "1.1"}',
      line=max(getattr(error, 'lineno', 1) - 1 - lines_before, 0),
    ) from error
  keys = [key for key, _ in pairs]
  if keys.count('data') != 1:
    second = tail.find(b'"data"')
    raise RowError(
      f'{keys.count("data")} times "data"',
      'one list of articles',
      line=tail.count(b'\n', 0, max(second, 0)),
    )


def _at_article(stream: ByteStream, commas: int) -> bool:
  """Whether an article follows, behind so many commas; moves to its brace."""
  found = 0
  while True:
    match = _NO_GAP.search(stream.buffer, stream.start)
    gap = match.start() if match else len(stream.buffer)
    found += stream.take(gap - stream.start).count(b',')
    if match:
      break
    if not stream.more():
      raise RowError('the file ends inside the list of articles', ']}')
  byte = match.group()
  expected = commas if byte == b'{' else 0
  if byte not in (b'{', b']') or found != expected:
    raise RowError(
      f'{found} commas and {byte!r} after an article'
      if commas
      else f'{found} commas and {byte!r} before the first article',
      "',' and '{', or ']'" if commas else "'{' or ']'",
    )
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
