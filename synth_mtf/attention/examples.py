"""Examples to show attention for, from given texts, a file or a task."""

import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import seqio
import tensorflow.compat.v1 as tf
import tensorflow_datasets as tfds

from synth_mtf import tasks
from synth_mtf.errors import UserError
from synth_mtf.storage import filesystem

Texts = Mapping[str, Sequence[str]]
Ids = Sequence[Sequence[int]]

SIDES = ('encoder', 'decoder')
_FEATURES = {'encoder': 'inputs', 'decoder': 'targets'}
_SIDES_OF_TYPE = {  # by the host's model_type
  'bitransformer': SIDES,
  'lm': ('decoder',),
  'delimited_lm': ('decoder',),
  'aligned': ('encoder',),
}
_START = '<s>'  # the first token that a decoder reads
# Shown by default: examples of T5's tasks, short enough for the demo even when
# tokenized into bytes.
DEFAULTS = {
  'inputs': (
    'cola sentence: The book that was read by the teacher are old.',
    'rte sentence1: Anna painted the red boat. sentence2: Anna painted a boat.',
    'sst2 sentence: A warm, funny and honest film.',
    'translate English to German: The house is small.',
  ),
  'targets': (
    'unacceptable',
    'entailment',
    'positive',
    'Das Haus ist klein.',
  ),
}


@dataclasses.dataclass(frozen=True)
class Examples:
  """Inputs of a model: each attribute maps a side to all its examples.

  Attributes:
    ids: token ids, including EOS but no padding.
    tokens: tokens as text, as the side's layers see them: a decoder's are
      shifted by one.
    texts: the text of each example.
  """

  ids: Mapping[str, Ids]
  tokens: Mapping[str, Sequence[Sequence[str]]]
  texts: Texts


@dataclasses.dataclass(frozen=True)
class ModelInputs:
  """What a model reads.

  Attributes:
    model_type: the host's type.
    lengths: the most tokens of each feature; empty if they are unknown.
    vocabularies: by side.
  """

  model_type: str
  lengths: Mapping[str, int]
  vocabularies: Mapping[str, seqio.Vocabulary]

  @property
  def sides(self) -> Sequence[str]:
    """The sides of the model."""
    if self.model_type not in [*_SIDES_OF_TYPE]:  # a foreign one may be a list
      raise UserError(
        f'cannot show the attention of a model of type {self.model_type!r}; '
        f'expected one of {", ".join(_SIDES_OF_TYPE)}'
      )
    return _SIDES_OF_TYPE[self.model_type]

  def most(self, side: str) -> int | None:
    """The most tokens that the model takes on a side; None if unknown."""
    if self.model_type == 'delimited_lm':  # the host joins both in one row
      return sum(self.lengths.values()) or None
    return self.lengths.get(_FEATURES[side])


def defaults(model: ModelInputs) -> Examples:
  """Returns `DEFAULTS` for the sides of a model."""
  features = [_FEATURES[side] for side in model.sides]
  return from_texts(model, {feature: DEFAULTS[feature] for feature in features})


def from_texts(model: ModelInputs, texts: Texts) -> Examples:
  """Tokenizes texts, given as `inputs` and `targets`, and appends EOS to each.

  Without targets, only the encoder of an encoder-decoder model is shown. A
  model with one side accepts either.
  """
  by_side = _by_side(model.sides, texts)
  counts = {feature: len(rows) for feature, rows in texts.items() if rows}
  if len(set(counts.values())) > 1:
    shown = ' and '.join(f'{n} {feature}' for feature, n in counts.items())
    raise UserError(f'{shown}: expected one target per input, or none')
  ids = {}
  for side, rows in by_side.items():
    if not all(text.strip() for text in rows):
      raise UserError('a text is empty')
    vocabulary = model.vocabularies[side]
    end = vocabulary.eos_id or 1
    ids[side] = [[*vocabulary.encode(text.strip()), end] for text in rows]
  return _examples(model, ids, by_side)


def _by_side(sides: Sequence[str], texts: Texts) -> dict[str, Sequence[str]]:
  """Returns the texts of each side of a model."""
  given = {feature: rows for feature, rows in texts.items() if rows}
  if len(sides) == 1:
    if len(given) != 1:
      raise UserError(
        f'expected inputs or targets, not both: the model has one {sides[0]}'
      )
    return dict(zip(sides, given.values(), strict=True))
  if 'inputs' not in given:
    raise UserError('expected inputs, with or without their targets')
  return {s: given[f] for s, f in _FEATURES.items() if f in given}


