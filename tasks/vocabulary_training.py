"""Trains a SentencePiece vocabulary on a user's own text."""

import json
import pathlib
import subprocess
import sys
from collections.abc import Iterable

from synth_mtf import atomic
from synth_mtf.errors import UserError

# With T5's 100 sentinels this makes 2,048, a multiple of 128, to which the host
# pads. The softmax is most of a tiny model's work, which a larger vocabulary
# would double.
PIECES = 1948
# More text changes little and takes much longer.
MOST_CHARACTERS = 10_000_000

# T5's ids: 0 padding, 1 end of sequence, 2 unknown, no begin of sequence.
_OPTIONS = {
  'model_type': 'unigram',
  'hard_vocab_limit': False,
  'pad_id': 0,
  'eos_id': 1,
  'unk_id': 2,
  'bos_id': -1,
  'max_sentence_length': 16_384,
  'num_threads': 2,  # fixed, because it changes the order of the sums
  'minloglevel': 1,
}
# Run in a process of its own: in one that has imported TensorFlow,
# SentencePiece's trainer ends in a segmentation fault (both carry a copy of
# protobuf). Text and model are passed without file names, because the trainer
# would write these into the model.
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


def train(
  texts: Iterable[str], model: pathlib.Path, pieces: int = PIECES
) -> None:
  """Trains a unigram vocabulary; the same texts give the same file.

  Args:
    texts: each of one line or several; what exceeds `MOST_CHARACTERS` is not
      used.
    model: the `.model` file to write.
    pieces: its size, without T5's sentinels; fewer if the text has fewer.

  Raises:
    UserError: the trainer refuses the text.
  """
  options = {**_OPTIONS, 'vocab_size': pieces}
  with atomic.replacing(model) as partial:
    trainer = subprocess.Popen(
      [sys.executable, '-c', _TRAINER, str(partial), json.dumps(options)],
      stdin=subprocess.PIPE,
      text=True,
      encoding='utf-8',
    )
    assert trainer.stdin is not None
    try:
      left = MOST_CHARACTERS
      for text in texts:
        trainer.stdin.write(text + '\n')
        left -= len(text)
        if left < 0:
          break
      trainer.stdin.close()
    except BrokenPipeError:
      pass  # the exit status says that it failed
    if trainer.wait() != 0:
      raise UserError(
        f'no vocabulary of {pieces:,} pieces can be trained on this text; the '
        'log says why. More text in corpus/ helps, and so does an existing '
        'vocabulary: --vocabulary <file>.model, or --vocabulary bytes.'
      )
