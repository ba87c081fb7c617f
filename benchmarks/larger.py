"""Official files made larger, to stand in for full-size sets that are not here.

The rows of a training file are repeated until it has a given size; what must be
unique about a row is numbered again. Other files stay as they are.
"""

from __future__ import annotations

import itertools
import json
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator

_WITH_HEADER = ('SST-2', 'MRPC', 'STS-B', 'QQP', 'MNLI', 'QNLI', 'RTE', 'WNLI')


def write(
  data_dir: pathlib.Path, larger_dir: pathlib.Path, num_bytes: int
) -> None:
  """Writes the folder `data_dir` again, with larger training files.

  Args:
    data_dir: GLUE, SuperGLUE, SQuAD and parallel text, as in the README.
    larger_dir: the folder to make.
    num_bytes: the least size of a training file; larger ones stay as they are.
  """
  for source in sorted(data_dir.rglob('*')):
    if source.is_dir():
      continue
    target = larger_dir / source.relative_to(data_dir)
    target.parent.mkdir(parents=True, exist_ok=True)
    repeat = _repeat(source)
    # Parallel files are repeated as often as each other.
    size = min(p.stat().st_size for p in source.parent.glob(f'{source.stem}.*'))
    if repeat and size < num_bytes:
      copies = -(-num_bytes // size)
      with target.open('w', encoding='utf-8', newline='') as stream:
        stream.writelines(repeat(source, copies))
    else:
      os.symlink(source.resolve(), target)


def _repeat(
  source: pathlib.Path,
) -> Callable[[pathlib.Path, int], Iterable[str]] | None:
  """Returns what repeats the rows of a training file; None for other files."""
  if source.stem not in ('train', 'train-v1.1'):
    return None
  if source.suffix == '.jsonl':
    return _json_lines
  if source.suffix == '.json':
    return _squad
  return _lines


def _lines(source: pathlib.Path, copies: int) -> Iterator[str]:
  rows = _read(source)
  if source.parent.name in _WITH_HEADER:
    yield rows.pop(0)
  yield from itertools.chain.from_iterable(itertools.repeat(rows, copies))


def _json_lines(source: pathlib.Path, copies: int) -> Iterator[str]:
  rows = [json.loads(row) for row in _read(source)]
  for copy in range(copies):
    for number, row in enumerate(rows):
      row['idx'] = copy * len(rows) + number
      for i, query in enumerate(row.get('qas', ())):  # ReCoRD
        query['idx'] = row['idx'] * 100 + i
      yield json.dumps(row, ensure_ascii=False) + '\n'


def _squad(source: pathlib.Path, copies: int) -> Iterator[str]:
  content = source.read_text(encoding='utf-8')
  articles = []
  for copy in range(copies):
    more = json.loads(content)['data']
    for article in more:
      for paragraph in article['paragraphs']:
        for query in paragraph['qas']:
          query['id'] += f'-{copy}'
    articles += more
  yield json.dumps({'version': '1.1', 'data': articles}, ensure_ascii=False)


def _read(source: pathlib.Path) -> list[str]:
  with source.open(encoding='utf-8', newline='') as stream:
    return stream.readlines()
