"""A run's vocabulary as a tokenizer of Hugging Face, with the same ids.

SentencePiece works on whole texts: it normalizes a text, puts a space in front,
and finds pieces, which may have special meanings, everywhere in the result. The
tokenizer here does the same, without splitting a text first.
"""

import contextlib
import itertools
import math
from collections.abc import Iterator
from typing import Any

import seqio
from sentencepiece import sentencepiece_model_pb2

from synth_mtf.errors import UserError

_SPACE = '▁'  # what SentencePiece writes for a space
# Stand-ins for characters, of which no text has a piece.
_STAND_INS = '＜﹤‹⟨⟪《〈' + ''.join(map(chr, range(0xE000, 0xE100)))
_Piece = sentencepiece_model_pb2.ModelProto.SentencePiece
_Trainer = sentencepiece_model_pb2.TrainerSpec

# Both tokenizers must agree on these.
_TEXTS = (
  '',
  'cola sentence: The book was read by.',
  '  two  spaces,\ttab\nand lines ',
  'Größe “naïve” ﬁ Ａ１ 漢字 🙂 x\u200by\u00a0z',
  '<extra_id_0> spans <extra_id_99>x<extra_id_1>',
  'the </s> end<pad><unk> <s>',
)


def convert(vocabulary: Any, length: int) -> Any:
  """Returns a tokenizer with a vocabulary's ids.

  Args:
    vocabulary: of the run.
    length: the number of tokens to which `truncation=True` cuts.

  Raises:
    UserError: if the ids would be others.
  """
  with _explained():
    converted = _converted(vocabulary, length)
    for text in (*_TEXTS, *_own_texts(vocabulary)):
      if converted(text)['input_ids'] != [*vocabulary.encode(text), 1]:
        raise UserError(
          'the vocabulary cannot be exported: transformers would make other '
          f'ids of {text!r}'
        )
  return converted


@contextlib.contextmanager
def _explained() -> Iterator[None]:
  """Explains what `tokenizers` refuses; a panic of Rust is no `Exception`."""
  try:
    yield
  except UserError:
    raise
  except BaseException as error:
    is_panic = type(error).__name__ == 'PanicException'
    if not is_panic and not isinstance(error, Exception):
      raise
    raise UserError(
      'the vocabulary cannot be exported: the library `tokenizers` does not '
      f'take it ({type(error).__name__}: {error}). Is the file damaged?'
    ) from error


def _converted(vocabulary: Any, length: int) -> Any:
  """Returns a tokenizer with a vocabulary's ids, if all is well."""
  from transformers import PreTrainedTokenizerFast

  if isinstance(vocabulary, seqio.ByteVocabulary):
    tokenizer = _of_bytes()
    special = {'unk_token': tokenizer.id_to_token(2)}
  else:
    tokenizer = _of_pieces(vocabulary)
    special = {}  # what SentencePiece writes for <unk> is part of the text
  return PreTrainedTokenizerFast(
    tokenizer_object=tokenizer,
    pad_token=tokenizer.id_to_token(0),
    eos_token=tokenizer.id_to_token(1),
    **special,
    split_special_tokens=True,  # `</s>` in a text is five characters
    clean_up_tokenization_spaces=False,
    model_input_names=['input_ids', 'attention_mask'],
    model_max_length=length,
  )


def _own_texts(vocabulary: Any) -> list[str]:
  """Returns texts with the pieces that a vocabulary defines as such."""
  if isinstance(vocabulary, seqio.ByteVocabulary):
    return []
  model = sentencepiece_model_pb2.ModelProto.FromString(vocabulary.sp_model)
  texts = []
  for piece in model.pieces:
    if piece.type not in (_Piece.NORMAL, _Piece.BYTE):
      symbol = piece.piece.replace(_SPACE, ' ')
      texts += [f'a{symbol}b', f'a {symbol} {symbol} b', symbol]
  return texts


def _of_bytes() -> Any:
  """Returns a tokenizer with the ids of `seqio.ByteVocabulary`."""
  from tokenizers import Tokenizer, decoders, models, pre_tokenizers

  vocab = {'<pad>': 0, '</s>': 1, '<unk>': 2}
  for byte, character in _byte_characters().items():
    vocab[character] = len(vocab)
    assert vocab[character] == byte + 3
  tokenizer = Tokenizer(models.BPE(vocab, [], unk_token='<unk>'))
  tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(
    add_prefix_space=False, use_regex=False
  )
  tokenizer.decoder = decoders.Sequence(
    [
      decoders.ByteLevel(),
      decoders.Replace('\ufffd', ''),  # half a character
    ]
  )
  tokenizer.post_processor = _with_end(tokenizer)
  return tokenizer


def _byte_characters() -> dict[int, str]:
  """Returns the character that `tokenizers` uses for each byte, in order."""
  printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
  characters = {byte: chr(byte) for byte in printable}
  others = (byte for byte in range(256) if byte not in characters)
  for byte, code in zip(others, itertools.count(256), strict=False):
    characters[byte] = chr(code)
  return dict(sorted(characters.items()))


def _with_end(tokenizer: Any) -> Any:
  """Returns the step that ends each text with the end token."""
  from tokenizers import processors

  end = tokenizer.id_to_token(1)
  return processors.TemplateProcessing(
    single=['$A', end],
    pair=['$A', end, '$B', end],
    special_tokens=[(end, 1)],
  )


