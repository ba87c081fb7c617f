"""The texts that attention is looked at in: given, of a file, or of a task."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Optional

import gin
import seqio
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import utils
from t5.models import mesh_transformer

from synth_mtf import tasks
from synth_mtf.attention.weights import Examples, sides
from synth_mtf.checkpoints import vocabulary as vocabularies
from synth_mtf.errors import UserError
from synth_mtf.host import errors

_FEATURES = {'encoder': 'inputs', 'decoder': 'targets'}
START = '<s>'  # what a decoder reads first
_BYTES = 'ByteVocabulary'
_SETTING = 'synth_mtf.tasks.settings.vocabulary'

# A text for each side, or those that there are.
Texts = Mapping[str, Sequence[str]]


def choose_vocabulary(given: Optional[str], model_dir: str) -> None:
  """Settles which vocabulary the tasks have.

  Args:
    given: as in `--vocabulary`; None for the one that the model was trained
      with, where its folder knows and nothing else is set.
    model_dir: of the model.
  """
  if given is None and tasks.settings().vocabulary is None:
    name = vocabularies.recorded_name(model_dir)
    if name == _BYTES:
      given = tasks.data_settings.BYTES
    elif name and '://' not in name and os.path.isfile(name):
      given = name
  if given is not None:
    with gin.unlock_config():
      gin.bind_parameter(_SETTING, given)


def vocabulary() -> Mapping[str, seqio.Vocabulary]:
  """The vocabulary of each feature, of the run that gin holds."""
  found = gin.get_bindings(utils.run).get('vocabulary')
  if found is None:  # T5's main binds it, which an operative config leaves out
    with errors.explained():
      found = mesh_transformer.get_vocabulary()
  return {
    'inputs': utils.inputs_vocabulary(found),
    'targets': utils.targets_vocabulary(found),
  }


def of_texts(texts: Texts) -> Examples:
  """Tokenizes texts, each of which ends in EOS.

  Args:
    texts: by `inputs` and `targets`. Without targets, a model of encoder and
      decoder is shown inputs alone. A model of one side takes either.

  Raises:
    UserError: there is none, one is empty or too long, or they do not pair.
  """
  by_side = _by_side(texts)
  counts = {len(of_side) for of_side in by_side.values()}
  if len(counts) > 1:
    raise UserError(
      f'{len(texts["inputs"])} inputs and {len(texts["targets"])} targets: '
      'expected a target for each input, or none at all'
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


def of_file(path: str) -> Examples:
  """Reads an example a line: an input, and after a tab its target if any.

  Raises:
    UserError: it is missing, empty or not UTF-8, or has a text that does not
      fit.
  """
  if not tf.io.gfile.exists(path) or tf.io.gfile.isdir(path):
    raise UserError(
      f'there is no file {path}; expected a text with one example a line'
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
    raise UserError(f'{path} is empty; expected one example a line')
  first, *_ = rows.values()
  for number, row in rows.items():
    if not len(first) == len(row) <= 2:
      raise UserError(
        f'{path}: line {number} has {len(row)} columns; expected an input, or '
        'an input, a tab and its target, in all lines alike'
      )
  columns = dict(zip(('inputs', 'targets'), map(list, zip(*rows.values()))))
  return of_texts(columns)


def of_task(name: str, split: str, count: int) -> Examples:
  """Draws the first examples of a task, as a model gets them.

  Args:
    name: of a task or mixture.
    split: of its examples.
    count: how many.

  Raises:
    UserError: there is no such task, split or file.
  """
  tasks.check([name], [split])
  features = [_FEATURES[side] for side in sides()]
  lengths = _lengths() or dict.fromkeys(features, 512)
  rows = _first_rows(tasks.get(name), lengths, split, count)
  if not rows:
    raise UserError(f'{name} has no examples in its split {split!r}')
  features = [f for f in features if f in rows[0]]
  known = vocabulary()
  by_side = {side: f for side, f in _FEATURES.items() if f in features}
  ids = {
    side: [[int(i) for i in row[feature]] for row in rows]
    for side, feature in by_side.items()
  }
  texts = {
    side: [_text(row, feature, known[feature]) for row in rows]
    for side, feature in by_side.items()
  }
  return _examples(ids, texts, known)


def _first_rows(
  task: Any, lengths: Mapping[str, int], split: str, count: int
) -> list[Mapping[str, Any]]:
  """What a model would get, before it is packed or padded."""
  found: list[Mapping[str, Any]] = []
  with tf.Graph().as_default(), tf.Session() as session:
    dataset = task.get_dataset(lengths, split, shuffle=False, seed=0)
    row = tf.data.make_one_shot_iterator(dataset.take(count)).get_next()
    while len(found) < count:
      try:
        found.append(session.run(row))
      except tf.errors.OutOfRangeError:
        break
  return found


def _text(row: Mapping[str, Any], feature: str, known: seqio.Vocabulary) -> str:
  before = row.get(f'{feature}_pretokenized')
  if isinstance(before, bytes):
    return before.decode('utf-8', 'replace')
  return known.decode([int(i) for i in row[feature]])


def _by_side(texts: Texts) -> dict[str, Sequence[str]]:
  there = {name: found for name, found in texts.items() if found}
  if not there:
    raise UserError('no text is given')
  wanted = sides()
  if len(wanted) == 1:
    if len(there) > 1:
      raise UserError(
        f'this model has a {wanted[0]} alone: give texts of one kind'
      )
    return {wanted[0]: next(iter(there.values()))}
  if 'inputs' not in there:
    raise UserError(
      'this model has an encoder: give a text for it with each target'
    )
  return {side: there[f] for side, f in _FEATURES.items() if f in there}


def _examples(
  ids: Mapping[str, list[list[int]]],
  texts: Mapping[str, Sequence[str]],
  known: Mapping[str, seqio.Vocabulary],
) -> Examples:
  _check_lengths(ids)
  tokens = {
    side: [_pieces(row, known[_FEATURES[side]]) for row in rows]
    for side, rows in ids.items()
  }
  if 'decoder' in tokens:
    tokens['decoder'] = [[START, *row[:-1]] for row in tokens['decoder']]
  return Examples(ids, tokens, texts)


def _check_lengths(ids: Mapping[str, list[list[int]]]) -> None:
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


def _lengths() -> dict[str, int]:
  """The longest rows of the run; empty where it does not say."""
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
