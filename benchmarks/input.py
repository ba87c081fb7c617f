"""Measures the input rates of our tasks and of T5's own, in examples/s.

    python -m benchmarks.input --data_dir DIR [--uncached] [--tasks NAME ...]

Ours read official files. T5's read the same rows through TFDS, whose builders
first generate the datasets from these files. Both run the whole input pipeline
of training, with shuffling and the same vocabulary, in turns in one process.

For each task, the JSON has the best rate of each side and their ratio, and both
per second of processor time (`_per_cpu_s`). With `--uncached`, each epoch reads
the rows again, as with full-size datasets; by default, seqio keeps datasets of
fewer than 10,000 rows in memory.
"""

import argparse
import csv
import functools
import json
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from benchmarks import tfds_samples

_GLUE = ('cola', 'sst2', 'stsb', 'qqp', 'mnli', 'qnli', 'rte', 'wnli')
_SUPER_GLUE = ('boolq', 'cb', 'copa', 'multirc', 'record', 'rte', 'wic')
_LENGTHS = {'inputs': 512, 'targets': 114}
_WARM_UP = 4000


def preparations(
  data_dir: pathlib.Path, tfds_dir: str
) -> dict[str, Callable[[], Any]]:
  """Maps T5's task names to functions that prepare their TFDS datasets."""
  glue, super_glue = str(data_dir / 'glue'), str(data_dir / 'superglue')
  folder = str(data_dir / 'squad')
  squad = {part: f'{folder}/{part}-v1.1.json' for part in ('train', 'dev')}
  # TFDS has no parser for the files of these two datasets.
  paraphrases = {'train': _paraphrases(data_dir / 'glue' / 'MRPC')}
  pairs = {'train': _pairs(data_dir / 'parallel' / 'wmt14_en_de_tok')}
  sets: dict[str, tuple[Any, ...]] = {
    **{f'glue_{n}_v002': (f'glue/{n}:1.0.0', glue) for n in _GLUE},
    'glue_mrpc_v002': ('glue/mrpc:1.0.0', None, paraphrases),
    **{
      f'super_glue_{n}_v102': (f'super_glue/{n}:1.0.2', super_glue)
      for n in _SUPER_GLUE
    },
    'squad_v010_allanswers': ('squad/v1.1:3.0.0', squad),
    'wmt14_ende_v003': ('wmt14_translate/de-en:1.0.0', None, pairs),
  }
  wsc = 'super_glue/wsc.fixed:1.0.2', super_glue
  sets['super_glue_wsc_v102_simple_train'] = wsc
  return {
    task: functools.partial(tfds_samples.prepare, name, files, tfds_dir, *rows)
    for task, (name, files, *rows) in sets.items()
  }


def _paraphrases(folder: pathlib.Path) -> Iterator[tuple[int, Any]]:
  with (folder / 'train.tsv').open(encoding='utf-8-sig', newline='') as stream:
    rows = csv.DictReader(stream, delimiter='\t', quoting=csv.QUOTE_NONE)
    for i, row in enumerate(rows):
      texts = {f'sentence{n}': row[f'#{n} String'] for n in '12'}
      yield i, {**texts, 'label': int(row['Quality']), 'idx': i}


def _pairs(folder: pathlib.Path) -> Iterator[tuple[int, Any]]:
  with (folder / 'train.en').open() as en, (folder / 'train.de').open() as de:
    for i, (english, german) in enumerate(zip(en, de, strict=True)):
      yield i, {'en': english.strip(), 'de': german.strip()}


def rate(task: Any, examples: int, cached: bool) -> tuple[float, float]:
  """Returns examples per second and per second of processor time.

  The clock starts after enough examples to fill the buffers of either side.
  """
  import numpy as np
  import tensorflow as tf

  options = {'shuffle': True, 'seed': 0, 'num_epochs': None}
  ds = task.get_dataset(_LENGTHS, 'train', try_in_mem_cache=cached, **options)

  def time_at(times: tf.Tensor, unused_example: Any) -> tf.Tensor:
    now = tf.timestamp()
    return tf.where(times == 0, now, tf.stack([times[0], now]))

  cpu_start = time.process_time()
  timed = ds.skip(_WARM_UP - 1).take(examples + 1)
  first, last = timed.reduce(np.zeros(2), time_at).numpy()
  cpu_seconds = time.process_time() - cpu_start
  return examples / (last - first), (_WARM_UP + examples) / cpu_seconds


def compare(
  name: str, examples: int, rounds: int, cached: bool
) -> dict[str, float]:
  """Returns the rates of T5's task `name` and of ours, measured in turns."""
  import seqio

  from synth_mtf import tasks

  t5_own = seqio.TaskRegistry.get(name)
  sides = {
    't5': t5_own.replace(output_features=tasks.OUTPUT_FEATURES),
    'ours': tasks.get('synth_' + name),
  }
  for task in sides.values():
    rate(task, 100, cached)
  rates = [
    {side: rate(task, examples, cached) for side, task in sides.items()}
    for _ in range(rounds)
  ]
  result: dict[str, float] = {}
  for i, suffix in enumerate(('', '_per_cpu_s')):
    best = {side: max(found[side][i] for found in rates) for side in sides}
    for side in sides:
      result[side + suffix] = round(best[side])
    result['ratio' + suffix] = round(best['ours'] / best['t5'], 2)
  return result


def main(argv: Sequence[str]) -> dict[str, Any]:
  """Compares the tasks on the command line; prints and writes the results."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add = parser.add_argument
  add('--data_dir', required=True)
  add('--examples', type=int, default=10_000)
  add('--rounds', type=int, default=5)
  add('--uncached', action='store_true')
  add('--vocabulary', default='bytes')
  add('--tasks', nargs='*', help="T5's names; default: all")
  add('--json', help='file to write')
  args = parser.parse_args(argv)

  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
  os.environ['SYNTH_MTF_VOCABULARY'] = args.vocabulary
  os.environ['SYNTH_MTF_DATA_DIR'] = args.data_dir
  import seqio
  from absl import logging

  logging.set_verbosity(logging.ERROR)
  results: dict[str, Any] = {'settings': vars(args), 'tasks': {}}
  with tempfile.TemporaryDirectory() as folder:
    os.environ['SYNTH_MTF_INDEX_DIR'] = os.path.join(folder, 'index')
    tfds_dir = os.path.join(folder, 'tfds')
    known = preparations(pathlib.Path(args.data_dir), tfds_dir)
    names = args.tasks or list(known)
    if not known.keys() >= set(names):
      parser.error(f'--tasks: expected some of {", ".join(known)}')
    for name in names:
      known[name]()
    seqio.set_tfds_data_dir_override(tfds_dir)
    for name in names:
      found = compare(name, args.examples, args.rounds, not args.uncached)
      results['tasks'][name] = found
      print(name, found, flush=True)
      if args.json:
        pathlib.Path(args.json).write_text(json.dumps(results, indent=1) + '\n')
  return results


if __name__ == '__main__':
  main(sys.argv[1:])
