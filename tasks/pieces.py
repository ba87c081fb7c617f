"""Checks a SentencePiece model before the library reads it.

The library crashes on some broken models, and span corruption takes the last
pieces for sentinels, whatever they are.
"""

import re
from typing import Any

import numpy as np
from sentencepiece import sentencepiece_model_pb2

Model = sentencepiece_model_pb2.ModelProto

_SENTINEL = re.compile('▁?<extra_id_([0-9]+)>')
_MOST_LETTERS = 1000  # of a piece; the library recurses once per letter


def check(model: Any) -> None:
  """Raises a ValueError if the library would crash on a model."""
  for number, piece in enumerate(model.pieces):
    letters = len(piece.piece)
    if letters > _MOST_LETTERS:
      raise ValueError(
        f'piece {number} has {letters:,} letters, expected at most '
        f'{_MOST_LETTERS:,}'
      )
    if '\0' in piece.piece:
      raise ValueError(f'piece {number} has a NUL: {piece.piece!r}')
  for name in ('normalizer_spec', 'denormalizer_spec'):
    if not _is_whole(getattr(model, name).precompiled_charsmap):
      raise ValueError(f'{name}.precompiled_charsmap is damaged')


def _is_whole(charsmap: bytes) -> bool:
  """Whether a table of replacements has no reference to outside of it.

  It has the size of a trie, the trie, and the texts, each with a NUL at its
  end. The trie is Darts-clone's: in each unit, the offset to its children, of
  which there may be 256, and, in leaves, the place of a text.
  """
  if not charsmap:
    return True
  size = int.from_bytes(charsmap[:4], 'little')
  trie, texts = charsmap[4 : 4 + size], charsmap[4 + size :]
  if len(trie) != size or not size or size % 4 or not texts.endswith(b'\0'):
    return False
  units = np.frombuffer(trie, '<u4').astype(np.int64)
  is_leaf = units >> 31 == 1
  offsets = (units >> 10) << ((units & (1 << 9)) >> 6)
  children = np.arange(len(units)) ^ offsets
  inner = children[~is_leaf]
  if np.any((inner | 255) >= len(units)):
    return False
  has_text = (units >> 8) & 1 == 1
  places = units[children[~is_leaf & has_text]] & (2**31 - 1)
  return bool(np.all(places < len(texts)))


def num_sentinels(model: Any) -> int:
  """Returns how many sentinels a model has as its last pieces.

  Raises:
    ValueError: if it has some elsewhere, or not as T5 numbers them.
  """
  numbers = []
  for place, piece in enumerate(model.pieces):
    sentinel = _SENTINEL.fullmatch(piece.piece)
    if sentinel:
      numbers.append(int(sentinel[1]))
    elif numbers:
      raise ValueError(
        f'it has its own sentinels, and {piece.piece!r} (piece {place}) '
        'after them; T5 needs them as the last pieces'
      )
  highest = len(numbers) - 1
  if numbers != [*range(highest, -1, -1)]:
    raise ValueError(
      f'its {len(numbers)} sentinels begin with <extra_id_{numbers[0]}> and '
      f'end with <extra_id_{numbers[-1]}>; T5 needs <extra_id_{highest}> to '
      '<extra_id_0>, in this order'
    )
  return len(numbers)
