"""`synth-mtf tasks`: lists tasks and mixtures, or shows one with examples.

Rows are counted in official files; for TensorFlow Datasets, the counts are
those of the released files. Nothing is downloaded, nor is Apache Beam needed.
"""

import argparse
import inspect
import itertools
import math
import os
import textwrap
from typing import Any

from synth_mtf.cli import data
from synth_mtf.errors import UserError
from synth_mtf.results import printing

_EXAMPLES = 2
_LENGTH = 512  # tokens of a feature, T5's default
_NO_EXAMPLES = (
  'No examples: the files are malformed or missing. Set --data_dir to a folder '
  'with official files (docs/data.md shows the layout); this command does not '
  "download, and T5's own tasks, without synth_, do not read the folder."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags."""
  parser.add_argument(
    'name', nargs='?', help='a task or a mixture to show with two examples'
  )
  data.add_arguments(parser)
  parser.add_argument(
    '--gin_param',
    action='append',
    default=[],
    help='what sets the rates, such as "rate_num_examples.maximum = 1e5"',
  )


def run(args: argparse.Namespace) -> int:
  """Prints the list, or one task or mixture.

  Returns:
    1 if a row is malformed, or if the named task or mixture has no example to
    show; else 0.
  """
  # T5's default vocabulary would be downloaded.
  os.environ['SYNTH_MTF_VOCABULARY'] = (
    os.environ.get('SYNTH_MTF_VOCABULARY') or 'bytes'
  )
  import seqio
  import tensorflow as tf

  from synth_mtf import tasks
  from synth_mtf.host import gin_files

  gin_files.parse([], args.gin_param)
  data_dir = tasks.settings().data_dir
  if data_dir is None:
    print('No data folder is set (--data_dir): rows are as released.\n')
  elif not tf.io.gfile.isdir(data_dir):
    raise UserError(f'data folder {data_dir} does not exist')
  if not args.name:
    return _print_all()
  provider = tasks.get(args.name)
  print(provider.name)
  if isinstance(provider, seqio.Mixture):
    found = _print_rates(provider)
    faults = data.print_odd(split for _, split in found)
    examples = [(task, 'train', 1) for task, _ in found if not faults]
  else:
    splits = _print_task(provider, data_dir or '')
    examples = [(provider, split, _EXAMPLES) for split in splits[:1]]
  for task, split, most in examples[:_EXAMPLES]:
    print(f'\n{task.name}, {split}')
    _print_examples(task, split, most)
  if not examples:
    print(f'\n{_NO_EXAMPLES}')
  return int(not examples)


def _print_all() -> int:
  import seqio

  from synth_mtf.tasks import get, inspection

  splits = []
  for name in inspection.names(seqio.TaskRegistry):
    task = get(name)
    found = list(inspection.splits_of(task))
    rows = ', '.join(
      f'{one.split} {"missing" if one.missing else printing.count(one.rows)}'
      for one in found
    )
    print(f'{name:40} {_source(task):35} {rows}', flush=True)
    splits += found
  faults = data.print_odd(splits)
  for name in inspection.names(seqio.MixtureRegistry):
    print(f'\n{name}')
    _print_rates(get(name))
  return int(faults)


def _source(task: Any) -> str:
  if getattr(task.source, 'official', None):
    return 'official files'
  tfds = getattr(task.source, 'tfds', task.source)  # T5's own task has no other
  return f'TFDS {tfds.tfds_dataset.name}' if tfds else 'needs --data_dir'


def _print_rates(mixture: Any) -> list[tuple[Any, Any]]:
  """Prints the rates of the tasks that have a training split.

  A rate that depends on an unknown number of rows is NaN. Returns the tasks
  with files, highest rate first, with their `SplitRows`.
  """
  import numpy as np

  from synth_mtf.host import patches
  from synth_mtf.tasks import inspection

  found = {
    task: split
    for task in sorted(mixture.tasks, key=lambda task: task.name)
    for split in inspection.splits_of(task, ['train'])
  }
  counts = {
    task.name: math.nan if split.rows is None else split.rows
    for task, split in found.items()
  }
  with patches.examples_counted_by(lambda task: counts.get(task.name, 0)):
    rates = {task.name: mixture.get_rate(task) for task in found}
  total = np.nansum([rates[task.name] for task in found]) or 1
  rows = [
    [
      task.name,
      printing.count(split.rows),
      'files' if split.files else 'released',
      f'{rates[task.name]:,.{0 if total >= 100 else 4}f}',
      f'{rates[task.name] / total:.2%}',
    ]
    for task, split in found.items()
  ]
  headers = ['task', 'train rows', 'from', 'rate', 'share']
  table = printing.columns(headers, rows, left=(0, 2))
  print(textwrap.indent(table, '  '))
  there = sorted(
    (task for task, split in found.items() if split.files),
    key=lambda task: -np.nan_to_num(rates[task.name]),
  )
  return [(task, found[task]) for task in there]


def _print_task(task: Any, data_dir: str) -> list[str]:
  """Prints a task's source, metrics and rows; returns its readable splits."""
  print(f'source   {_source(task)}')
  metrics = ', '.join(map(_metric, task.metric_fns))
  print(f'metrics  {metrics or "none"}\n')
  splits = data.print_rows([task.name], data_dir)
  faults = data.print_odd(splits)
  for split in splits:
    if not split.files:
      print(
        split.missing
        or f'{split.split}: {printing.count(split.rows)} rows are released'
      )
  return [split.split for split in splits if split.files and not faults]


def _metric(function: Any) -> str:
  """Returns the name of a metric, and the names in its closure."""
  function = getattr(function, 'func', function)
  name = function.__qualname__.partition('.<locals>')[0]
  values = inspect.getclosurevars(function).nonlocals.values()
  names = [getattr(value, '__name__', value) for value in values]
  words = [one for one in names if isinstance(one, str) and one.isidentifier()]
  return f'{name}({", ".join(words)})' if words else name


def _print_examples(task: Any, split: str, most: int) -> None:
  """Prints the first examples as a model receives them, before packing."""
  import tensorflow as tf
  import tensorflow_datasets as tfds

  lengths = dict.fromkeys(task.output_features, _LENGTH)
  with tf.Graph().as_default():  # as T5 builds its input
    dataset = task.get_dataset(lengths, split, shuffle=False, seed=0)
    for example in tfds.as_numpy(dataset.take(most)):
      for name, feature in task.output_features.items():
        if name in example:
          print(f'  {name + ":":8} {_text(feature.vocabulary, example[name])}')
      print()


def _text(vocabulary: Any, tokens: Any) -> str:
  """Decodes tokens, with T5's names for the sentinels."""
  last = vocabulary.vocab_size - 1
  runs = itertools.groupby(
    tokens.tolist(), lambda token: token > last - vocabulary.extra_ids
  )
  return ' '.join(
    ' '.join(f'<extra_id_{last - token}>' for token in run)
    if sentinels
    else str(vocabulary.decode(list(run)))
    for sentinels, run in runs
  )
