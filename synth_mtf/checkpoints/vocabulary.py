"""Checks that a run uses the vocabulary that a checkpoint was trained with.

A vocabulary of another size shows in the shape of the embedding; one of the
same size does not. `vocabulary.json`, written beside the checkpoints when
training starts, records which it was.
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
_ADVICE = (
  'Set --vocabulary (SYNTH_MTF_VOCABULARY, '
  'synth_mtf.tasks.settings.vocabulary) to the one that the checkpoint was '
  'trained with; operative_config.gin beside it may name it.'
)


def check(vocabulary: Any, checkpoint: str) -> None:
  """Refuses (UserError) a checkpoint that was trained with another vocabulary.

  Args:
    vocabulary: a seqio vocabulary, or the pair of inputs and targets.
    checkpoint: its path, such as `model_dir/model.ckpt-1000`.
  """
  found = describe(vocabulary)
  expected = [-(-v['size'] // _DIVISOR) * _DIVISOR for v in found.values()]
  for name, rows in Checkpoint(checkpoint).embeddings.items():
    if rows not in expected:
      raise UserError(
        f'{name} of {checkpoint} has {rows} rows; the vocabulary '
        f'{_shown(found["inputs"])} needs {expected[0]}, the next multiple of '
        f'{_DIVISOR}. {_ADVICE}'
      )
  folder = os.path.dirname(checkpoint)
  for side, known in _read(folder).items():
    if known['sha256'] != found[side]['sha256']:
      raise UserError(
        f'{checkpoint} was trained with the vocabulary {_shown(known)}, '
        f'according to {os.path.join(folder, FILE)}; this run has '
        f'{_shown(found[side])}, which has other pieces. {_ADVICE}'
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
  """Returns name, size and digest of the vocabularies of inputs and targets."""
  return {
    'inputs': _description(utils.inputs_vocabulary(vocabulary)),
    'targets': _description(utils.targets_vocabulary(vocabulary)),
  }


def _description(vocabulary: seqio.Vocabulary) -> dict[str, Any]:
  vocabulary = getattr(vocabulary, 'resolved', vocabulary)
  kind = type(vocabulary).__name__
  return {
    'name': getattr(vocabulary, 'sentencepiece_model_file', kind),
    'size': vocabulary.vocab_size,
    'sha256': hashlib.sha256(_content(vocabulary)).hexdigest(),
  }


def _content(vocabulary: seqio.Vocabulary) -> bytes:
  """What decides the ids of a text, but not how the model was trained."""
  if not isinstance(vocabulary, seqio.SentencePieceVocabulary):
    return f'{type(vocabulary).__name__} {vocabulary.vocab_size}'.encode()
  model = sentencepiece_model_pb2.ModelProto.FromString(vocabulary.sp_model)
  model.ClearField('trainer_spec')  # names files and threads
  return model.SerializeToString(deterministic=True)


def _read(folder: str) -> Mapping[str, Any]:
  return records.read(
    folder,
    FILE,
    'the vocabulary',
    lambda known: {
      side: {key: known[side][key] for key in ('name', 'size', 'sha256')}
      for side in ('inputs', 'targets')
    },
  )


def _shown(description: Mapping[str, Any]) -> str:
  return f'{description["name"]!r} of {description["size"]} pieces'
