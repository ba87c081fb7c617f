"""A small vocabulary of SentencePiece, as T5's is made."""

import pathlib
import subprocess
import sys

# SentencePiece's trainer needs a process without TensorFlow.
_TRAINER = """
import sys, sentencepiece
sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(open(0, encoding='utf-8').read().splitlines()),
    model_writer=open(sys.argv[1], 'wb'), vocab_size=int(sys.argv[2]),
    pad_id=0, eos_id=1, unk_id=2, bos_id=-1, hard_vocab_limit=False)
"""


def train(path: pathlib.Path, text: pathlib.Path, size: int = 100) -> None:
  """Writes a model of the pieces of a text.

  Args:
    path: of the model.
    text: a file.
    size: the most pieces.
  """
  subprocess.run(
    [sys.executable, '-c', _TRAINER, path, str(size)],
    input=text.read_text(encoding='utf-8'),
    text=True,
    check=True,
    capture_output=True,
  )
