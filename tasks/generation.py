"""Generation: CNN/DailyMail summaries and PersonaChat dialogues (Table 3)."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Any

import seqio
import tensorflow.compat.v2 as tf
import tensorflow_datasets as tfds

from synth_mtf.tasks import dialogue_metrics
from synth_mtf.tasks.files import formats, storage
from synth_mtf.tasks.files.formats import Items, Reader, Record, RowError, quote
from synth_mtf.tasks.files.source import Split
from synth_mtf.tasks.registering import TOKENIZE, adopt, define

# Private, but TFDS's own parsers guarantee the same examples.
_get_url_hashes = tfds.summarization.cnn_dailymail._get_url_hashes  # noqa: SLF001
_get_art_abs = tfds.summarization.cnn_dailymail._get_art_abs  # noqa: SLF001


class StoryReader(formats.FolderReader):
  """Reads the `.story` files of CNN and the Daily Mail, one story per file.

  Lists of URLs, such as `url_lists/all_train.txt`, define the official splits;
  the name of a story is the SHA-1 of its URL. Without the lists, the first
  digit of the name selects the split.
  """

  schema = {'article': formats.TEXT, 'highlights': formats.TEXT}
  folders = ('cnn/stories', 'dailymail/stories')
  suffix = '.story'
  # Some CNN stories have no article.
  dropped_rows = 256

  def __init__(self, urls: str, first_digits: str) -> None:
    super().__init__(urls, first_digits)
    self._urls = urls
    self._first_digits = first_digits

  def files(self, path: str) -> list[str]:
    stems = {
      file: os.path.splitext(os.path.basename(file))[0]
      for file in super().files(path)
    }
    for folder in ('url_lists', ''):
      urls = os.path.join(path, folder, f'all_{self._urls}.txt')
      if storage.is_file(urls):
        hashes = _get_url_hashes(urls)
        return [file for file, stem in stems.items() if stem in hashes]
    return [f for f, stem in stems.items() if stem[0] in self._first_digits]

  def parse(self, record: Record, number: int, columns: Any) -> Items:
    formats.decode(record.data)
    article, highlights = _get_art_abs(record.name)
    if not article or not highlights:
      raise formats.DroppedRow(
        f'a story without {"a highlight" if article else "an article"}',
        'text, then @highlight and a line for each',
      )
    return [{'article': article, 'highlights': highlights}]


class DialogueReader(Reader):
  """Reads ParlAI's text format: numbered lines, persona first, then turns.

  A turn is the partner's utterance, a tab and the response; the reward and the
  candidates that follow are ignored. The number 1 starts a new dialogue.
  """

  schema = {
    **dict.fromkeys(('persona', 'history'), formats.TEXTS),
    'response': formats.TEXT,
  }
  _PERSONA = 'your persona: '

  def split(self, stream: Any, start: int) -> Iterator[Record]:
    data = b''
    for line in itertools.chain(stream, [b'']):
      if data and (not line or line.startswith(b'1 ')):
        yield Record(data, start)
        start, data = start + len(data), b''
      data += line

  def parse(self, record: Record, number: int, columns: Any) -> Items:
    persona: list[str] = []
    history: list[str] = []
    examples: list[formats.Example | RowError] = []
    text = formats.decode(record.unmarked).rstrip('\n')
    for i, line in enumerate(text.split('\n')):
      count, _, rest = line.rstrip('\r').partition(' ')
      if count != str(i + 1):
        raise RowError(
          f'a line that starts with {quote(count)}', f'the number {i + 1}', i
        )
      if rest.startswith(self._PERSONA):
        persona.append(rest[len(self._PERSONA) :])
        continue
      turn, tab, response = rest.partition('\t')
      if not tab:
        raise RowError(
          f'a turn without a response: {quote(rest)}',
          'what is said, a tab, the response',
          i,
        )
      response = response.split('\t')[0]
      if not response.strip():
        examples.append(formats.Oddity('an empty response', 'kept', i))
      heard = [*history, turn]
      history = [*heard, response]
      examples.append(
        {'persona': [*persona], 'history': heard, 'response': response}
      )
    return examples


@seqio.map_over_dataset
def dialogue(row: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
  """Joins persona and history into the inputs; the target is the response."""
  persona, history = (
    tf.strings.reduce_join(row[key], separator=' ')
    for key in ('persona', 'history')
  )
  return {
    'inputs': tf.strings.join(
      ['personachat persona:', persona, 'dialogue:', history], separator=' '
    ),
    'targets': row['response'],
  }


adopt(
  'cnn_dailymail_v002',
  {
    split: Split.of(['cnn_dailymail/', 'cnn_dm/'], StoryReader(urls, digits))
    for split, urls, digits in (
      ('train', 'train', '123456789abcde'),
      ('validation', 'val', '0'),
      ('test', 'test', 'f'),
    )
  },
)
define(
  'personachat',
  {
    split: Split.of(
      [
        f'{root}{part}_self_original{kind}.txt'
        for root in ('convai2/', 'ConvAI2/', 'personachat/')
        for kind in ('_no_cands', '')
      ],
      DialogueReader(),
    )
    for split, part in (('train', 'train'), ('validation', 'valid'))
  },
  preprocessors=[dialogue, *TOKENIZE],
  metric_fns=dialogue_metrics.METRICS,
)
