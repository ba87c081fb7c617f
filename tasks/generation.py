"""Generation: CNN/DailyMail summaries and PersonaChat dialogues (Table 3)."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from typing import Any

import seqio
import tensorflow.compat.v2 as tf
import tensorflow_datasets as tfds
from typing_extensions import override

from synth_mtf.tasks import dialogue_metrics
from synth_mtf.tasks.files import storage
from synth_mtf.tasks.files.formats import (
  TEXT,
  TEXTS,
  DroppedRow,
  Example,
  FolderReader,
  Oddity,
  Reader,
  Record,
  RowError,
  decode,
  quote,
)
from synth_mtf.tasks.files.source import Split
from synth_mtf.tasks.registering import TOKENIZE, adopt, define

# TFDS's parsers are private; with them, a story is what it is there.
_get_url_hashes = tfds.summarization.cnn_dailymail._get_url_hashes  # noqa: SLF001
_get_art_abs = tfds.summarization.cnn_dailymail._get_art_abs  # noqa: SLF001


class StoryReader(FolderReader):
  """CNN's and the Daily Mail's `.story` files, a story each.

  The official split is given by lists of addresses, `url_lists/all_train.txt`
  and so on; a story is named by the SHA-1 of its address. Without the lists,
  the first digit of the name decides.
  """

  schema = {'article': TEXT, 'highlights': TEXT}
  folders = ('cnn/stories', 'dailymail/stories')
  suffix = '.story'
  # Some CNN stories have no article.
  dropped_rows = 256

  def __init__(self, urls: str, first_digits: str) -> None:
    self._urls = urls
    self._first_digits = first_digits

  @property
  @override
  def key(self) -> str:
    return f'story/{self._urls}/{self._first_digits}'

  @override
  def names(self, path: str) -> list[str]:
    stories = super().names(path)
    lists = [
      os.path.join(path, folder, f'all_{self._urls}.txt')
      for folder in ('url_lists', '')
    ]
    for urls in filter(storage.is_file, lists):
      hashes = _get_url_hashes(urls)
      return [name for name in stories if _stem(name) in hashes]
    return [name for name in stories if _stem(name)[0] in self._first_digits]

  @override
  def parse(
    self, record: Record, number: int, columns: Sequence[str] | None
  ) -> Sequence[Example]:
    decode(record.data)
    article, highlights = _get_art_abs(record.name)
    if not article or not highlights:
      raise DroppedRow(
        f'a story without {"a highlight" if article else "an article"}',
        'text, then @highlight and a line for each',
      )
    return [{'article': article, 'highlights': highlights}]


class DialogueReader(Reader):
  """ParlAI's text format: numbered lines, first the persona, then the turns.

  A turn is what the partner says, a tab, and the response; the reward and the
  candidates that follow are not used. The number 1 starts a new dialogue.
  """

  schema = {'persona': TEXTS, 'history': TEXTS, 'response': TEXT}
  _PERSONA = 'your persona: '

  @override
  def records(self, stream: Any, start: int) -> Iterator[Record]:
    lines: list[bytes] = []
    for line in itertools.chain(stream, [b'']):
      if lines and (not line or line.startswith(b'1 ')):
        data = b''.join(lines)
        yield Record(data, start)
        start, lines = start + len(data), []
      lines.append(line)

  @override
  def oddity(self, record: Record) -> None:
    return None  # marks and carriage returns are not part of a turn

  @override
  def parse(
    self, record: Record, number: int, columns: Sequence[str] | None
  ) -> Sequence[Example | RowError]:
    persona: list[str] = []
    history: list[str] = []
    examples: list[Example | RowError] = []
    text = decode(record.data).lstrip('\ufeff').rstrip('\n')
    for i, line in enumerate(text.split('\n')):
      line = line.rstrip('\r')
      count, _, rest = line.partition(' ')
      if count != str(i + 1):
        raise RowError(
          f'a line that starts with {quote(count)}', f'the number {i + 1}', i
        )
      if rest.startswith(self._PERSONA):
        persona.append(rest[len(self._PERSONA) :])
        continue
      if "partner's persona: " in rest:
        continue
      turn, tab, response = rest.partition('\t')
      response = response.split('\t')[0]
      if not tab:
        raise RowError(
          f'a turn without a response: {quote(rest)}',
          'what is said, a tab, the response',
          i,
        )
      if not response.strip():
        examples.append(Oddity('an empty response', 'kept', i))
      history.append(turn)
      examples.append(
        {
          'persona': list(persona),
          'history': list(history),
          'response': response,
        }
      )
      history.append(response)
    return examples


@seqio.map_over_dataset
def dialogue(row: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
  """Converts a turn to text: persona and history to the response."""
  persona = tf.strings.reduce_join(row['persona'], separator=' ')
  history = tf.strings.reduce_join(row['history'], separator=' ')
  return {
    'inputs': tf.strings.join(
      ['personachat persona:', persona, 'dialogue:', history], separator=' '
    ),
    'targets': row['response'],
  }


def _stem(name: str) -> str:
  return os.path.splitext(os.path.basename(name))[0]


def _story_split(urls: str, first_digits: str) -> Split:
  return Split.of(
    ['cnn_dailymail/', 'cnn_dm/'], StoryReader(urls, first_digits)
  )


def _dialogue_split(part: str) -> Split:
  names = (f'{part}_self_original_no_cands.txt', f'{part}_self_original.txt')
  roots = ('convai2/', 'ConvAI2/', 'personachat/')
  return Split.of(
    [root + name for root in roots for name in names], DialogueReader()
  )


TASKS = {
  'cnn_dailymail': adopt(
    'cnn_dailymail_v002',
    {
      'train': _story_split('train', '123456789abcde'),
      'validation': _story_split('val', '0'),
      'test': _story_split('test', 'f'),
    },
  ),
  'personachat': define(
    'personachat',
    {'train': _dialogue_split('train'), 'validation': _dialogue_split('valid')},
    preprocessors=[dialogue, *TOKENIZE],
    metric_fns=dialogue_metrics.METRICS,
  ),
}
