"""The vocabulary of all tasks, a setting, and training one on a user's text."""

from __future__ import annotations

import functools
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

import seqio
import t5.data

from synth_mtf import atomic
from synth_mtf.errors import UserError
from synth_mtf.tasks import data_settings

# T5's number of sentinels: span corruption marks up to this many spans.
EXTRA_IDS = t5.data.DEFAULT_EXTRA_IDS

# 2,048 with the sentinels, since the host pads to multiples of 128. A larger
# vocabulary would double a tiny model's work, most of which is the softmax.
PIECES = 1948
# More text changes little and takes much longer.
MOST_CHARACTERS = 10_000_000

# The ids of a vocabulary for T5.
_IDS = {'pad_id': 0, 'eos_id': 1, 'unk_id': 2, 'bos_id': -1}
_TRAINER_OPTIONS = {
  **_IDS,
  'model_type': 'unigram',
  'hard_vocab_limit': False,
  'max_sentence_length': 16_384,
  'num_threads': 2,  # fixed, because it changes the order of the sums
  'minloglevel': 1,
}
# Runs in a process of its own: where TensorFlow is imported, SentencePiece's
# trainer ends in a segmentation fault (both carry a copy of protobuf). Text and
# model pass without file names, which the trainer would write into the model.
_TRAINER = """
import io, json, sys, sentencepiece
lines = open(0, encoding='utf-8').read().splitlines()
model = io.BytesIO()
sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(lines), model_writer=model,
    **json.loads(sys.argv[2]))
with open(sys.argv[1], 'wb') as file:
  file.write(model.getvalue())
"""


def _of_resolved(name: str) -> property:
  return property(lambda self: getattr(self.resolved, name))


class SettingVocabulary(seqio.Vocabulary):
  """The vocabulary that `synth_mtf.tasks.settings.vocabulary` names.

  It is looked up at each use. All instances are equal, so that mixtures accept
  them.
  """

  def __init__(self) -> None:
    super().__init__(extra_ids=EXTRA_IDS)

  @property
  def resolved(self) -> seqio.Vocabulary:
    """The vocabulary that the setting in force names."""
    return load(data_settings.settings().vocabulary)

  # What seqio has a vocabulary implement, under seqio's own names.
  bos_id = _of_resolved('bos_id')
  eos_id = _of_resolved('eos_id')
  unk_id = _of_resolved('unk_id')
  vocab_size = _of_resolved('vocab_size')
  _base_vocab_size = _of_resolved('_base_vocab_size')
  _encode = _of_resolved('_encode')
  _decode = _of_resolved('_decode')
  _encode_tf = _of_resolved('_encode_tf')
  _decode_tf = _of_resolved('_decode_tf')

  def __getattr__(self, name: str) -> Any:
    # What only some vocabularies have, such as `tokenizer` and `sp_model`.
    if name.startswith('_'):
      raise AttributeError(name)
    return getattr(self.resolved, name)

  def __eq__(self, other: object) -> bool:
    return isinstance(other, SettingVocabulary) or self.resolved == other

  def __str__(self) -> str:
    return str(self.resolved)


@functools.lru_cache(maxsize=8)
def load(vocabulary: str | None) -> seqio.Vocabulary:
  """Returns the vocabulary that a value of the setting names."""
  if not vocabulary:
    return t5.data.get_default_vocabulary()
  if vocabulary == data_settings.BYTES:
    return seqio.ByteVocabulary(extra_ids=EXTRA_IDS)
  path = os.path.expanduser(vocabulary)
  loaded = seqio.SentencePieceVocabulary(path, EXTRA_IDS)
  try:
    loaded.load_model()
  except Exception as error:
    raise UserError(
      f'vocabulary {path!r} cannot be read as a SentencePiece model ({error}); '
      "expected the path of a .model file, 'bytes', or nothing for T5's own "
      'vocabulary.'
    ) from error
  for name in ('pad_id', 'eos_id'):
    found = getattr(loaded.tokenizer, name)()
    if found != _IDS[name]:
      raise UserError(
        f'vocabulary {path!r} has {name} {found}; T5 needs {_IDS[name]}. Train '
        'it with ' + ' '.join(f'--{key}={i}' for key, i in _IDS.items()) + '.'
      )
  return loaded


def train(
  texts: Iterable[str], model: pathlib.Path, pieces: int = PIECES
) -> None:
  """Trains a unigram vocabulary and writes the `.model` file.

  The same texts give the same file; they are used up to `MOST_CHARACTERS`.
  `pieces` is its size without T5's sentinels, less if the text has fewer.
  """
  lines, characters = [], 0
  for text in texts:
    lines.append(text + '\n')
    characters += len(text)
    if characters > MOST_CHARACTERS:
      break
  options = json.dumps({**_TRAINER_OPTIONS, 'vocab_size': pieces})
  with atomic.replacing(model) as partial:
    trainer = subprocess.run(
      [sys.executable, '-c', _TRAINER, str(partial), options],
      input=''.join(lines),
      text=True,
      encoding='utf-8',
    )
    if trainer.returncode:
      raise UserError(
        f'no vocabulary of {pieces:,} pieces can be trained on this text; the '
        'log says why. More text in corpus/ helps, and so does an existing '
        'vocabulary: --vocabulary <file>.model, or --vocabulary bytes.'
      )


VOCABULARY = SettingVocabulary()

# T5's features (t5.data.tasks.DEFAULT_OUTPUT_FEATURES), with this vocabulary.
OUTPUT_FEATURES = {
  'inputs': seqio.Feature(vocabulary=VOCABULARY, add_eos=True, required=False),
  'targets': seqio.Feature(vocabulary=VOCABULARY, add_eos=True),
}
