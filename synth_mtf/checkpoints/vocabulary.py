"""The vocabulary travels with the checkpoint: any other is refused.

A vocabulary of another size shows in the shape of the embedding. One of the
same size does not: `vocabulary.json`, written beside the checkpoints when
training starts, says what they were trained with.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Any

import seqio
from mesh_tensorflow.transformer import utils
from sentencepiece import sentencepiece_model_pb2

from synth_mtf.checkpoints import records
from synth_mtf.checkpoints.files import Checkpoint
from synth_mtf.errors import UserError

FILE = 'vocabulary.json'
# Mesh-TensorFlow's Unitransformer rounds its vocabulary up to a multiple.
_DIVISOR = 128
_MEND = (
  'Set --vocabulary (SYNTH_MTF_VOCABULARY, '
  'synth_mtf.tasks.settings.vocabulary) to the one that the checkpoint was '
  'trained with; operative_config.gin beside it may name it.'
)


def check(vocabulary: Any, checkpoint: str) -> None:
  """Checks that a checkpoint was trained with the vocabulary of a run.

  Args:
    vocabulary: a seqio vocabulary, or the pair of inputs and targets.
    checkpoint: its path, such as `model_dir/model.ckpt-1000`.

  Raises:
    UserError: the embedding has rows for another number of pieces, or the
      folder's `vocabulary.json` names other pieces.
  """
  _check_sizes(vocabulary, checkpoint)
  folder = os.path.dirname(checkpoint)
  known, found = _read(folder), describe(vocabulary)
  for side in found:
    if known.get(side, found[side])['sha256'] != found[side]['sha256']:
      raise UserError(
        f'{checkpoint} was trained with the vocabulary {_shown(known[side])}; '
        f'this run has {_shown(found[side])}, whose pieces are others '
        f'({os.path.join(folder, FILE)} tells them apart). {_MEND}'
      )


def record(vocabulary: Any, model_dir: str) -> None:
  """Writes `vocabulary.json` into a model folder that has none yet."""
  records.write(model_dir, FILE, describe(vocabulary))


def recorded_name(model_dir: str) -> str | None:
  """Returns the name of the vocabulary of a model's inputs, if it is known.

  It is the path of a SentencePiece model, or the name of a class.
  """
  return _read(model_dir).get('inputs', {}).get('name')


def describe(vocabulary: Any) -> dict[str, dict[str, Any]]:
  """Returns name, size and digest of what inputs and targets are made of."""
  return {
    'inputs': _description(utils.inputs_vocabulary(vocabulary)),
    'targets': _description(utils.targets_vocabulary(vocabulary)),
  }


def _description(vocabulary: seqio.Vocabulary) -> dict[str, Any]:
  resolved = getattr(vocabulary, 'resolved', vocabulary)
  return {
    'name': _name(resolved),
    'size': resolved.vocab_size,
    'sha256': hashlib.sha256(_content(resolved)).hexdigest(),
  }


def _name(vocabulary: seqio.Vocabulary) -> str:
  kind = type(vocabulary).__name__
  return getattr(vocabulary, 'sentencepiece_model_file', kind)


def _content(vocabulary: seqio.Vocabulary) -> bytes:
  """Returns what decides the ids of a text, but not how the model was made."""
  if not isinstance(vocabulary, seqio.SentencePieceVocabulary):
    return f'{type(vocabulary).__name__} {vocabulary.vocab_size}'.encode()
  model = sentencepiece_model_pb2.ModelProto.FromString(vocabulary.sp_model)
  model.ClearField('trainer_spec')  # names files and threads
  return model.SerializeToString(deterministic=True)


def _check_sizes(vocabulary: Any, checkpoint: str) -> None:
  expected = {
    -(-side['size'] // _DIVISOR) * _DIVISOR: side
    for side in describe(vocabulary).values()
  }
  for name, found in Checkpoint(checkpoint).embeddings.items():
    if found not in expected:
      rows, side = next(iter(expected.items()))
      raise UserError(
        f'{name} of {checkpoint} has {found} rows; the vocabulary '
        f'{_shown(side)} makes {rows}, the next multiple of {_DIVISOR}. '
        f'{_MEND}'
      )


def _read(folder: str) -> Mapping[str, Any]:
  what = 'the vocabulary'
  known = records.read(folder, FILE, what)
  if known is None:
    return {}
  try:
    return {
      side: {key: known[side][key] for key in ('name', 'size', 'sha256')}
      for side in ('inputs', 'targets')
    }
  except (KeyError, TypeError) as error:
    path = os.path.join(folder, FILE)
    raise records.damaged(path, what, error) from error


def _shown(description: Mapping[str, Any]) -> str:
  return f'{description["name"]!r} of {description["size"]} pieces'
