"""`synth-mtf vocabulary`: trains a SentencePiece model on the data."""

import argparse
import itertools
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

from synth_mtf.cli import arguments, data, needed
from synth_mtf.errors import UserError
from synth_mtf.run import process
from synth_mtf.storage import atomic, filesystem

# Other tasks may read the same files.
_CORPUS_TASK = 'synth_text_span_corruption'


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags."""
  parser.add_argument(
    '--data_dir',
    type=arguments.data_folder,
    help='folder of official files: the text below corpus/, and the training '
    'rows of every task whose files are there',
  )
  data.add_text(parser)
  parser.add_argument(
    '--task_file',
    type=arguments.task_files,
    metavar='YAML',
    help='files that define tasks, whose training rows are read, too (default: '
    '$SYNTH_MTF_TASK_FILE)',
  )
  parser.add_argument(
    '--out',
    type=arguments.new_path,
    required=True,
    help='the .model file to write',
  )
  parser.add_argument(
    '--size',
    type=arguments.at_least(4),  # three are T5's padding, end and unknown
    default=32_000,
    help="pieces, without T5's 100 sentinels (default: T5's 32000); fewer if "
    'the text has no more',
  )
  parser.add_argument(
    '--model_type',
    choices=['unigram', 'bpe'],
    default='unigram',
    help="SentencePiece's kind of model: unigram, T5's (default), or bpe, byte "
    'pair encoding',
  )
  parser.add_argument(
    '--skip_bad_rows', action='store_true', help='leave malformed rows out'
  )


def run(args: argparse.Namespace) -> None:
  """Trains the vocabulary and reports its size."""
  out = pathlib.Path(args.out)
  if out.suffix != '.model' or filesystem.is_bucket(args.out):
    raise UserError(
      f'--out {args.out}; expected a local name, ending in .model'
    )
  if out.is_dir():
    raise UserError(f'--out {args.out} is a folder; expected a .model file')
  if not args.data_dir and not args.task_file and not args.text_path:
    raise UserError('give the text: --text, --data_dir or --task_file')
  atomic.check_writable(str(out.parent), '--out')
  data.check_task_files(args)
  if not needed.may_have_files():
    raise _no_text(args)
  process.load()
  from synth_mtf.tasks import vocabulary

  sources = list(_sources())
  if not sources:
    raise _no_text(args)
  names = [source.task_name for source in sources]
  if args.text_path and _CORPUS_TASK not in names:
    raise UserError(
      f'--text: {args.text_path} has no text: there is no such file, and no '
      '.txt or .jsonl file in such a folder'
    )
  out.parent.mkdir(parents=True, exist_ok=True)
  print('training on the text of', ', '.join(names))
  notes = vocabulary.train(texts(sources), out, args.size, args.model_type)
  pieces = vocabulary.load(args.out).vocab_size - vocabulary.EXTRA_IDS
  print(f'{args.out}: {pieces} pieces; use it with --vocabulary={args.out}')
  for note in notes:
    print(note)


def _no_text(args: argparse.Namespace) -> UserError:
  return UserError(
    f'{args.text_path or args.data_dir or args.task_file} has no text: neither '
    'corpus/**/*.txt nor the training file of a task (docs/data.md shows the '
    'layout)'
  )


def _sources() -> Iterator[Any]:
  """Yields the source of each task that has training files not yet seen."""
  import seqio

  from synth_mtf.tasks import inspection

  seen: set[str] = set()
  for name in (_CORPUS_TASK, *inspection.names(seqio.TaskRegistry)):
    source = seqio.TaskRegistry.get(name).source.official
    files = source.existing_files('train') if source else ()
    if not seen.issuperset(files):
      seen.update(files)
      yield source


def texts(sources: Iterable[Any]) -> Iterator[str]:
  """Yields each distinct text of the training rows.

  Sources alternate, because a corpus is much longer than most tasks, and the
  trainer should see every kind of text before it has enough.
  """
  import tensorflow as tf

  seen = set()
  rows_of_each = [source.examples('train') for source in sources]
  for rows in itertools.zip_longest(*rows_of_each, fillvalue={}):
    # Models do not see ids and addresses.
    seen_by_models = [{**row, 'id': 0, 'url': 0} for row in rows]
    for text in tf.nest.flatten(seen_by_models):
      if isinstance(text, str) and text not in seen:
        seen.add(text)
        yield text
