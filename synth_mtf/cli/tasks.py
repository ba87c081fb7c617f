"""`synth-mtf tasks`: lists tasks and mixtures, or shows one with examples.

Rows are counted in official files; for TensorFlow Datasets, the counts are
those of the released files. Nothing is downloaded, nor is Apache Beam needed.
"""

import argparse
import inspect
import itertools
import os
from collections.abc import Iterable, Mapping
from typing import Any, Optional

from synth_mtf.cli import data
from synth_mtf.errors import UserError
from synth_mtf.results import printing
from synth_mtf.run import process

_EXAMPLES = 2
_LENGTH = 512  # tokens of a feature, T5's default
_NO_EXAMPLES = (
  'No examples: the files are malformed or missing. Set --data_dir to a folder '
  'with official files (the README shows the layout); this command does not '
  'download.'
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
    1 if files are missing or rows are malformed, else 0.
  """
  data.use(args)
  # T5's default vocabulary would be downloaded.
  os.environ['SYNTH_MTF_VOCABULARY'] = (
    os.environ.get('SYNTH_MTF_VOCABULARY') or 'bytes'
  )
  process.load_quietly()
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
    faults = _print_faults(split for _, split in found)
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
  faults = _print_faults(splits)
  for name in inspection.names(seqio.MixtureRegistry):
    print(f'\n{name}')
    _print_rates(get(name))
  return int(faults)


def _print_faults(splits: Iterable[Any]) -> bool:
  """Prints odd and malformed rows; returns whether there are malformed ones."""
  faults = data.print_odd(splits)
  for line in itertools.chain(*faults):
    print(line)
  return bool(faults)


def _source(task: Any) -> str:
  if task.source.official:
    return 'official files'
  tfds = task.source.tfds
  return f'TFDS {tfds.tfds_dataset.name}' if tfds else 'needs --data_dir'


def _print_rates(mixture: Any) -> list[tuple[Any, Any]]:
  """Prints the rate of each task, of whose training split rows are counted.

  Returns those with files, highest rate first, with the `SplitRows`.

  A rate that depends on an unknown number of rows is also unknown.
  """
  from synth_mtf.tasks import inspection

  counted = [
    (task, split)
    for task in sorted(mixture.tasks, key=lambda task: task.name)
    for split in inspection.splits_of(task, ['train'])
  ]
  rates = _rates(mixture, {task.name: split.rows for task, split in counted})
  found = [(task, split, rates[task.name]) for task, split in counted]
  total = sum(rate or 0 for *_, rate in found) or 1
  rows = [
    [
      f'  {task.name}',
      printing.count(split.rows),
      'files' if split.files else 'released',
      *(
        ['?', '?']
        if rate is None
        else [f'{rate:,.{0 if total >= 100 else 4}f}', f'{rate / total:.2%}']
      ),
    ]
    for task, split, rate in found
  ]
  heads = ['  task', 'train rows', 'from', 'rate', 'share']
  print(printing.plain(heads, rows, 'lrlrr'))
  found.sort(key=lambda row: -(row[-1] or 0))
  return [(task, split) for task, split, _ in found if split.files]


def _rates(part: Any, rows: Mapping[str, Optional[int]]) -> dict[str, Any]:
  """Returns the rates in a mixture of tasks with the given numbers of rows."""
  import seqio

  from synth_mtf.tasks import get

  rates: dict[str, Any] = {}
  for name, rate in part.rate_per_task_name.items():
    one, found = get(name), {name: rate}
    if isinstance(one, seqio.Mixture):
      found = _rates(one, rows)
      known = None not in found.values() and sum(found.values())
      found = {n: rate * r / known if known else None for n, r in found.items()}
    elif callable(rate):
      counted = seqio.FunctionDataSource(
        lambda split, shuffle_files: None,
        splits=['train'],
        num_input_examples={'train': rows.get(name, 0)},
      )
      try:
        found = {name: rate(one.replace(source=counted))}
      except TypeError:  # the rate needs the number of rows
        found = {name: None}
    for n, r in found.items():
      rates[n] = None if r is None else rates.get(n, 0) + r
  return rates


def _print_task(task: Any, data_dir: str) -> list[str]:
  """Prints a task's source, metrics and rows; returns its readable splits."""
  print(f'source   {_source(task)}')
  metrics = ', '.join(map(_metric, task.metric_fns))
  print(f'metrics  {metrics or "none"}\n')
  splits = data.print_rows([task.name], data_dir)
  faults = _print_faults(splits)
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
