"""The examples that attention is shown for: texts, a file's, or a task's."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any, Optional

import gin
import seqio
import tensorflow.compat.v1 as tf
import tensorflow_datasets as tfds
from mesh_tensorflow.transformer import utils
from t5.models import mesh_transformer

from synth_mtf import tasks
from synth_mtf.checkpoints import vocabulary as vocabularies
from synth_mtf.errors import UserError
from synth_mtf.host import errors

Ids = Sequence[Sequence[int]]

_FEATURES = {'encoder': 'inputs', 'decoder': 'targets'}
_SIDES = {  # by the host's model_type
  'bitransformer': ['encoder', 'decoder'],
  'lm': ['decoder'],
  'delimited_lm': ['decoder'],
  'aligned': ['encoder'],
}
_START = '<s>'  # what a decoder reads first
# Shown unless the user names a text: some of T5's tasks, short enough for the
# demo even in bytes.
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
  """What a model reads; each by side, for all examples.

  Attributes:
    ids: the tokens, including EOS but no padding.
    tokens: as text, as that side's layers see them: a decoder's are shifted by
      one.
    texts: what was tokenized.
  """

  ids: Mapping[str, Ids]
  tokens: Mapping[str, Sequence[Sequence[str]]]
  texts: Mapping[str, Sequence[str]]


def sides() -> list[str]:
  """The sides of the model that gin holds: encoder, decoder, or both."""
  model_type = gin.get_bindings(utils.run, resolve_references=False).get(
    'model_type', 'bitransformer'
  )
  if model_type not in _SIDES:
    raise UserError(
      f'cannot show the attention of a model of type {model_type!r}; expected '
      f'one of {", ".join(_SIDES)}'
    )
  return _SIDES[model_type]


def choose_vocabulary(given: Optional[str], model_dir: str) -> None:
  """Sets the vocabulary of the tasks.

  Args:
    given: as in `--vocabulary`; None for the one that the model was trained
      with, if its folder records it and nothing else is set.
    model_dir: the model's folder.
  """
  if given is None and tasks.settings().vocabulary is None:
    name = vocabularies.recorded_name(model_dir)
    if name == 'ByteVocabulary':
      given = tasks.data_settings.BYTES
    elif name and '://' not in name and os.path.isfile(name):
      given = name
  if given is not None:
    with gin.unlock_config():
      gin.bind_parameter('synth_mtf.tasks.settings.vocabulary', given)


def vocabulary() -> Mapping[str, seqio.Vocabulary]:
  """The vocabularies of `inputs` and `targets` in the run that gin holds."""
  found = gin.get_bindings(utils.run).get('vocabulary')
  if found is None:  # T5's main binds it, which an operative config leaves out
    with errors.explained():
      found = mesh_transformer.get_vocabulary()
  return {
    'inputs': utils.inputs_vocabulary(found),
    'targets': utils.targets_vocabulary(found),
  }


def defaults() -> Examples:
  """Returns `DEFAULTS` for the model that gin holds."""
  features = [_FEATURES[side] for side in sides()]
  return from_texts({feature: DEFAULTS[feature] for feature in features})


def from_texts(texts: Mapping[str, Sequence[str]]) -> Examples:
  """Tokenizes texts and ends each with EOS.

  Args:
    texts: by `inputs` and `targets`. Without targets, only the encoder of a
      model of encoder and decoder is shown. A model of one side takes either.

  Raises:
    UserError: there is none, one is empty or too long, or they do not pair.
  """
  by_side = _by_side({name: found for name, found in texts.items() if found})
  if len({len(of_side) for of_side in by_side.values()}) > 1:
    raise UserError(
      f'{len(texts["inputs"])} inputs and {len(texts["targets"])} targets: '
      'expected one target per input, or none'
    )
  known = vocabulary()
  ids = {}
  for side, of_side in by_side.items():
    for number, text in enumerate(of_side, 1):
      if not text.strip():
        raise UserError(f'text {number} of the {side} is empty')
    of_feature = known[_FEATURES[side]]
    ids[side] = [
      [*of_feature.encode(text.strip()), of_feature.eos_id or 1]
      for text in of_side
    ]
  return _examples(ids, by_side, known)


def from_file(path: str) -> Examples:
  """Reads one example per line: an input, and after a tab its target if any.

  Raises:
    UserError: the file is missing, empty or not UTF-8, or a text does not fit.
  """
  if not tf.io.gfile.exists(path) or tf.io.gfile.isdir(path):
    raise UserError(
      f'there is no file {path}; expected a text file with one example per line'
    )
  try:
    with tf.io.gfile.GFile(path) as stream:
      lines = enumerate(stream.read().splitlines(), 1)
  except UnicodeDecodeError as error:
    raise UserError(
      f'{path} is not UTF-8 (byte {error.start}: {error.reason})'
    ) from error
  rows = {n: line.split('\t') for n, line in lines if line.strip()}
  if not rows:
    raise UserError(f'{path} is empty; expected one example per line')
  columns = len(next(iter(rows.values())))
  for number, row in rows.items():
    if not columns == len(row) <= 2:
      raise UserError(
        f'{path}:{number}: {len(row)} columns; expected an input, or an input, '
        'a tab and its target, and the same in all lines'
      )
  return from_texts(
    dict(zip(('inputs', 'targets'), map(list, zip(*rows.values()))))
  )


def from_task(name: str, split: str, count: int) -> Examples:
  """Reads the first examples of a task or mixture, as a model gets them.

  Raises:
    UserError: there is no such task, split or file.
  """
  tasks.check([name], [split])
  wanted = {side: _FEATURES[side] for side in sides()}
  lengths = _lengths() or dict.fromkeys(wanted.values(), 512)
  with tf.Graph().as_default():
    dataset = tasks.get(name).get_dataset(lengths, split, shuffle=False, seed=0)
    rows = list(tfds.as_numpy(dataset.take(count)))
  if not rows:
    raise UserError(f'{name} has no examples in its split {split!r}')
  known = vocabulary()
  by_side = {side: f for side, f in wanted.items() if f in rows[0]}
  ids = {
    side: [row[feature].tolist() for row in rows]
    for side, feature in by_side.items()
  }
  texts = {
    side: [_text(row, feature, known[feature]) for row in rows]
    for side, feature in by_side.items()
  }
  return _examples(ids, texts, known)


def _text(row: Mapping[str, Any], feature: str, known: seqio.Vocabulary) -> str:
  text = row.get(f'{feature}_pretokenized')
  if isinstance(text, bytes):
    return text.decode('utf-8', 'replace')
  return known.decode(row[feature].tolist())


def _by_side(texts: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
  if not texts:
    raise UserError('no text is given')
  wanted = sides()
  if len(wanted) == 1:
    if len(texts) > 1:
      raise UserError(
        f'this model has only {wanted[0]} layers: give either --text or '
        '--target'
      )
    return {wanted[0]: next(iter(texts.values()))}
  if 'inputs' not in texts:
    raise UserError('this model has an encoder: give an input for each target')
  return {side: texts[f] for side, f in _FEATURES.items() if f in texts}


def _examples(
  ids: Mapping[str, list[list[int]]],
  texts: Mapping[str, Sequence[str]],
  known: Mapping[str, seqio.Vocabulary],
) -> Examples:
  lengths = _lengths()
  faults = [
    f'text {number} of the {side} has {len(row)} tokens, and the model takes '
    f'{lengths[_FEATURES[side]]}'
    for side, rows in ids.items()
    for number, row in enumerate(rows, 1)
    if len(row) > lengths.get(_FEATURES[side], len(row))
  ]
  if faults:
    raise UserError(
      '; '.join(faults) + ' (utils.run.sequence_length). Shorten it.'
    )
  tokens = {
    side: [_pieces(row, known[_FEATURES[side]]) for row in rows]
    for side, rows in ids.items()
  }
  if 'decoder' in tokens:
    tokens['decoder'] = [[_START, *row[:-1]] for row in tokens['decoder']]
  return Examples(ids, tokens, texts)


def _lengths() -> dict[str, int]:
  """The longest rows of the run; empty if it does not say."""
  found = gin.get_bindings(utils.run).get('sequence_length')
  if isinstance(found, int):
    return dict.fromkeys(_FEATURES.values(), found)
  return dict(found or {})


def _pieces(ids: Sequence[int], known: seqio.Vocabulary) -> list[str]:
  """Each token as text, none of which is ''."""
  tokenizer = getattr(known, 'tokenizer', None)
  if tokenizer is not None and hasattr(tokenizer, 'IdToPiece'):
    return [tokenizer.IdToPiece(i) or f'<{i}>' for i in ids]
  return [
    '</s>' if i == known.eos_id else known.decode([i]) or f'<{i}>' for i in ids
  ]
