"""The vocabulary as a setting, looked up when it is used."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Sequence
from typing import Any

import seqio
import t5.data
import tensorflow.compat.v2 as tf
from typing_extensions import override

from synth_mtf.errors import UserError
from synth_mtf.tasks import data_settings

# T5's number of sentinels: span corruption marks up to this many spans.
EXTRA_IDS = t5.data.DEFAULT_EXTRA_IDS


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

  @property
  @override
  def bos_id(self) -> int | None:
    return self.resolved.bos_id

  @property
  @override
  def eos_id(self) -> int | None:
    return self.resolved.eos_id

  @property
  @override
  def unk_id(self) -> int | None:
    return self.resolved.unk_id

  @property
  @override
  def vocab_size(self) -> int:
    return self.resolved.vocab_size

  # seqio gives these private names to what it has a vocabulary implement.

  @property
  @override
  def _base_vocab_size(self) -> int:
    return self.resolved._base_vocab_size  # noqa: SLF001

  @override
  def _encode(self, s: str) -> Sequence[int]:
    return self.resolved._encode(s)  # noqa: SLF001

  @override
  def _decode(self, ids: Iterable[int]) -> str:
    return self.resolved._decode(ids)  # noqa: SLF001

  @override
  def _encode_tf(self, s: tf.Tensor) -> tf.Tensor:
    return self.resolved._encode_tf(s)  # noqa: SLF001

  @override
  def _decode_tf(self, ids: tf.Tensor) -> tf.Tensor:
    return self.resolved._decode_tf(ids)  # noqa: SLF001

  def __getattr__(self, name: str) -> Any:
    # For what only some vocabularies have, such as `tf_tokenizer`, `sp_model`.
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
