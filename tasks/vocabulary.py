"""The vocabulary as a setting, looked up when it is used."""

from __future__ import annotations

import functools
import os
from typing import Any

import seqio
import t5.data
import tensorflow.compat.v2 as tf

from synth_mtf.errors import UserError
from synth_mtf.tasks import data_settings

# T5's number of sentinels: span corruption marks up to this many spans.
EXTRA_IDS = t5.data.DEFAULT_EXTRA_IDS


def _of_resolved(name: str) -> property:
  return property(lambda self: getattr(self.resolved, name))


class SettingVocabulary(seqio.Vocabulary):
  """The vocabulary that `synth_mtf.tasks.settings.vocabulary` names.

  One instance serves all tasks, and all instances are equal, so that mixtures
  accept them; which vocabulary they encode with is looked up at each use.
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
    if isinstance(other, SettingVocabulary):
      return True
    return self.resolved == other

  def __str__(self) -> str:
    return str(self.resolved)


def load(vocabulary: str | None) -> seqio.Vocabulary:
  """Returns the vocabulary that a value of the setting names.

  Args:
    vocabulary: path of a SentencePiece `.model`, `'bytes'`, or None for T5's.

  Raises:
    UserError: no such file, or not a SentencePiece model.
  """
  if not vocabulary:
    return _t5_vocabulary()
  if vocabulary == data_settings.BYTES:
    return seqio.ByteVocabulary(extra_ids=EXTRA_IDS)
  return _sentencepiece(os.path.expanduser(vocabulary))


@functools.lru_cache(maxsize=1)
def _t5_vocabulary() -> seqio.Vocabulary:
  return t5.data.get_default_vocabulary()


@functools.lru_cache(maxsize=8)
def _sentencepiece(path: str) -> seqio.Vocabulary:
  expected = (
    "expected the path of a SentencePiece .model file, 'bytes', or nothing for "
    "T5's own vocabulary"
  )
  if not tf.io.gfile.exists(path):
    raise UserError(f'vocabulary {path!r} does not exist; {expected}.')
  vocabulary = seqio.SentencePieceVocabulary(path, EXTRA_IDS)
  try:
    vocabulary.load_model()
  except Exception as error:
    raise UserError(
      f'vocabulary {path!r} cannot be read as a SentencePiece model ({error}); '
      f'{expected}.'
    ) from error
  for name, expected_id in (('pad', 0), ('eos', 1)):
    found = getattr(vocabulary.tokenizer, f'{name}_id')()
    if found != expected_id:
      raise UserError(
        f'vocabulary {path!r} has {name}_id {found}; T5 needs {expected_id}. '
        'Train it with --pad_id=0 --eos_id=1 --unk_id=2 --bos_id=-1.'
      )
  return vocabulary


VOCABULARY = SettingVocabulary()

# T5's features (t5.data.tasks.DEFAULT_OUTPUT_FEATURES), with this vocabulary.
OUTPUT_FEATURES = {
  'inputs': seqio.Feature(vocabulary=VOCABULARY, add_eos=True, required=False),
  'targets': seqio.Feature(vocabulary=VOCABULARY, add_eos=True),
}