def _of_pieces(vocabulary: Any) -> Any:
  """Returns a tokenizer with the ids of `seqio.SentencePieceVocabulary`."""
  from tokenizers import AddedToken, Tokenizer, decoders

  model = sentencepiece_model_pb2.ModelProto.FromString(vocabulary.sp_model)
  _check_scores(model)
  letters = set(''.join(piece.piece for piece in model.pieces))
  less, other = [c for c in _STAND_INS if c not in letters][:2]
  # No text may contain a special name, such as `</s>`. In texts and pieces, `<`
  # becomes another sign; other special names get a space, which becomes `▁` in
  # texts.
  pieces = []
  sentinels = []
  for piece in model.pieces:
    name = piece.piece
    if name.startswith(f'{_SPACE}<extra_id_'):
      name = name.removeprefix(_SPACE)
      sentinels.append(name)
    elif piece.type in (_Piece.NORMAL, _Piece.USER_DEFINED):
      name = name.replace('<', less)
    elif '<' not in name:
      name = f' {name}'
    pieces.append((name, piece))
  tokenizer = Tokenizer(_model(pieces, model))
  tokenizer.normalizer = _normalizer(model.normalizer_spec, less, other)
  tokenizer.add_tokens(
    [AddedToken(name, normalized=True, special=False) for name in sentinels]
  )
  hidden = [name for name, piece in pieces[2:] if piece.type == _Piece.CONTROL]
  # In front of a text, SentencePiece drops the space that it added, or all.
  spaces = 1000 if model.normalizer_spec.remove_extra_whitespaces else 1
  tokenizer.decoder = decoders.Sequence(
    [
      *(decoders.Replace(name, '') for name in hidden),
      decoders.Replace('<extra_id_', f'{_SPACE}<extra_id_'),
      decoders.ByteFallback(),
      decoders.Replace(_SPACE, ' '),
      decoders.Fuse(),
      decoders.Strip(' ', spaces, 0),
      decoders.Replace(pieces[2][0], model.trainer_spec.unk_surface),
      decoders.Replace(less, '<'),
    ]
  )
  tokenizer.post_processor = _with_end(tokenizer)
  return tokenizer


def _check_scores(model: Any) -> None:
  for number, piece in enumerate(model.pieces):
    if not math.isfinite(piece.score):
      raise UserError(
        f'the vocabulary cannot be exported: piece {number}, {piece.piece!r}, '
        f'has the score {piece.score}; expected a finite number'
      )


def _model(pieces: list[tuple[str, Any]], model: Any) -> Any:
  """Returns SentencePiece's algorithm with its pieces."""
  from tokenizers import models

  kind = model.trainer_spec.model_type
  ids = {name: index for index, (name, _) in enumerate(pieces)}
  if kind == _Trainer.BPE:
    return models.BPE(
      ids,
      _merges(pieces, ids),
      unk_token=pieces[2][0],
      fuse_unk=True,
      byte_fallback=model.trainer_spec.byte_fallback,
    )
  if kind != _Trainer.UNIGRAM:
    name = _Trainer.ModelType.Name(kind)
    raise UserError(
      f'the vocabulary cannot be exported: its model is {name}, expected '
      'UNIGRAM or BPE'
    )
  highest = max(p.score for _, p in pieces if p.type == _Piece.NORMAL)
  return models.Unigram(
    [(name, _score(name, piece, highest)) for name, piece in pieces],
    unk_id=2,
    byte_fallback=model.trainer_spec.byte_fallback,
  )


def _score(name: str, piece: Any, highest: float) -> float:
  """Returns a piece's score; those that users define come first."""
  if piece.type == _Piece.USER_DEFINED and not name.startswith('<extra_id_'):
    return len(piece.piece.encode()) * highest - 0.1
  return piece.score


def _merges(
  pieces: list[tuple[str, Any]], ids: dict[str, int]
) -> list[tuple[str, str]]:
  """Returns the pairs of pieces that make a piece, the best piece first."""
  normal = {name for name, piece in pieces if piece.type == _Piece.NORMAL}
  merges = []
  for name in sorted(normal, key=lambda name: -pieces[ids[name]][1].score):
    for end in range(1, len(name)):
      if name[:end] in normal and name[end:] in normal:
        merges.append((name[:end], name[end:]))
  return merges


def _normalizer(spec: Any, less: str, other: str) -> Any:
  """Returns the steps of SentencePiece's normalizer.

  Args:
    spec: the model's `normalizer_spec`.
    less: the stand-in for `<`.
    other: an unknown character.
  """
  from tokenizers import Regex, normalizers

  steps: list[Any] = []
  if spec.precompiled_charsmap:
    # Precompiled composes short sequences of combining characters alone.
    steps.append(normalizers.NFC())
    steps.append(normalizers.Precompiled(spec.precompiled_charsmap))
  steps.append(normalizers.Replace(less, other))
  steps.append(normalizers.Replace('<', less))
  if spec.remove_extra_whitespaces:
    steps.append(normalizers.Replace(Regex(r'\A +'), ''))
    steps.append(normalizers.Replace(Regex(f'[ {_SPACE}]+\\z'), ''))
    steps.append(normalizers.Replace(Regex(' +'), ' '))
  if spec.add_dummy_prefix:
    steps.append(normalizers.Prepend(_SPACE))
  if spec.escape_whitespaces:
    steps.append(normalizers.Replace(' ', _SPACE))
  return normalizers.Sequence(steps)
