"""`synth-mtf tasks`: lists tasks and mixtures, or shows one with examples.

Rows are counted in official files; for TensorFlow Datasets, the counts are
those of the released files. Nothing is downloaded, nor is Apache Beam needed.
"""

import argparse
import contextlib
import inspect
import io
import itertools
import math
import os
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

from synth_mtf.cli import arguments, data, early
from synth_mtf.results import printing
from synth_mtf.run import output, process
from synth_mtf.storage import filesystem, remembered

# Variables with the path of a file or a folder, and with other files inside.
_FILES = (
  'SYNTH_MTF_CACHE_DIR',
  'SYNTH_MTF_DATA_DIR',
  'SYNTH_MTF_TEXT',
  'SYNTH_MTF_VOCABULARY',
  'SYNTH_MTF_WORD_VECTORS',
)
_NAMING_FILES = ('SYNTH_MTF_TASK_FILE', 'SYNTH_MTF_TASK_DATA_DIRS')
_EXAMPLES = 2
_LENGTH = 512  # tokens of a feature, T5's default
_FAULTS = (
  'No examples. Fix the file, or set SYNTH_MTF_SKIP_BAD_ROWS=1 to leave out '
  'the rows above (--skip_bad_rows of a run).'
)
_NO_FILES = (
  'No examples: the files are missing. Set --data_dir to a folder with '
  'official files (docs/data.md shows the layout); this command does not '
  "download, and T5's own tasks, without synth_, do not read the folder."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags."""
  parser.add_argument(
    'name',
    nargs='?',
    type=arguments.TaskName(),
    help='a task or a mixture to show with two examples',
  )
  data.add_arguments(parser)
  data.add_text(parser)
  parser.add_argument(
    '--gin_param',
    action='append',
    default=[],
    help='a setting of the rates, such as "rate_num_examples.maximum = 1e5"',
  )


def run(args: argparse.Namespace) -> int:
  """Prints the list, or one task or mixture.

  Returns:
    1 if a row is malformed, or if the named task or mixture has no example to
    show; else 0.
  """
  question = _question(args)
  answer = remembered.get(question) if question else None
  if answer:
    print(answer['text'], end='')
    return answer['status']
  if args.name:
    data.check_names([args.name], args.module_import)
  early.check_gin([], args.gin_param, args.module_import)
  data.check_task_files(args)
  process.load(args.module_import)
  printed = io.StringIO()
  with contextlib.redirect_stdout(_Both(sys.stdout, printed)):
    status = print_tasks(args.name, args.gin_param)
  if question:
    answer = {'text': printed.getvalue(), 'status': status}
    remembered.put(question, answer)
  return status


class _Both:
  """A stream that writes to two."""

  def __init__(self, *streams: Any) -> None:
    self._streams = streams

  def write(self, text: str) -> int:
    for stream in self._streams:
      stream.write(text)
    return len(text)

  def flush(self) -> None:
    for stream in self._streams:
      stream.flush()


def _question(args: argparse.Namespace) -> Any:
  """Returns all that the text depends on, or None if it cannot be listed.

  Task files, folders of single tasks and settings of gin may name any file. The
  package knows the text that depends on nothing.
  """
  settings = {}
  for name, value in os.environ.items():
    is_ours = name.startswith('SYNTH_MTF_') and name != output.INTERVAL
    if is_ours and value:
      settings[name] = value
  if args.gin_param or args.module_import:
    return None
  if not settings.keys().isdisjoint(_NAMING_FILES):
    return None
  paths = [settings[name] for name in _FILES if name in settings]
  if settings.get('SYNTH_MTF_VOCABULARY') == 'bytes':
    paths.remove('bytes')
  files = filesystem.state_below(*paths)
  if files is None:
    return None
  if not args.name and not settings:
    return 'tasks'
  return ['tasks', args.name, settings, files]


def print_tasks(name: str | None, gin_params: Sequence[str] = ()) -> int:
  """Prints the list, or one task or mixture; returns what `run` does."""
  # T5's default vocabulary would be downloaded.
  os.environ['SYNTH_MTF_VOCABULARY'] = (
    os.environ.get('SYNTH_MTF_VOCABULARY') or 'bytes'
  )
  import seqio

  from synth_mtf import tasks
  from synth_mtf.host import gin_files
  from synth_mtf.tasks import task_file

  gin_files.parse([], gin_params)
  data_dir = tasks.settings().data_dir
  provider = tasks.get(name) if name else None
  is_own = isinstance(provider, seqio.Task) and name in task_file.register()
  if data_dir is None and not is_own:
    print('No data folder is set (--data_dir): rows are as released.\n')
  if data_dir is not None:
    with filesystem.named_by(tasks.data_settings.name_of('data_dir')):
      if not filesystem.is_folder(data_dir):
        raise filesystem.Unreadable(f'{data_dir} does not exist')
  if not provider:
    return _print_all()
  print(provider.name)
  if isinstance(provider, seqio.Mixture):
    fault = _print_mixture(provider)
  else:
    fault = _print_task(provider, data_dir or '')
  if fault:
    print(f'\n{fault}')
  return int(bool(fault))


def _print_all() -> int:
  import seqio

  from synth_mtf.tasks import get, inspection

  splits = []
  for name in inspection.names(seqio.TaskRegistry):
    task = get(name)
    rows = []
    for split in inspection.splits_of(task):
      count = 'missing' if split.missing else printing.count(split.rows)
      rows.append(f'{split.split} {count}')
      splits.append(split)
    print(f'{name:40} {_source(task):35} {", ".join(rows)}', flush=True)
  faults = data.print_odd(splits)
  for name in inspection.names(seqio.MixtureRegistry):
    print(f'\n{name}')
    _print_rates(get(name))
  return int(faults)


def _source(task: Any) -> str:
  if getattr(task.source, 'official', None):
    return 'official files'
  tfds = getattr(task.source, 'tfds', task.source)  # T5's own tasks are TFDS
  if not tfds:
    return 'needs --data_dir'
  if not hasattr(tfds, 'tfds_dataset'):
    return type(tfds).__name__  # of a module of the user
  return f'TFDS {tfds.tfds_dataset.name}'


def _print_mixture(mixture: Any) -> str:
  """Prints a mixture's rates, and an example of each of two tasks.

  Returns why there was none, or ''.
  """
  splits = _print_rates(mixture)
  if data.print_odd(splits.values()):
    return _FAULTS
  for task in list(splits)[:_EXAMPLES]:
    _print_examples(task, 'train', 1)
  return '' if splits else _NO_FILES


def _print_rates(mixture: Any) -> dict[Any, Any]:
  """Prints the rates of the tasks that have a training split.

  A rate that depends on an unknown number of rows is NaN. Returns the tasks
  whose rows can be read, highest rate first, with their `SplitRows`.
  """
  import numpy as np

  from synth_mtf.host import patches
  from synth_mtf.tasks import inspection

  splits = {}
  for task in sorted(mixture.tasks, key=lambda task: task.name):
    for split in inspection.splits_of(task, ['train']):
      splits[task] = split
  counts = {}
  for task, split in splits.items():
    counts[task.name] = math.nan if split.rows is None else split.rows
  with patches.examples_counted_by(lambda task: counts.get(task.name, 0)):
    rates = {task: inspection.rate(mixture, task) for task in splits}
  total = np.nansum(list(rates.values())) or 1
  digits = 0 if total >= 100 else 4
  rows = []
  for task, split in splits.items():
    rows.append(
      [
        task.name,
        printing.count(split.rows),
        _origin(split),
        f'{rates[task]:,.{digits}f}',
        f'{rates[task] / total:.2%}',
      ]
    )
  headers = ['task', 'train rows', 'from', 'rate', 'share']
  table = printing.columns(headers, rows, left=(0, 2))
  print(textwrap.indent(table, '  '))
  readable = [task for task, split in splits.items() if _is_readable(split)]
  readable.sort(key=lambda task: -np.nan_to_num(rates[task]))
  return {task: splits[task] for task in readable}


def _is_readable(split: Any) -> bool:
  """Whether the rows of a split can be read without a download."""
  return bool(split.files or split.is_own)


def _origin(split: Any) -> str:
  """Returns where the number of rows of a split is from."""
  if split.is_own:
    return 'module'
  return 'files' if split.files else 'released'


def _print_task(task: Any, data_dir: str) -> str:
  """Prints a task's source, metrics and rows, and two examples.

  Returns why there was none, or ''.
  """
  print(f'source   {_source(task)}')
  metrics = ', '.join(_metric(function) for function in task.metric_fns)
  print(f'metrics  {metrics or "none"}\n')
  splits = data.print_rows([task.name], data_dir)
  has_faults = data.print_odd(splits)
  for split in splits:
    if split.missing:
      print(split.missing)
    elif split.is_own:
      print(f'{split.split}: {printing.count(split.rows)} rows')
    elif not split.files:
      print(f'{split.split}: {printing.count(split.rows)} rows are released')
  readable = [split.split for split in splits if _is_readable(split)]
  if has_faults:
    return _FAULTS
  if not readable:
    return _NO_FILES
  _print_examples(task, readable[0], _EXAMPLES)
  return ''


def _metric(function: Any) -> str:
  """Returns the name of a metric, and the names in its closure."""
  function = getattr(function, 'func', function)
  name = function.__qualname__.partition('.<locals>')[0]
  values = inspect.getclosurevars(function).nonlocals.values()
  names = []
  for value in values:
    value_name = getattr(value, '__name__', value)
    if isinstance(value_name, str) and value_name.isidentifier():
      names.append(value_name)
  return f'{name}({", ".join(names)})' if names else name


def _print_examples(task: Any, split: str, most: int) -> None:
  """Prints the first examples as a model receives them, before packing."""
  import tensorflow as tf
  import tensorflow_datasets as tfds

  for feature in task.output_features.values():
    _ = feature.vocabulary.vocab_size  # else an error would come from the graph
  print(f'\n{task.name}, {split}')
  lengths = dict.fromkeys(task.output_features, _LENGTH)
  # As T5 builds its input. A session of TensorFlow 2.20 writes to stderr.
  with tf.Graph().as_default(), output.kept():
    dataset = task.get_dataset(lengths, split, shuffle=False, seed=0)
    examples = list(tfds.as_numpy(dataset.take(most)))
  for example in examples:
    for name, feature in task.output_features.items():
      if name in example:
        print(f'  {name + ":":8} {_text(feature.vocabulary, example[name])}')
    print()


def _text(vocabulary: Any, tokens: Any) -> str:
  """Decodes tokens, with T5's names for the sentinels."""
  last = vocabulary.vocab_size - 1
  groups = itertools.groupby(
    tokens.tolist(), lambda token: token > last - vocabulary.extra_ids
  )
  words = []
  for is_sentinel, group in groups:
    if is_sentinel:
      words += [f'<extra_id_{last - token}>' for token in group]
    else:
      words.append(str(vocabulary.decode(list(group))))
  return ' '.join(words)
