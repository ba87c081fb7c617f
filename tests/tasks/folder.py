"""A folder of official files for tests of how files are read."""

import pathlib
from typing import Any

from synth_mtf import tasks
from tests.tasks.rows import run

COLA = 'synth_glue_cola_v002'
TEXT = 'synth_text_span_corruption'


def write(path: pathlib.Path, data: bytes) -> pathlib.Path:
  """Writes a file, and the folders above it."""
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_bytes(data)
  return path


def train_file(name: str) -> str:
  """The relative path of a task's training data."""
  return tasks.get(name).source.split_files['train'].patterns[0]


def write_cola(
  data_dir: pathlib.Path, rows: int, start: int = 0
) -> pathlib.Path:
  """Writes CoLA's training file, a number in each sentence."""
  lines = (f'x\t{i % 2}\t\tSentence {start + i}.\n' for i in range(rows))
  return write(data_dir / 'glue/CoLA/train.tsv', ''.join(lines).encode())


def sentences(**kwargs: Any) -> list[bytes]:
  """The sentences of CoLA's training set."""
  source = tasks.get(COLA).source
  rows = run(lambda: source.get_dataset('train', **kwargs))
  return [row['sentence'] for row in rows]


def texts(split: str = 'train', **kwargs: Any) -> list[bytes]:
  """The texts below `corpus/`."""
  source = tasks.get(TEXT).source
  rows = run(lambda: source.get_dataset(split, **kwargs))
  return [row['text'] for row in rows]
