"""Examples to show attention for, from given texts, a file or a task."""

import dataclasses
import re
from collections.abc import Mapping, Sequence

import gin
import seqio
import tensorflow.compat.v1 as tf
import tensorflow_datasets as tfds
from mesh_tensorflow.transformer import utils
from t5.models import mesh_transformer

from synth_mtf import tasks
from synth_mtf.errors import UserError
from synth_mtf.host import foreign

Texts = Mapping[str, Sequence[str]]
Ids = Sequence[Sequence[int]]

FEATURES = {'encoder': 'inputs', 'decoder': 'targets'}
_SIDES = {  # by the host's model_type
  'bitransformer': ['encoder', 'decoder'],
  'lm': ['decoder'],
  'delimited_lm': ['decoder'],
  'aligned': ['encoder'],
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
  """The inputs of a model: each attribute maps a side to all its examples.

  Attributes:
    ids: token ids, including EOS but no padding.
    tokens: tokens as text, as the side's layers see them: a decoder's are
      shifted by one.
    texts: the text of each example.
  """

  ids: Mapping[str, Ids]
  tokens: Mapping[str, Sequence[Sequence[str]]]
  texts: Texts


def vocabulary() -> Mapping[str, seqio.Vocabulary]:
  """Returns the vocabularies of the encoder and decoder that gin configures."""
  found = gin.get_bindings(utils.run).get('vocabulary')
  if found is None:  # bound by T5's main, so not in operative configs
    found = mesh_transformer.get_vocabulary()
  return {
    'encoder': utils.inputs_vocabulary(found),
    'decoder': utils.targets_vocabulary(found),
  }


def defaults() -> Examples:
  """Returns `DEFAULTS` for the sides of the model that gin configures."""
  features = [FEATURES[side] for side in sides()]
  return from_texts({feature: DEFAULTS[feature] for feature in features})


def from_texts(texts: Texts) -> Examples:
  """Tokenizes texts, given as `inputs` and `targets`, and appends EOS to each.

  Without targets, only the encoder of an encoder-decoder model is shown. A
  model with one side accepts either.
  """
  names = sides()
  given = [found for found in texts.values() if found]
  if len(names) == 1:
    by_side = dict(zip(names, given, strict=False))
  else:
    by_side = {s: texts[f] for s, f in FEATURES.items() if texts.get(f)}
  if names[0] not in by_side or len(by_side) < len(given):
    raise UserError(
      'expected inputs, with or without their targets'
      if len(names) > 1
      else f'expected inputs or targets, not both: the model has one {names[0]}'
    )
  if len({len(found) for found in given}) > 1:
    counts = ' and '.join(f'{len(texts[name])} {name}' for name in texts)
    raise UserError(f'{counts}: expected one target per input, or none')
  if not all(text.strip() for found in given for text in found):
    raise UserError('a text is empty')
  known = vocabulary()
  ids = {
    side: [
      [*known[side].encode(text.strip()), known[side].eos_id or 1]
      for text in rows
    ]
    for side, rows in by_side.items()
  }
  return _examples(ids, by_side, known)


def from_file(path: str) -> Examples:
  """Reads one example per line: an input, optionally with a tab and target."""
  text = (foreign.read(path) or '').removeprefix('\ufeff')
  lines = re.split(r'\r?\n', text)  # `splitlines` splits at U+2028, too
  rows = [line.split('\t') for line in lines if line.strip()]
  for number, line in enumerate(lines, 1):
    columns = line.count('\t') + 1
    if line.strip() and not columns == len(rows[0]) <= 2:
      raise UserError(
        f'{path}:{number}: {columns} columns; expected an input, or an input, '
        'a tab and its target, and the same in all lines'
      )
  if not rows:
    raise UserError(
      f'{path} is missing or empty; expected one example per line'
    )
  return from_texts(
    dict(
      zip(
        ('inputs', 'targets'), map(list, zip(*rows, strict=True)), strict=False
      )
    )
  )


def from_task(name: str, split: str, count: int) -> Examples:
  """Reads the first examples of a task or mixture, as a model receives them."""
  tasks.check([name], [split])
  features = {side: [FEATURES[side]] for side in sides()}
  if model_type() == 'delimited_lm':  # the host joins both in one row
    features['decoder'] = ['inputs', 'targets']
  most = lengths() or dict.fromkeys(FEATURES.values(), 512)
  with tf.Graph().as_default():
    dataset = tasks.get(name).get_dataset(most, split, shuffle=False, seed=0)
    rows = list(tfds.as_numpy(dataset.take(count)))
  if not rows:
    raise UserError(f'{name} has no examples in its split {split!r}')
  for feature in sum(features.values(), []):
    if feature not in rows[0]:
      raise UserError(
        f'{name} has no {feature}, which a model of type {model_type()!r} '
        'reads: choose another --task'
      )
  known = vocabulary()
  parts: dict[str, list[list[list[int]]]] = {
    side: [[row[feature].tolist() for feature in read] for row in rows]
    for side, read in features.items()
  }
  ids = {side: [sum(row, []) for row in parts[side]] for side in parts}
  texts = {
    side: [' '.join(map(known[side].decode, row)) for row in parts[side]]
    for side in parts
  }
  return _examples(ids, texts, known)


def lengths() -> Mapping[str, int]:
  """The run's maximum lengths, by feature; empty if they are not configured."""
  found = gin.get_bindings(utils.run).get('sequence_length') or {}
  if isinstance(found, int):
    return dict.fromkeys(FEATURES.values(), found)
  return found


def most_of(side: str) -> int | None:
  """The most tokens that the model takes on a side; None if unknown."""
  if model_type() == 'delimited_lm':
    return sum(lengths().values()) or None
  return lengths().get(FEATURES[side])


def model_type() -> str:
  """The host's type of the model that gin configures."""
  bindings = gin.get_bindings(utils.run, resolve_references=False)
  return str(bindings.get('model_type', 'bitransformer'))


def sides() -> list[str]:
  """The sides of the model that gin configures."""
  if model_type() not in _SIDES:
    raise UserError(
      f'cannot show the attention of a model of type {model_type()!r}; '
      f'expected one of {", ".join(_SIDES)}'
    )
  return _SIDES[model_type()]


def _examples(
  ids: Mapping[str, Ids], texts: Texts, known: Mapping[str, seqio.Vocabulary]
) -> Examples:
  for side, rows in ids.items():
    longest, most = max(map(len, rows)), most_of(side)
    if most and longest > most:
      raise UserError(
        f'a text of the {side} has {longest} tokens, and the model takes '
        f'{most} (utils.run.sequence_length): shorten it'
      )
  tokens = {s: [_pieces(row, known[s]) for row in ids[s]] for s in ids}
  if 'decoder' in tokens:
    tokens['decoder'] = [[_START, *row[:-1]] for row in tokens['decoder']]
  return Examples(ids, tokens, texts)


def _pieces(ids: Sequence[int], known: seqio.Vocabulary) -> list[str]:
  """Returns the text of each token, never '', which stands for padding."""
  if hasattr(known, 'tokenizer'):  # SentencePiece
    return [known.tokenizer.IdToPiece(i) or f'<{i}>' for i in ids]
  return [
    '</s>' if i == known.eos_id else known.decode([i]) or f'<{i}>' for i in ids
  ]
