"""The vocabulary that all tasks share, and training one on a user's text."""

import collections
import functools
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

import sentencepiece
import seqio
import t5.data

from synth_mtf.errors import UserError
from synth_mtf.storage import atomic, filesystem
from synth_mtf.tasks import data_settings, pieces

# T5's number of sentinels: span corruption can mark this many spans.
EXTRA_IDS = t5.data.DEFAULT_EXTRA_IDS

# 2,048 with the sentinels, since the host pads to multiples of 128. A larger
# vocabulary would double the cost of a tiny model, mostly the softmax.
PIECES = 1948
# More text takes much longer and hardly changes the vocabulary.
MOST_CHARACTERS = 10_000_000

# The special ids that T5 expects.
_IDS = {'pad_id': 0, 'eos_id': 1, 'unk_id': 2, 'bos_id': -1}
_MOST_MODEL_BYTES = 64 << 20  # a vocabulary of 250,000 pieces has 4
_MOST_LINE_BYTES = 16_384
# The trainer's own mark of what it does not know. It would leave out a whole
# line that has one.
_UNKNOWN = '\u2585'
_MOST_SHOWN = 20  # of the characters that a vocabulary does not know
# A character has four bytes at most.
_SHORT_PART = re.compile(r'.{1,4096}(?=\s|$)|.{1,4096}')
# SentencePiece's; the first is T5's.
MODEL_TYPES = ('unigram', 'bpe')
_TRAINER_OPTIONS = {
  **_IDS,
  'hard_vocab_limit': False,
  'max_sentence_length': _MOST_LINE_BYTES,
  'num_threads': 2,  # fixed, because it affects the order of summation
  'minloglevel': 1,
}
# Runs in a separate process, because SentencePiece's trainer segfaults if
# TensorFlow is imported (both bundle protobuf). Text and model are passed
# without file names, which the trainer would store in the model.
_TRAINER = """
import io, json, sys, sentencepiece
lines = open(0, encoding='utf-8').read().splitlines()
model = io.BytesIO()
sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(lines), model_writer=model,
    **json.loads(sys.argv[1]))
sys.stdout.buffer.write(model.getvalue())
"""


class SettingVocabulary:
  """Delegates to the vocabulary that `tasks.settings.vocabulary` names.

  The setting is read at each use. All instances compare equal, because mixtures
  require their tasks to have equal vocabularies.
  """

  @property
  def resolved(self) -> seqio.Vocabulary:
    """The vocabulary that the current setting names."""
    return load(data_settings.settings().vocabulary)

  def __getattr__(self, name: str) -> Any:
    if name.startswith('__'):  # Python asks for such names when it copies
      raise AttributeError(name)
    return getattr(self.resolved, name)

  def __eq__(self, other: object) -> bool:
    return isinstance(other, SettingVocabulary) or self.resolved == other


@functools.lru_cache(maxsize=8)
def load(vocabulary: str | None) -> seqio.Vocabulary:
  """Loads the vocabulary that a value of the setting names."""
  if not vocabulary:
    return t5.data.get_default_vocabulary()
  if vocabulary == data_settings.BYTES:
    return seqio.ByteVocabulary(extra_ids=EXTRA_IDS)
  path = os.path.expanduser(vocabulary)
  try:
    model = _read(path)
    pieces.check(model)
    loaded = seqio.SentencePieceVocabulary(path, _missing_sentinels(model))
    loaded.load_model()
  except filesystem.Unreadable as error:
    raise _not_a_model(path, error) from error
  except UserError as error:
    raise UserError(f'vocabulary {path!r}: {error}') from error
  except Exception as error:
    raise _not_a_model(path, error) from error
  for name in ('pad_id', 'eos_id'):
    number = getattr(loaded.tokenizer, name)()
    if number != _IDS[name]:
      flags = ' '.join(f'--{key}={i}' for key, i in _IDS.items())
      raise UserError(
        f'vocabulary {path!r} has {name} {number}; T5 needs {_IDS[name]}. '
        f'Train it with {flags}.'
      )
  return loaded


def _not_a_model(path: str, error: Exception) -> UserError:
  return UserError(
    f'vocabulary {path!r} cannot be read as a SentencePiece model ({error}); '
    "expected the path of a .model file, 'bytes', or nothing for T5's own "
    'vocabulary.'
  )


def describe(vocabulary: Any) -> dict[str, Any]:
  """Returns the name, size and digest of a seqio vocabulary."""
  resolved = getattr(vocabulary, 'resolved', vocabulary)
  name, size = type(resolved).__name__, resolved.vocab_size
  content = f'{name} {size}'.encode()
  if isinstance(resolved, seqio.SentencePieceVocabulary):
    name = resolved.sentencepiece_model_file
    model = pieces.Model.FromString(resolved.sp_model)
    model.ClearField('trainer_spec')  # holds file names and thread counts
    content = model.SerializeToString(deterministic=True)
  sha256 = hashlib.sha256(content).hexdigest()
  return {'name': name, 'size': size, 'sha256': sha256}