def from_file(model: ModelInputs, path: str) -> Examples:
  """Reads one example per line: an input, optionally with a tab and target."""
  text = filesystem.text(path, filesystem.RECORDS_BYTES) or ''
  rows: list[list[str]] = []
  # `splitlines` splits at U+2028, too.
  for number, line in enumerate(re.split(r'\r?\n', text), start=1):
    if not line.strip():
      continue
    rows.append(line.split('\t'))
    columns = len(rows[-1])
    if columns > 2 or columns != len(rows[0]):
      raise filesystem.Unreadable(
        f'{path}:{number}: {columns} columns; expected an input, or an input, '
        'a tab and its target, and the same in all lines'
      )
  if not rows:
    raise filesystem.Unreadable(
      f'{path} is missing or empty; expected one example per line'
    )
  texts = {'inputs': [row[0] for row in rows]}
  if len(rows[0]) == 2:
    texts['targets'] = [row[1] for row in rows]
  return from_texts(model, texts)


def from_task(
  model: ModelInputs, name: str, split: str, count: int
) -> Examples:
  """Reads the first examples of a task or mixture, as a model receives them."""
  tasks.check([name], [split])
  task = tasks.get(name)
  features = {side: [_FEATURES[side]] for side in model.sides}
  if model.model_type == 'delimited_lm':  # the host joins both in one row
    features['decoder'] = ['inputs', 'targets']
  _check_vocabulary(model, name, task.output_features)
  lengths = model.lengths or dict.fromkeys(_FEATURES.values(), 512)
  with tf.Graph().as_default():
    dataset = task.get_dataset(lengths, split, shuffle=False, seed=0)
    rows = list(tfds.as_numpy(dataset.take(count)))
  if not rows:
    raise UserError(f'{name} has no examples in its split {split!r}')
  ids: dict[str, list[list[int]]] = {}
  texts: dict[str, list[str]] = {}
  for side, names in features.items():
    decode = model.vocabularies[side].decode
    ids[side], texts[side] = [], []
    for row in rows:
      parts = [_feature(row, feature, name, model) for feature in names]
      ids[side].append(list(itertools.chain(*parts)))
      texts[side].append(' '.join(map(decode, parts)))
  return _examples(model, ids, texts)


def _feature(
  row: Mapping[str, Any], feature: str, task: str, model: ModelInputs
) -> list[int]:
  """Returns the ids of one feature of a task's example."""
  if feature not in row:
    raise UserError(
      f'{task} has no {feature}, which a model of type {model.model_type!r} '
      'reads: choose another --task'
    )
  return row[feature].tolist()


def _check_vocabulary(
  model: ModelInputs, task: str, features: Mapping[str, seqio.Feature]
) -> None:
  """Raises a UserError if a task tokenizes with another vocabulary."""
  for side, feature in _FEATURES.items():
    known = features[feature].vocabulary if feature in features else None
    if known is not None and known != model.vocabularies[side]:
      raise UserError(
        f'{task} has another vocabulary for its {feature}, and the model '
        'has another: choose another --task, or give texts'
      )


def _examples(
  model: ModelInputs, ids: Mapping[str, Ids], texts: Texts
) -> Examples:
  """Makes examples of ids and texts, by side, that are not too long."""
  tokens: dict[str, list[list[str]]] = {}
  for side, rows in ids.items():
    longest, most = max(map(len, rows)), model.most(side)
    if most and longest > most:
      raise UserError(
        f'a text of the {side} has {longest} tokens, and the model takes '
        f'{most} (utils.run.sequence_length): shorten it'
      )
    tokens[side] = [_pieces(row, model.vocabularies[side]) for row in rows]
  if 'decoder' in tokens:
    tokens['decoder'] = [[_START, *row[:-1]] for row in tokens['decoder']]
  return Examples(ids, tokens, texts)


def _pieces(ids: Sequence[int], vocabulary: seqio.Vocabulary) -> list[str]:
  """Returns the text of each token, never '', which stands for padding."""
  if hasattr(vocabulary, 'tokenizer'):  # SentencePiece has no empty pieces
    return list(map(vocabulary.tokenizer.IdToPiece, ids))
  pieces = []
  for i in ids:
    if i == vocabulary.eos_id:
      pieces.append('</s>')
    else:
      pieces.append(vocabulary.decode([i]) or f'<{i}>')
  return pieces
