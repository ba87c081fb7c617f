"""SQuAD v1.1 from its official JSON, arXiv 1606.05250.

The file is one object, `{"data": [article, ...], "version": "1.1"}`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from typing import Any

from synth_mtf.tasks.files import formats, storage
from synth_mtf.tasks.files.formats import Items, Reader, Record, RowError, quote
from synth_mtf.tasks.registering import adopt, splits

_EXPECTED = '{"data": [{...}, ...], "version": "1.1"}'
_ARTICLE = {'paragraphs': [{'context': str, 'qas': list}]}
_QUESTION = {
  'id': str,
  'question': str,
  'answers': [{'text': str, 'answer_start': int}],
}


class SquadReader(Reader):
  """Reads one record per article, one example per question, as in TFDS."""

  schema = {
    **dict.fromkeys(('id', 'title', 'context', 'question'), formats.TEXT),
    'answers': {'text': formats.TEXTS, 'answer_start': formats.INTS},
  }

  def place(self, path: str, start: int, error: RowError) -> str:
    line = 1 + error.line
    if error.near:
      with storage.reading(path) as stream:
        before, found, _ = stream.read().partition(error.near.encode())
      line += before.count(b'\n') if found else 0
    return f'{path}:{line}'

  def records(
    self, path: str, start: int = 0, end: int | None = None
  ) -> Iterator[Record]:
    articles = _articles(path, storage.state([path]))[start:end]
    for number, article in enumerate(articles, start):
      yield Record(article, number)

  def parse(self, record: Record, number: int, columns: Any) -> Items:
    article = record.data
    try:
      formats.check_json(article, _ARTICLE, f'article {number}')
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
  """Returns the articles of a file, cached until its state changes."""
  with storage.reading(path) as stream:
    text = formats.decode(stream.read())
  try:
    whole = json.loads(text)
  except (json.JSONDecodeError, RecursionError) as error:
    raise RowError(
      f'JSON that does not parse ({error.args[0]})',
      _EXPECTED,
      line=getattr(error, 'lineno', 1) - 1,
    ) from error
  formats.check_json(whole, {'data': list}, 'file')
  return whole['data']


def _quoted(value: Any, key: str) -> str:
  """Returns a value as the file spells it, or '' if it is missing."""
  found = value.get(key) if isinstance(value, dict) else None
  return json.dumps(found) if found else ''


def _example(
  question: Any, context: str, title: str
) -> formats.Example | RowError:
  try:
    formats.check_json(title, str, "'title'")
    formats.check_json(question, _QUESTION, 'question')
    answers = question['answers']
    if not answers:
      raise RowError('a question without answers', 'at least one')
    for answer in answers:
      text, start = answer['text'], answer['answer_start']
      found = context[max(start, 0) : start + len(text)]
      if start < 0 or not text or found != text:
        raise RowError(
          f'the answer {quote(text)} at character {start} of a passage of '
          f'{len(context)} characters, which has {quote(found)} there',
          'a span of the passage',
        )
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


_ROOTS = ('squad/', 'SQuAD/', '')
_PATHS = {'train': 'train-v1.1.json', 'validation': 'dev-v1.1.json'}

SQUAD = adopt(
  'squad_v010_allanswers', splits(_ROOTS, _PATHS, lambda _: SquadReader())
)
