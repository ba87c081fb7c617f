"""Generation: summaries (CNN/DailyMail, XSum) and PersonaChat dialogues."""

import dataclasses
import functools
import hashlib
import io
import itertools
import os
from collections.abc import Iterator
from typing import Any

import seqio
import tensorflow.compat.v2 as tf
import tensorflow_datasets as tfds
from t5.data import preprocessors
from t5.evaluation import metrics
from tensorflow_datasets.summarization import xsum

from synth_mtf.errors import UserError
from synth_mtf.rows import formats
from synth_mtf.storage import filesystem
from synth_mtf.tasks import dialogue_metrics
from synth_mtf.tasks.files.source import Split
from synth_mtf.tasks.registering import TOKENIZE, adopt, define

# Private, but TFDS's own parsers guarantee the same examples.
_get_art_abs = tfds.summarization.cnn_dailymail._get_art_abs  # noqa: SLF001
_REMOVED_LINES = xsum._REMOVE_LINES  # noqa: SLF001

_URL_LISTS = 'all_train.txt', 'all_val.txt', 'all_test.txt'
_XSUM_IDS = 'XSum-TRAINING-DEV-TEST-SPLIT-90-5-5.json'
# By kind of file: the mark around the names of an article's parts, and the name
# of the summary. The authors' script extracts `.data`; they release `.summary`.
_XSUM_MARKS = {
  '.data': ('[XSUM]', 'INTRODUCTION'),
  '.summary': ('[SN]', 'FIRST-SENTENCE'),
}
_XSUM = {'document': formats.TEXT, 'summary': formats.TEXT}


def _stem(path: str) -> str:
  """Returns the name of a file without its suffix."""
  return os.path.splitext(os.path.basename(path))[0]


def _text(path: str) -> str:
  """Returns the text of a file, without a byte order mark."""
  data = filesystem.read(path, filesystem.DOCUMENT_BYTES)
  with formats.fault_at(path, 1):
    return formats.decode(data.removeprefix(formats.BOM))


@dataclasses.dataclass(eq=False)
class StoryReader(formats.FolderReader):
  """Reads the `.story` files of CNN and the Daily Mail, one story per file.

  Lists of URLs, such as `url_lists/all_train.txt`, define the official splits;
  the name of a story is the SHA-1 of its URL. Without any list, the first digit
  of the name selects the split.
  """

  urls: str
  first_digits: str

  schema = {'article': formats.TEXT, 'highlights': formats.TEXT}
  folders = ('cnn/stories', 'dailymail/stories')
  suffix = '.story'

  def find(self, path: str) -> list[str]:
    stories = super().find(path)
    folders = filesystem.find(path, 'url_lists/')
    root = folders[0] if folders else path
    paths = {name: os.path.join(root, name) for name in _URL_LISTS}
    lists = [name for name in paths if filesystem.has_file(paths[name])]
    if not folders and not lists:
      return [x for x in stories if _stem(x)[0] in self.first_digits]
    filled = [name for name in lists if filesystem.size(paths[name])]
    if len(filled) < len(_URL_LISTS):
      raise UserError(
        f'{root} has URLs in {", ".join(filled) or "no list"}; expected them '
        f'in {", ".join(_URL_LISTS)}. Add the others, or move url_lists and '
        'all lists away to split the stories by the first digit of their names.'
      )
    urls = _text(os.path.join(root, f'all_{self.urls}.txt')).split('\n')
    hashes = {hashlib.sha1(url.strip().encode()).hexdigest() for url in urls}
    return [story for story in stories if _stem(story) in hashes]

  def parse(self, record: formats.Record) -> formats.Items:
    formats.decode(record.data)
    article, highlights = _get_art_abs(record.name)
    if not article or not highlights:  # as in some stories of CNN
      raise formats.Oddity('a broken row', formats.LEFT_OUT)
    yield {'article': article, 'highlights': highlights}


@dataclasses.dataclass(eq=False)
class XsumReader(formats.FolderReader):
  """Reads XSum's articles, one per file; a JSON file lists each split's ids.

  As in TensorFlow Datasets, an id without an article is left out.
  """

  part: str

  schema = _XSUM
  folders = ('xsum-extracts-from-downloads', 'bbc-summary-data')
  suffix = tuple(_XSUM_MARKS)

  def find(self, path: str) -> list[str]:
    root = os.path.dirname(path.rstrip('/'))
    articles = {_stem(file): file for file in super().find(root)}
    split_file = os.path.join(root, _XSUM_IDS)
    if not articles or not filesystem.has_file(split_file):
      folders = ' or '.join(self.folders)
      raise UserError(f'{root} needs {_XSUM_IDS}, and articles in {folders}.')
    text = _text(split_file)
    with formats.fault_at(split_file, 1):
      splits = formats.parse_json(text, 'lists of ids by split')
      formats.check_json(splits, {self.part: [str]}, 'file')
    return [articles[i] for i in splits[self.part] if i in articles]

  def parse(self, record: formats.Record) -> formats.Items:
    formats.decode(record.data)
    mark, summary = _XSUM_MARKS[os.path.splitext(record.name)[1]]
    # As TensorFlow Datasets reads lines, without those that it removes.
    text = ''
    for line in io.TextIOWrapper(io.BytesIO(record.data), 'utf-8'):
      if line.strip() and line not in _REMOVED_LINES:
        text += line
    # Text before the first part; then names and texts of parts in turns.
    _, *pieces = [piece.strip() for piece in text.split(mark)]
    parts = dict(zip(pieces[::2], pieces[1::2], strict=False))
    formats.expect(
      {summary, 'RESTBODY'} <= parts.keys(),
      f'an article of the parts {", ".join(parts) or "none"}',
      f'{mark}{summary}{mark} and {mark}RESTBODY{mark}, each with its text',
    )
    yield {'document': parts['RESTBODY'], 'summary': parts[summary]}


