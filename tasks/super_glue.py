"""SuperGLUE from its official JSON lines, arXiv 1905.00537, and DPR.

Readers produce the structure of TFDS's `super_glue/<config>:1.0.2`.
"""

import dataclasses
import functools
import io
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow_datasets as tfds

from synth_mtf.rows import formats
from synth_mtf.tasks.files.source import Split
from synth_mtf.tasks.registering import adopt, splits

Row = Mapping[str, Any]
_fix_misquoted_spans = tfds.text.super_glue._fix_wst  # noqa: SLF001  TFDS's own


@dataclasses.dataclass(eq=False)
class SuperGlueReader(formats.Reader):
  """Reads the JSON lines of a TFDS config, one example per row.

  Attributes:
    integers: features that are integers; the others are text.
    structure: keys and types that a row must have; by default the features.
    labels: JSON values of the classes; by default the config's classes.
  """

  config: str
  labelled: bool

  reports_line_ends = True
  schema = {}
  integers = tuple[str, ...]()
  structure = dict[str, Any]()
  labels = tuple[Any, ...]()

  def __post_init__(self) -> None:
    config = tfds.text.super_glue.SuperGlue.builder_configs[self.config]
    if not self.labels:
      self.labels = config.label_classes
      if self.labels == ('False', 'True'):
        self.labels = (False, True)
    integers = (*self.integers, 'idx')
    if not self.structure:
      self.structure = {
        **dict.fromkeys(config.features, str),
        **dict.fromkeys(integers, int),
      }
    if not self.schema:
      self.schema = {
        **dict.fromkeys(config.features, formats.TEXT),
        **dict.fromkeys(integers, formats.INT),
        'label': formats.LABEL,
      }

  def parse(self, record: formats.Record) -> formats.Items:
    return self.examples(formats.json_row(record, self.structure))

  def examples(self, row: Row) -> formats.Items:
    """Yields the examples of a row whose structure has been checked."""
    example = {name: row[name] for name in self.schema if name != 'label'}
    yield {**example, 'label': self.label(row)}

  def label(self, row: Row) -> int:
    """Returns the class, or `NO_LABEL` for an unlabelled test row."""
    if not self.labelled and 'label' not in row:
      return formats.NO_LABEL
    formats.check_json(row, {'label': object})
    label = row['label']
    for i, known in enumerate(self.labels):
      # True == 1 in Python. Like TFDS, accept true as 1, but not 1 as true.
      if label == known and isinstance(label, type(known)):
        return i
    classes = ', '.join(json.dumps(known) for known in self.labels)
    raise formats.RowError(
      f'the label {formats.quote(json.dumps(label))}', f'one of {classes}'
    )


class CopaReader(SuperGlueReader):
  """Reads COPA, whose label is the first or the second choice."""

  labels = (0, 1)

  def examples(self, row: Row) -> formats.Items:
    formats.expect(
      row['question'] in ('cause', 'effect'),
      f'the question {formats.quote(row["question"])}',
      'one of cause, effect',
    )
    return super().examples(row)


class WicReader(SuperGlueReader):
  """Reads WiC, which has one word in two sentences."""

  integers = ('start1', 'start2', 'end1', 'end2')

  def examples(self, row: Row) -> formats.Items:
    for i in '12':
      start, end = row[f'start{i}'], row[f'end{i}']
      length = len(row[f'sentence{i}'])
      formats.expect(
        0 <= start < end <= length,
        f'the word from {start} to {end}',
        f'a span of sentence{i}, which has {length} characters',
      )
    return super().examples(row)


