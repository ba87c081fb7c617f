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
from synth_mtf.tasks import dialogue_metrics
from synth_mtf.tasks.files import formats, storage
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


def _text(path: str) -> str:
  """Returns the text of a file, without a byte order mark."""
  with storage.reading(path) as stream, formats.fault_at(path, 1):
    return formats.decode(stream.read().removeprefix(formats.BOM))


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

  def files(self, path: str) -> list[str]:
    stems = {
      file: os.path.splitext(os.path.basename(file))[0]
      for file in super().files(path)
    }
    folder = storage.find(path, 'url_lists/')
    root = [*folder, path][0]
    lists = [os.path.join(root, name) for name in _URL_LISTS]
    sizes = {x: storage.total_bytes([x]) for x in lists if storage.is_file(x)}
    if not folder and not sizes:
      return [f for f, stem in stems.items() if stem[0] in self.first_digits]
    if not all(map(sizes.get, lists)):
      has = [x for x in _URL_LISTS if sizes.get(os.path.join(root, x))]
      raise UserError(
        f'{root} has URLs in {", ".join(has) or "no list"}; expected them in '
        f'{", ".join(_URL_LISTS)}. Add the others, or move url_lists and all '
        'lists away to split the stories by the first digit of their names.'
      )
    urls = _text(os.path.join(root, f'all_{self.urls}.txt')).split('\n')
    hashes = {hashlib.sha1(url.strip().encode()).hexdigest() for url in urls}
    return [file for file, stem in stems.items() if stem in hashes]

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

  def files(self, path: str) -> list[str]:
    root = os.path.dirname(path.rstrip('/'))
    found = super().files(root)
    places = {os.path.splitext(os.path.basename(x))[0]: x for x in found}
    ids = os.path.join(root, _XSUM_IDS)
    if not places or not storage.is_file(ids):
      folders = ' or '.join(self.folders)
      raise UserError(f'{root} needs {_XSUM_IDS}, and articles in {folders}.')
    text = _text(ids)
    with formats.fault_at(ids, 1):
      splits = formats.parse_json(text, 'lists of ids by split')
      formats.check_json(splits, {self.part: [str]}, 'file')
    return [places[x] for x in splits[self.part] if x in places]

  def parse(self, record: formats.Record) -> formats.Items:
    formats.decode(record.data)
    mark, summary = _XSUM_MARKS[os.path.splitext(record.name)[1]]
    # As TensorFlow Datasets reads lines, without those that it removes.
    lines = io.TextIOWrapper(io.BytesIO(record.data), 'utf-8')
    text = ''.join(x for x in lines if x.strip() and x not in _REMOVED_LINES)
    pieces = [piece.strip() for piece in text.split(mark)]
    parts = dict(zip(pieces[1::2], pieces[2::2], strict=False))
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
        start, data = start + len(data), b''
      data += line

  def parse(self, record: formats.Record) -> formats.Items:
    persona: list[str] = []
    history: list[str] = []
    text = formats.decode(record.unmarked).rstrip('\n')
    for i, line in enumerate(text.split('\n')):
      count, _, rest = line.rstrip('\r').partition(' ')
      formats.expect(
        count == str(i + 1),
        f'a line that starts with {formats.quote(count)}',
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
  'xsum_v110',
  {
    split: Split(
      [
        {f'xsum/{_XSUM_IDS}': XsumReader(split)},
        {f'xsum/{split}.jsonl': XsumJsonReader()},
        {f'xsum/{split}.json': XsumJsonReader()},
        *({f'xsum/{name}/': XsumReader(split)} for name in XsumReader.folders),
      ],
      optional=split == 'test',
    )
    for split in ('train', 'validation', 'test')
  },
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
