"""`synth-mtf cache`: writes tasks as TFRecords, which any host can read.

These are seqio's cached tasks, written without Apache Beam. A killed command is
resumed by the same words.
"""

import argparse
import os
import time
from collections.abc import Sequence
from typing import Any

from synth_mtf.cli import arguments, data, loading, needed
from synth_mtf.errors import UserError
from synth_mtf.results import printing
from synth_mtf.run import output, process
from synth_mtf.storage import atomic, filesystem

_HEADERS = ('task', 'split', 'files', 'examples', 'tokens', 'MB', 'digest')


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags."""
  parser.add_argument(
    '--task',
    '--mixture',
    dest='names',
    required=True,
    type=arguments.TaskNames(),
    metavar='NAMES',
    help='tasks and mixtures, separated by commas; of a mixture, each task',
  )
  parser.add_argument(
    '--out',
    type=arguments.new_path,
    required=True,
    metavar='FOLDER',
    help='folder or bucket (gs://...) of all caches; runs read it with '
    '--cache_dir',
  )
  parser.add_argument(
    '--split',
    dest='splits',
    type=lambda splits: splits.split(','),
    metavar='SPLITS',
    help='splits, separated by commas (default: all that have files)',
  )
  parser.add_argument(
    '--verify',
    action='store_true',
    help='also read the files that were complete before, and compare digests',
  )
  data.add_arguments(parser)
  data.add_text(parser)
  parser.add_argument(
    '--skip_bad_rows', action='store_true', help='leave malformed rows out'
  )


def run(args: argparse.Namespace) -> None:
  """Writes what is not there yet, and prints a table of all."""
  data.check_names(args.names, args.module_import)
  data.check_task_files(args)
  os.environ.pop('SYNTH_MTF_CACHE_DIR', None)  # which is for reading
  out = args.out.rstrip('/')
  with filesystem.named_by('--out'):
    filesystem.check_no_pattern(out)
  loading.for_paths(out)
  atomic.check_writable(out, '--out')
  if not needed.may_have_files(args.names):
    raise UserError(
      f'{", ".join(args.names)}: no files of any split in '
      f'{os.environ["SYNTH_MTF_DATA_DIR"]} (docs/data.md shows the layout)'
    )
  needed.check_vocabulary(
    args.names, os.environ.get('SYNTH_MTF_VOCABULARY', '')
  )
  process.load(args.module_import)
  from synth_mtf.host import explanations

  console = output.console()
  with explanations.explained():
    caches = _begin(args, out)
    for cache in caches:
      for split in cache.without_files:
        console.line(f'{cache.task.name} {split}: left out, it has no files')
    for cache in caches:
      with cache.opened():
        _write(cache, args.verify, console)
  rows = []
  for cache in caches:
    rows += [_row(cache, split) for split in cache.record.splits]
  print(printing.columns(_HEADERS, rows, left=(0, 1, 6)))
  print(f'Runs read it with --cache_dir={out}')


def _begin(args: argparse.Namespace, out: str) -> list[Any]:
  """Returns the caches of all tasks; a UserError has all faults."""
  import seqio

  from synth_mtf.tasks import caching, get

  tasks = {}
  for name in args.names:
    for task in seqio.get_subtasks(get(name)):
      tasks[task.name] = task
  caches = []
  faults = []
  for task in tasks.values():
    try:
      caches.append(caching.begin(task, out, args.splits, args.words))
    except UserError as error:
      faults.append(str(error))
  if faults:
    raise UserError('\n'.join(dict.fromkeys(faults)))
  _check_splits(args, caches)
  return caches


def _check_splits(args: argparse.Namespace, caches: Sequence[Any]) -> None:
  """Checks that at least one task has each split that is named, or any."""
  written: set[str] = set()
  known: set[str] = set()
  for cache in caches:
    written.update(cache.record.splits)
    known.update(cache.record.task_splits)
  missing = [split for split in args.splits or () if split not in written]
  if written and not missing:
    return
  which = f'the split {missing[0]!r}' if missing else 'any split'
  where = f' in --data_dir {args.data_dir}' if args.data_dir else ''
  raise UserError(
    f'{", ".join(args.names)}: no files of {which}{where}; it has '
    f'{", ".join(sorted(known))}.'
  )


def _write(cache: Any, verifies: bool, console: output.Console) -> None:
  """Writes the files of a task that are not there yet."""
  for split in cache.record.splits:
    title = f'{cache.task.name} {split}'
    numbers = cache.unwritten(split)
    if verifies:
      console.start(title)
      cache.verify(split)
    if not numbers:
      cache.finish(split)
      console.line(f'{title}: complete')
      continue
    console.start(title)
    start = time.monotonic()
    for done, number in enumerate(numbers):
      prefix = f'file {done + 1} of {len(numbers)}'

      def show(examples: int, prefix: str = prefix) -> None:
        console.update(f'{prefix}, {examples:,} examples')

      show(0)
      cache.write(split, number, show)
    cache.finish(split)
    console.finish(output.duration(time.monotonic() - start))
  cache.complete()


def _row(cache: Any, split: str) -> list[str]:
  from synth_mtf.tasks import caching

  written = cache.record.splits[split]
  statistics = caching.totals(written)
  tokens = 0
  for name, count in statistics.items():
    if name.endswith('_tokens') and not name.endswith('_max_tokens'):
      tokens += count
  size = sum(shard.size for shard in written.shards.values())
  return [
    cache.task.name,
    split,
    str(written.num_shards),
    f'{statistics["examples"]:,}',
    f'{tokens:,}',
    f'{size / 1e6:,.1f}',
    caching.digest(written),
  ]
