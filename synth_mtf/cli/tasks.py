"""`synth-mtf tasks`: lists tasks and mixtures, or shows one with examples.

Rows are counted in official files; over TensorFlow Datasets they are those of
the released files. Nothing is downloaded, and no Apache Beam is needed.
"""

import argparse
import inspect
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

from synth_mtf.errors import UserError
from synth_mtf.results import printing
from synth_mtf.run import process

SUMMARY = 'tasks and mixtures: rows, rates, metrics, and two examples of one'

_EXAMPLES = 2
_SHOWN = 2000  # characters of a text
_ASK = (
  'Set --data_dir to a folder with some (the README shows the layout); this '
  'command does not download.'
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags."""
  parser.add_argument(
    'name', nargs='?', help='a task or a mixture to show with two examples'
  )
  parser.add_argument(
    '--data_dir',
    metavar='FOLDER',
    help='folder of official files (default: $SYNTH_MTF_DATA_DIR)',
  )
  parser.add_argument(
    '--vocabulary',
    metavar='MODEL',
    help='a SentencePiece .model (default: $SYNTH_MTF_VOCABULARY, else bytes)',
  )
  parser.add_argument(
    '--gin_param',
    action='append',
    default=[],
    help='what sets the rates, such as "rate_num_examples.maximum = 1e5"',
  )


def run(args: argparse.Namespace) -> int:
  """Prints the list, or one task or mixture.

  Returns:
    1 if what is shown lacks its files or has malformed rows, else 0.
  """
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
  for name in ('data_dir', 'vocabulary'):
    if getattr(args, name):
      os.environ[f'SYNTH_MTF_{name.upper()}'] = getattr(args, name)
  # T5's own vocabulary would be downloaded.
  os.environ['SYNTH_MTF_VOCABULARY'] = (
    os.environ.get('SYNTH_MTF_VOCABULARY') or 'bytes'
  )
  process.load_plugin()
  import seqio
  from absl import logging

  import synth_mtf.tasks
  from synth_mtf.host import gin_files

  logging.set_verbosity(logging.ERROR)
  gin_files.parse([], args.gin_param)
  _check_folder(synth_mtf.tasks.settings().data_dir)
  if not args.name:
    return _print_all()
  provider = synth_mtf.tasks.get(args.name)
  if isinstance(provider, seqio.Mixture):
    return _print_mixture(provider)
  return _print_task(provider)


def _check_folder(data_dir: Optional[str]) -> None:
  if data_dir is None:
    print(
      'No data folder is set (--data_dir): the figures are those of the '
      'released files.\n'
    )
  elif '://' not in data_dir and not os.path.isdir(data_dir):
    raise UserError(
      f'data folder {data_dir} does not exist; give the folder that has '
      'glue/CoLA/train.tsv, superglue/..., squad/...'
    )


def _print_all() -> int:
  from synth_mtf.tasks import get, inspection

  widths = (40, -12, -12, -12, 40)
  print(
    printing.line(('task', 'train', 'validation', 'test', 'source'), widths)
  )
  for name in inspection.task_names():
    task = get(name)
    rows = _rows(task)
    # Such as of `validation`, or of `validation_matched` and the other.
    cells = [
      '+'.join(n for split, n in rows.items() if split.startswith(kind)) or '-'
      for kind in ('train', 'validation', 'test')
    ]
    print(printing.line((name, *cells, _source(task)), widths), flush=True)
  for name in inspection.mixture_names():
    print(f'\n{name}')
    _print_rates(get(name))
  return 0


def _rows(task: Any) -> Mapping[str, str]:
  """Returns the count of each split, or why there is none."""
  from synth_mtf.tasks import inspection, released

  if inspection.files_of(task) is None:
    return {
      split: printing.count(released.rows(task.name, split))
      for split in task.source.split_files
    }
  return {
    split.split: 'missing' if split.missing else printing.count(split.rows)
    for split in inspection.splits_of(task)
  }


def _source(task: Any) -> str:
  from synth_mtf.tasks import inspection

  if inspection.files_of(task) is not None:
    return 'official files'
  tfds = task.source.tfds
  if tfds is None:
    return 'official files only (--data_dir)'
  return f'TFDS {tfds.tfds_dataset.name}'


def _print_mixture(mixture: Any) -> int:
  from synth_mtf.tasks import get, inspection

  print(mixture.name)
  rates = _print_rates(mixture)
  shown = 0
  for rate in sorted(rates, key=lambda rate: -(rate.rate or 0)):
    task = get(rate.task)
    source = inspection.files_of(task)
    if shown < _EXAMPLES and source and source.found('train'):
      print(f'\n{task.name}, train')
      shown += _print_examples(task, 'train', 1)
  if not shown:
    print(f'\nNo examples: there are no official files. {_ASK}')
  return int(not shown)


def _print_rates(mixture: Any) -> Sequence[Any]:
  from synth_mtf.tasks import inspection

  rates = inspection.rates_of(mixture)
  total = sum(rate.rate or 0 for rate in rates)
  widths = (42, -14, 12, -14, -8)
  print(
    printing.line(('  task', 'train rows', 'from', 'rate', 'share'), widths)
  )
  for rate in rates:
    known = ('?', '?')
    if rate.rate is not None:
      known = (f'{rate.rate:,.0f}', f'{rate.rate / (total or 1):.2%}')
    cells = (f'  {rate.task}', printing.count(rate.rows), rate.known, *known)
    print(printing.line(cells, widths), flush=True)
  return rates


def _print_task(task: Any) -> int:
  from synth_mtf.tasks import inspection

  print(task.name)
  print(f'  source   {_source(task)}')
  metrics = [_name(metric) for metric in task.metric_fns]
  print(f'  metrics  {", ".join(metrics) or "none"}')
  splits = list(inspection.splits_of(task))
  if not splits:
    for name, rows in _rows(task).items():
      print(f'  {name:21} {rows} rows are released')
    print(f'\nNo examples: no official files are read. {_ASK}')
    return 1
  for split in splits:
    print(f'  {split.split:21} ' + (split.missing or _counted(split)))
    for file in split.files:
      for line in file.describe_faults().splitlines():
        print(f'    {line}')
      for note in file.notes:
        print(f'    odd: {note}')
  faults = any(file.num_faults for split in splits for file in split.files)
  having = [s.split for s in splits if s.files and s.rows != 0]
  if faults or not having:
    print('\nNo examples: ' + ('rows are malformed.' if faults else _ASK))
    return 1
  print(f'\n{having[0]}')
  _print_examples(task, having[0], _EXAMPLES)
  return 0


def _counted(split: Any) -> str:
  released = f', {split.released}' if split.released else ''
  files = ', '.join(file.path for file in split.files[:2])
  more = len(split.files) - 2
  return (
    f'{printing.count(split.rows)} rows{released}: {files}'
    + f' and {more:,} more files' * (more > 0)
  )


def _name(function: Any) -> str:
  """Returns the name of a function; with arguments if another one made it."""
  inner = getattr(function, 'func', function)
  name = getattr(inner, '__qualname__', type(inner).__name__)
  maker, inside, _ = name.partition('.<locals>')
  if not inside:
    return name
  arguments = inspect.getclosurevars(inner).nonlocals.values()
  named = [
    a if isinstance(a, str) else _name(a) for a in arguments if _is_named(a)
  ]
  return f'{maker}({", ".join(named)})'


def _is_named(argument: Any) -> bool:
  return isinstance(argument, str) or (
    inspect.isfunction(argument) and '<lambda>' not in argument.__qualname__
  )


def _print_examples(task: Any, split: str, most: int) -> int:
  """Prints the first examples of a split; returns how many there are."""
  examples = list(_examples(task, split, most))
  for example in examples:
    for feature in task.output_features:
      if feature in example:
        print(f'  {feature + ":":8} {_text(task, feature, example)}')
    print()
  return len(examples)


def _examples(task: Any, split: str, most: int) -> Iterator[Mapping[str, Any]]:
  """Yields what a model would get, before it is packed or padded."""
  import tensorflow as tf

  lengths = dict.fromkeys(task.output_features, 512)
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    dataset = task.get_dataset(lengths, split, shuffle=False, seed=0)
    row = tf.compat.v1.data.make_one_shot_iterator(dataset.take(most))
    following = row.get_next()
    for _ in range(most):
      try:
        yield session.run(following)
      except tf.errors.OutOfRangeError:
        return


def _text(task: Any, feature: str, example: Mapping[str, Any]) -> str:
  """Returns a feature as text: as it was, or decoded from its tokens."""
  before = example.get(f'{feature}_pretokenized')
  # Span corruption changes tokens, not text.
  noised = any('span_corruption' in _name(step) for step in task.preprocessors)
  if isinstance(before, bytes) and not noised:
    text = before.decode('utf-8')
  else:
    text = _decoded(task.output_features[feature].vocabulary, example[feature])
  return text if len(text) <= _SHOWN else text[:_SHOWN] + ' ...'


def _decoded(vocabulary: Any, tokens: Any) -> str:
  """Decodes tokens, with T5's names of the sentinels."""
  size, sentinels = vocabulary.vocab_size, vocabulary.extra_ids
  words: list[str] = []
  run: list[int] = []
  for token in tokens.tolist():
    if token >= size - sentinels:
      words += [vocabulary.decode(run)] if run else []
      words.append(f'<extra_id_{size - 1 - token}>')
      run = []
    elif token != vocabulary.eos_id:
      run.append(token)
  words += [vocabulary.decode(run)] if run else []
  return ' '.join(words)