class WscReader(SuperGlueReader):
  """Reads WSC with TFDS's `wsc.fixed` spans, which are substrings of the text.

  T5's preprocessor splits the text at single spaces, marks the word at
  `span2_index` and aborts the run if that word is not the pronoun.
  """

  integers = ('span1_index', 'span2_index')
  structure = {
    'text': str,
    'target': {
      'span1_index': int,
      'span1_text': str,
      'span2_index': int,
      'span2_text': str,
    },
    'idx': int,
  }
  # CRC-32 of two official texts whose pronoun is elsewhere. T5's preprocessor
  # has a special case for them and marks the right word.
  FIXED_BY_T5 = (1896453270, 2994969774)

  def examples(self, row: Row) -> formats.Items:
    spans = row['target']
    try:
      fixed = _fix_misquoted_spans({**spans, 'text': row['text']})
    except (AssertionError, IndexError) as error:
      raise formats.RowError(
        f'the spans {formats.quote(json.dumps(spans), 200)}',
        'words of the text at these indices',
      ) from error
    pronoun, index = fixed['span2_text'], fixed['span2_index']
    words = fixed['text'].split(' ')
    word = words[index] if 0 < index < len(words) else ''
    place = 'where there is no word that T5 can mark'
    if word:
      place = f'where {formats.quote(word)} is'
    checksum = zlib.crc32(fixed['text'].encode('utf-8'))
    is_pronoun = word == pronoun or checksum in self.FIXED_BY_T5
    formats.expect(
      # T5 would replace a pronoun that contains a backslash with an X.
      word and is_pronoun and '\\' not in pronoun,
      f'the pronoun {formats.quote(pronoun)} with span2_index {index}, {place}',
      'the index of a word that is the pronoun, counted from 0 by single '
      'spaces, and not the first word',
    )
    return super().examples({**row, **fixed})


class MultircReader(SuperGlueReader):
  """Reads MultiRC: one passage per row, one example per candidate answer."""

  labels = (0, 1)
  schema = {
    'paragraph': formats.TEXT,
    'question': formats.TEXT,
    'answer': formats.TEXT,
    'label': formats.LABEL,
    'idx': {
      'paragraph': formats.INT,
      'question': formats.INT,
      'answer': formats.INT,
    },
  }
  _QUESTION = {
    'question': str,
    'idx': int,
    'answers': [{'text': str, 'idx': int}],
  }
  structure = {'idx': int, 'passage': {'text': str, 'questions': [_QUESTION]}}

  def examples(self, row: Row) -> formats.Items:
    passage = row['passage']
    for question in passage['questions']:
      for answer in question['answers']:
        yield {
          'paragraph': passage['text'],
          'question': question['question'],
          'answer': answer['text'],
          'label': self.label(answer),
          'idx': {
            'paragraph': row['idx'],
            'question': question['idx'],
            'answer': answer['idx'],
          },
        }


class RecordReader(SuperGlueReader):
  """Reads ReCoRD: one passage per row, one example per query.

  T5 turns each answer into a training example, and scores a prediction against
  the answer that fits it best.
  """

  schema = {
    'passage': formats.TEXT,
    'query': formats.TEXT,
    'entities': formats.TEXTS,
    'answers': formats.TEXTS,
    'idx': {'passage': formats.INT, 'query': formats.INT},
  }
  structure = {
    'idx': int,
    'passage': {'text': str, 'entities': [{'start': int, 'end': int}]},
    'qas': [{'idx': int, 'query': str}],
  }

  def examples(self, row: Row) -> formats.Items:
    passage = row['passage']
    text = passage['text']
    entities = {text[e['start'] : e['end'] + 1] for e in passage['entities']}
    for query in row['qas']:
      formats.expect(
        '@placeholder' in query['query'],
        f'the query {formats.quote(query["query"])}',
        'a @placeholder in it',
      )
      answers = self._answers(query)
      for answer in answers:
        formats.expect(
          answer and answer in text,
          f'the answer {formats.quote(answer)}',
          'an entity that is in the passage',
        )
      yield {
        'passage': text,
        'query': query['query'],
        'entities': sorted(entities),
        'answers': sorted(answers),
        'idx': {'passage': row['idx'], 'query': query['idx']},
      }
      if not answers <= entities:
        yield formats.Oddity('an answer that is not one of the entities')

  def _answers(self, query: Row) -> set[str]:
    if not self.labelled and 'answers' not in query:
      return set()
    formats.check_json(query, {'answers': [{'text': str}]})
    formats.expect(query['answers'], 'a query without answers', 'at least one')
    return {answer['text'] for answer in query['answers']}