def _read(path: str) -> Any:
  return pieces.Model.FromString(filesystem.read(path, _MOST_MODEL_BYTES))


def _missing_sentinels(model: Any) -> int:
  """Returns how many sentinels to add: none to a model that has its own.

  The vocabularies of mT5 and T5X have them inside.
  """
  try:
    own = pieces.num_sentinels(model)
  except ValueError as error:
    raise UserError(str(error)) from error
  if 0 < own < EXTRA_IDS:
    raise UserError(f'it has {own} sentinels; T5 needs {EXTRA_IDS}')
  return 0 if own else EXTRA_IDS


def train(
  texts: Iterable[str],
  model: pathlib.Path,
  size: int = PIECES,
  model_type: str = MODEL_TYPES[0],
) -> list[str]:
  """Trains a vocabulary of one of `MODEL_TYPES` and writes the `.model` file.

  Training is deterministic and reads up to `MOST_CHARACTERS` of the texts.
  `size` is that without T5's sentinels; short texts may yield fewer.

  Returns what of the texts the vocabulary does not cover, one sentence each.
  """
  lines: list[str] = []
  characters = 0
  notes: list[str] = []
  for text in texts:
    if characters > MOST_CHARACTERS:
      notes.append(
        f'It was trained on the first {characters:,} characters of the text.'
      )
      break
    lines += _parts(text)
    characters += len(text)
  if not any(map(str.strip, lines)):
    raise UserError(
      f'no vocabulary of {size:,} pieces can be trained: the text is empty'
    )
  options = json.dumps(
    {**_TRAINER_OPTIONS, 'vocab_size': size, 'model_type': model_type}
  )
  trainer = subprocess.run(
    [sys.executable, '-c', _TRAINER, options],
    input='\n'.join(lines).replace(_UNKNOWN, ' ').encode(),
    capture_output=True,
  )
  if trainer.returncode:
    if trainer.returncode < 0:  # it has no words for that
      reason = f'signal {-trainer.returncode} ended the trainer'
    else:
      reason = _reason(trainer.stderr)
    raise UserError(
      f'no vocabulary of {size:,} pieces can be trained on this text: '
      f'{reason}. Choose another size (synth-mtf vocabulary '
      '--size), or give an existing vocabulary: --vocabulary <file>.model, or '
      '--vocabulary bytes.'
    )
  with atomic.writing(model, 'wb') as stream:
    stream.write(trainer.stdout)
  return notes + _unknown_characters(trainer.stdout, lines)


def _reason(complaint: bytes) -> str:
  """Returns the last line of what the trainer complained of."""
  *_, reason = complaint.decode(errors='replace').strip().split('\n')
  too_small = re.search(r'smaller than required_chars\. \d+ vs (\d+)', reason)
  if too_small:
    return f'its characters alone need {int(too_small[1]):,}'
  return reason


def _unknown_characters(model: bytes, lines: Iterable[str]) -> list[str]:
  """Returns a sentence about the characters that a model does not know.

  The trainer leaves out the rarest, up to 0.05 % of the text.
  """
  pieces = sentencepiece.SentencePieceProcessor(model_proto=model)
  counts: collections.Counter[str] = collections.Counter()
  for line in lines:
    counts.update(line)
  unknown = {
    x: n for x, n in counts.items() if pieces.unk_id() in pieces.encode(x)
  }
  if not unknown:
    return []
  shown = sorted(unknown, key=lambda character: -unknown[character])
  more = ' ...' if len(shown) > _MOST_SHOWN else ''
  return [
    f'{len(unknown):,} of the {len(counts):,} different characters of the text '
    f'are not in it ({sum(unknown.values()):,} occurrences, which '
    f'become <unk>): {" ".join(shown[:_MOST_SHOWN])}{more}'
  ]


def _parts(text: str) -> list[str]:
  """Returns the lines of a text; the trainer would leave out very long ones.

  They are cut at spaces, or anywhere if there are none.
  """
  parts: list[str] = []
  for line in text.splitlines():
    if len(line.encode()) <= _MOST_LINE_BYTES:
      parts.append(line)
    else:
      parts += _SHORT_PART.findall(line)
  return parts


VOCABULARY = SettingVocabulary()

# T5's features (t5.data.tasks.DEFAULT_OUTPUT_FEATURES), with this vocabulary.
OUTPUT_FEATURES = {
  'inputs': seqio.Feature(vocabulary=VOCABULARY, add_eos=True, required=False),
  'targets': seqio.Feature(vocabulary=VOCABULARY, add_eos=True),
}
