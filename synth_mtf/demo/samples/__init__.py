"""Generated samples of GLUE, SuperGLUE and SQuAD in their official formats.

They stand in for the benchmarks where there is no copy of these: enough to see
every task load, train and be evaluated. A score on them says nothing about the
benchmark.

QNLI has more rows than the others, so that the mixture draws it often enough to
be learned in a few hundred steps: whether a sentence answers a question depends
on words of the one being those of the other, which takes products of tokens.
"""

import json
import pathlib
import random
from collections.abc import Callable, Iterable
from typing import TypeVar

from synth_mtf.demo.samples import glue, squad, super_glue

TRAIN_ROWS = 480
DEV_ROWS = 64
_MORE_ROWS = {'QNLI/train.tsv': 6_000}
_Row = TypeVar('_Row')
NOTICE = (
  'GENERATED SAMPLE. These files have the formats of GLUE, SuperGLUE and\n'
  'SQuAD v1.1 but none of their content: a seeded generator of synth_mtf made\n'
  'every sentence. Scores on them are not scores of the benchmarks.\n'
)


def write(folder: pathlib.Path, seed: int) -> None:
  """Writes the samples below `folder`, laid out as the official files are.

  Args:
    folder: a folder for `glue/`, `superglue/` and `squad/`, made if need be.
    seed: the same seed writes the same files.
  """
  for split, rows in ((glue.TRAIN, TRAIN_ROWS), (glue.DEV, DEV_ROWS)):
    for path, (header, row) in split.items():
      first = [header] if header else []
      count = _MORE_ROWS.get(path, rows)
      table = [*first, *_draw(row, count, seed, path)]
      _write_lines(folder / 'glue' / path, map('\t'.join, table))
  for file, rows in (('train.jsonl', TRAIN_ROWS), ('val.jsonl', DEV_ROWS)):
    for task, line in super_glue.TASKS.items():
      path = f'{task}/{file}'
      lines = map(json.dumps, _draw(line, rows, seed, path))
      _write_lines(folder / 'superglue' / path, lines)
  for file, rows, annotators in (
    ('train-v1.1.json', TRAIN_ROWS, 1),
    ('dev-v1.1.json', DEV_ROWS, 3),
  ):
    content = squad.squad(_source(seed, file), rows // 3, annotators)
    _write_lines(folder / 'squad' / file, [json.dumps(content)])
  (folder / 'GENERATED_SAMPLE.txt').write_text(NOTICE, encoding='utf-8')


def _draw(
  row: Callable[[random.Random, int], _Row], rows: int, seed: int, path: str
) -> list[_Row]:
  rng = _source(seed, path)
  return [row(rng, index) for index in range(rows)]


def _source(seed: int, path: str) -> random.Random:
  """One random source per file, so that a new task leaves other files as is."""
  return random.Random(f'{seed} {path}')


def _write_lines(path: pathlib.Path, lines: Iterable[str]) -> None:
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text('\n'.join(lines) + '\n', encoding='utf-8')