class DprReader(formats.Reader):
  """Reads Definite Pronoun Resolution, whose examples are four lines each."""

  reports_line_ends = True
  schema = {
    'sentence': formats.TEXT,
    'pronoun': formats.TEXT,
    'candidates': formats.TEXTS,
    'label': formats.LABEL,
  }

  def split(self, stream: Any, start: int) -> Iterator[formats.Record]:
    def too_many_lines(data: bytes) -> bool:
      return data.count(b'\n') > 4

    return formats.paragraphs(formats.lines(stream), start, too_many_lines)

  def parse(self, record: formats.Record) -> formats.Items:
    text = io.StringIO(formats.decode(record.unmarked), newline=None)
    lines = [line.strip() for line in text]
    formats.expect(
      len(lines) == 4,
      f'{len(lines)} lines up to the next empty one',
      'four: sentence, pronoun, two candidates separated by a comma, answer',
    )
    sentence, pronoun, both, correct = lines
    candidates = [candidate.strip() for candidate in both.split(',')]
    formats.expect(
      len(candidates) == 2,
      f'the candidates {formats.quote(both)}',
      'two, separated by a comma',
      line=2,
    )
    formats.expect(
      pronoun and pronoun.lower() in sentence.lower(),
      f'the pronoun {formats.quote(pronoun)}',
      f'a word of {formats.quote(sentence)}',
      line=1,
    )
    formats.expect(
      correct in candidates,
      f'the answer {formats.quote(correct)}',
      f'one of {formats.quote(both)}',
      line=3,
    )
    yield {
      'sentence': sentence,
      'pronoun': pronoun,
      'candidates': candidates,
      'label': candidates.index(correct),
    }
    if not re.search(rf' ({re.escape(pronoun)})( |\.|,)', sentence):
      yield formats.Oddity('a pronoun that T5 does not mark', line=1)


_ROOTS = ('superglue/', 'SuperGLUE/', 'super_glue/', '')
_DPR_ROOTS = ('dpr/', 'DPR/', 'definite_pronoun_resolution/', 'superglue/DPR/')
_FILES = {'train': 'train', 'validation': 'val', 'test': 'test'}


def _adopt(
  task: str,
  folder: str,
  reader: type[SuperGlueReader] = SuperGlueReader,
  config: str | None = None,
  only: Sequence[str] = tuple(_FILES),
) -> str:
  paths = {split: f'{folder}/{_FILES[split]}.jsonl' for split in only}
  reader_of_split = functools.partial(reader, config or task.split('_')[0])
  return adopt(f'super_glue_{task}', splits(_ROOTS, paths, reader_of_split))


TASKS = (
  _adopt('boolq_v102', 'BoolQ'),
  _adopt('cb_v102', 'CB'),
  _adopt('copa_v102', 'COPA', CopaReader),
  _adopt('multirc_v102', 'MultiRC', MultircReader),
  _adopt('record_v102', 'ReCoRD', RecordReader),
  _adopt('rte_v102', 'RTE'),
  _adopt('wic_v102', 'WiC', WicReader),
  # T5 trains on DPR and on the WSC rows whose referent is correct; it evaluates
  # whether the predicted referent is the one in the row.
  _adopt(
    'wsc_v102_simple_train', 'WSC', WscReader, 'wsc.fixed', only=['train']
  ),
  _adopt(
    'wsc_v102_simple_eval',
    'WSC',
    WscReader,
    'wsc.fixed',
    only=['validation', 'test'],
  ),
  # DPR is not part of SuperGLUE: the mixtures skip it if its files are missing.
  adopt(
    'dpr_v001_simple',
    {
      split: Split.of(
        [f'{root}{split}.c.txt' for root in _DPR_ROOTS],
        DprReader(),
        optional=split == 'train',
      )
      for split in ('train', 'test')
    },
  ),
)
