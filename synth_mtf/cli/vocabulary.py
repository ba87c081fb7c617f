"""`synth-mtf vocabulary`: a SentencePiece model of the text in the data."""

import argparse
import itertools
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from synth_mtf.errors import UserError
from synth_mtf.run import process

SUMMARY = 'train a SentencePiece vocabulary on the text of a data folder'

# T5's own, without its 100 sentinels.
_T5_PIECES = 32_000
# Its files may belong to other tasks as well.
_CORPUS_TASK = 'synth_text_span_corruption'


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags."""
  parser.add_argument(
    '--data_dir',
    type=pathlib.Path,
    required=True,
    help='folder of official files: the text below corpus/, and the training '
    'rows of every task whose files are there',
  )
  parser.add_argument(
    '--out', type=pathlib.Path, required=True, help='the .model file to write'
  )
  parser.add_argument(
    '--size',
    type=_size,
    default=_T5_PIECES,
    help="pieces, without T5's 100 sentinels (default: T5's 32000); fewer if "
    'the text has no more',
  )
  parser.add_argument(
    '--skip_bad_rows', action='store_true', help='leave malformed rows out'
  )


def run(args: argparse.Namespace) -> int:
  """Trains the vocabulary and says how large it is."""
  if args.out.suffix != '.model':
    raise UserError(f'--out {args.out}; expected a name that ends in .model')
  if not args.data_dir.is_dir():
    raise UserError(
      f'--data_dir {args.data_dir} is not a folder; expected one with corpus/, '
      'glue/, ... (the README shows the layout)'
    )
  try:
    args.out.parent.mkdir(parents=True, exist_ok=True)
  except OSError as error:
    raise UserError(
      f'--out {args.out}: its folder cannot be created ({error.strerror})'
    ) from error
  os.environ['SYNTH_MTF_DATA_DIR'] = str(args.data_dir)
  if args.skip_bad_rows:
    os.environ['SYNTH_MTF_SKIP_BAD_ROWS'] = '1'
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
  process.load_plugin()

  from synth_mtf.tasks import vocabulary, vocabulary_training

  sources = list(_sources())
  if not sources:
    raise UserError(
      f'--data_dir {args.data_dir} has no text: neither corpus/**/*.txt nor '
      'the training file of a task (the README shows the layout)'
    )
  names = ', '.join(source.task_name for source in sources)
  print(f'training on the text of {names}')
  rows = in_turns(source.examples('train') for source in sources)
  texts = _distinct(text for row in rows for text in _texts(row))
  vocabulary_training.train(texts, args.out, args.size)
  pieces = vocabulary.load(str(args.out)).vocab_size - vocabulary.EXTRA_IDS
  print(f'{args.out}: {pieces} pieces; use it with --vocabulary={args.out}')
  return 0


def in_turns(iterables: Iterable[Iterable[Any]]) -> Iterator[Any]:
  """Yields an item of each in turn, until all are exhausted.

  A corpus is much longer than most tasks: this way the trainer sees some of
  each kind of text before it has enough.
  """
  end = object()
  for items in itertools.zip_longest(*iterables, fillvalue=end):
    yield from (item for item in items if item is not end)


def _sources() -> Iterator[Any]:
  """Yields the source of each task with training files, no files twice."""
  import seqio

  from synth_mtf.tasks.files.source import TwoSources

  seen: set[str] = set()
  names = sorted(seqio.TaskRegistry.names())
  for name in (_CORPUS_TASK, *names):
    source = seqio.TaskRegistry.get(name).source
    if not isinstance(source, TwoSources):
      continue
    files = source.chosen.found('train')
    if not seen.issuperset(files):
      seen.update(files)
      yield source.chosen


def _distinct(texts: Iterable[str]) -> Iterator[str]:
  """Yields each text once; a passage is repeated with each of its questions."""
  seen = set()
  for text in texts:
    if hash(text) not in seen:
      seen.add(hash(text))
      yield text


def _texts(value: Any) -> Iterator[str]:
  """Yields each string of an example."""
  if isinstance(value, str):
    yield value
  elif isinstance(value, Mapping):
    for part in value.values():
      yield from _texts(part)
  elif isinstance(value, (list, tuple)):
    for part in value:
      yield from _texts(part)


def _size(text: str) -> int:
  size = int(text)
  if not 0 < size <= 1_000_000:
    raise argparse.ArgumentTypeError(f'{size}; expected 1 to 1000000')
  return size
