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

from synth_mtf.checkpoints import folder as folders
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

  The vocabulary is a seqio vocabulary, or the pair of inputs and targets.
  """
  found = _describe(vocabulary)
  expected = [-(-v['size'] // _DIVISOR) * _DIVISOR for v in found.values()]
  for name, rows in Checkpoint(checkpoint).embeddings.items():
    if rows not in expected:
      raise UserError(
        f'{name} of {checkpoint} has {rows} rows; the vocabulary '
        f'{_shown(found["inputs"])} needs {expected[0]}, the next multiple of '
        f'{_DIVISOR}. {_ADVICE}'
      )
  folder = os.path.dirname(checkpoint)
  for side, known in (folders.read_record(folder, FILE) or {}).items():
    if known['sha256'] != found[side]['sha256']:
      raise UserError(
        f'{checkpoint} was trained with the vocabulary {_shown(known)}, '
        f'according to {os.path.join(folder, FILE)}; this run has '
        f'{_shown(found[side])}, which has other pieces. {_ADVICE}'
      )


def record(vocabulary: Any, model_dir: str) -> None:
  """Writes `vocabulary.json` into a model folder that has none yet."""
  folders.write_record(model_dir, FILE, _describe(vocabulary))


def recorded_name(model_dir: str) -> str | None:
  """Returns the name of the vocabulary of a model's inputs, if it is known.

  It is the path of a SentencePiece model, or the name of a class.
  """
  known = folders.read_record(model_dir, FILE)
  return known['inputs']['name'] if known else None


def _describe(pair: Any) -> dict[str, dict[str, Any]]:
  """Name, size and digest of the vocabularies of inputs and targets."""
  found = {}
  for side, of_side in (
    ('inputs', utils.inputs_vocabulary),
    ('targets', utils.targets_vocabulary),
  ):
    vocabulary = of_side(pair)
    vocabulary = getattr(vocabulary, 'resolved', vocabulary)
    name, size = type(vocabulary).__name__, vocabulary.vocab_size
    content = f'{name} {size}'.encode()
    if isinstance(vocabulary, seqio.SentencePieceVocabulary):
      name = vocabulary.sentencepiece_model_file
      model = sentencepiece_model_pb2.ModelProto.FromString(vocabulary.sp_model)
      model.ClearField('trainer_spec')  # names files and threads
      content = model.SerializeToString(deterministic=True)
    sha256 = hashlib.sha256(content).hexdigest()
    found[side] = {'name': name, 'size': size, 'sha256': sha256}
  return found


def _shown(description: Mapping[str, Any]) -> str:
  return f'{description["name"]!r} of {description["size"]} pieces'