class XsumJsonReader(formats.Reader):
  """Reads JSON lines with a document and its summary."""

  schema = _XSUM

  def parse(self, record: formats.Record) -> formats.Items:
    row = formats.json_row(record, dict.fromkeys(_XSUM, str))
    yield {key: row[key] for key in _XSUM}


class DialogueReader(formats.Reader):
  """Reads ParlAI's text format: numbered lines, persona first, then turns.

  A turn is the partner's utterance, a tab and the response; the reward and the
  candidates that follow are ignored. The number 1 starts a new dialogue.
  """

  schema = {
    'persona': formats.TEXTS,
    'history': formats.TEXTS,
    'response': formats.TEXT,
  }
  _PERSONA = 'your persona: '

  def split(self, stream: Any, start: int) -> Iterator[formats.Record]:
    data = b''
    for line in itertools.chain(stream, [b'']):
      if data and (not line or line.startswith(b'1 ')):
        yield formats.Record(data, start)
        start += len(data)
        data = b''
      data += line

  def parse(self, record: formats.Record) -> formats.Items:
    persona: list[str] = []
    history: list[str] = []
    text = formats.decode(record.unmarked).rstrip('\n')
    for i, line in enumerate(text.split('\n')):
      number, _, rest = line.rstrip('\r').partition(' ')
      formats.expect(
        number == str(i + 1),
        f'a line that starts with {formats.quote(number)}',
        f'the number {i + 1}',
        i,
      )
      if rest.startswith(self._PERSONA):
        persona.append(rest[len(self._PERSONA) :])
        continue
      turn, tab, response = rest.partition('\t')
      formats.expect(
        tab,
        f'a turn without a response: {formats.quote(rest)}',
        'an utterance, a tab, the response',
        i,
      )
      response = response.split('\t')[0]
      if not response.strip():
        yield formats.Oddity('an empty response', 'kept', i)
      heard = [*history, turn]
      history = [*heard, response]
      yield {'persona': [*persona], 'history': heard, 'response': response}


@tf.autograph.experimental.do_not_convert
@seqio.map_over_dataset
def dialogue(row: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
  """Joins persona and history into the inputs; the target is the response."""
  persona = tf.strings.reduce_join(row['persona'], separator=' ')
  history = tf.strings.reduce_join(row['history'], separator=' ')
  return {
    'inputs': tf.strings.join(
      ['personachat persona:', persona, 'dialogue:', history], separator=' '
    ),
    'targets': row['response'],
  }


def _stories(urls: str, first_digits: str) -> Split:
  reader = StoryReader(urls, first_digits)
  return Split.of(['cnn_dailymail/', 'cnn_dm/'], reader)


def _xsum(split: str) -> Split:
  articles = XsumReader(split)
  return Split(
    [
      {f'xsum/{_XSUM_IDS}': articles},
      {f'xsum/{split}.jsonl': XsumJsonReader()},
      {f'xsum/{split}.json': XsumJsonReader()},
      # Articles alone: to report that the list of ids is missing.
      *[{f'xsum/{folder}/': articles} for folder in XsumReader.folders],
    ],
    optional=split == 'test',
  )


def _dialogues(part: str) -> Split:
  patterns = []
  for root in ('convai2/', 'ConvAI2/', 'personachat/'):
    patterns.append(f'{root}{part}_self_original_no_cands.txt')
    patterns.append(f'{root}{part}_self_original.txt')
  return Split.of(patterns, DialogueReader())


adopt(
  'cnn_dailymail_v002',
  {
    'train': _stories('train', '123456789abcde'),
    'validation': _stories('val', '0'),
    'test': _stories('test', 'f'),
  },
)
define(
  'xsum_v110',
  {split: _xsum(split) for split in ('train', 'validation', 'test')},
  'xsum:1.1.0',
  preprocessors=[
    functools.partial(
      preprocessors.summarize, article_key='document', summary_key='summary'
    ),
    *TOKENIZE,
  ],
  metric_fns=[metrics.rouge],
)
define(
  'personachat',
  {'train': _dialogues('train'), 'validation': _dialogues('valid')},
  preprocessors=[dialogue, *TOKENIZE],
  metric_fns=dialogue_metrics.METRICS,
)
