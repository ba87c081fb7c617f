"""Input rate: our tasks over official files, and T5's own, in examples/s.

    python -m benchmarks.input --data_dir DIR [--examples N] [--rounds N]

T5's own task reads the same rows through TFDS: the datasets are made from the
files by TFDS's own builders first. Both sides run the whole pipeline of
training, shuffled and tokenized with one vocabulary, in turns in one process.

One line of JSON goes to the standard output. It has for each task the best rate
of each side, which other work on the machine disturbs least, and their ratio;
and the same by the time of the processors, `_per_cpu_s`. With `--uncached` rows
are read again in each epoch, as those of the full-size sets are; seqio keeps
sets of fewer than 10,000 rows in memory.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import sys
import tempfile
import time

from benchmarks import tfds_samples

_GLUE = ('cola', 'sst2', 'stsb', 'qqp', 'mnli', 'qnli', 'rte', 'wnli')
_SUPER_GLUE = ('boolq', 'cb', 'copa', 'multirc', 'record', 'rte', 'wic')
_LENGTHS = {'inputs': 512, 'targets': 114}


def prepare(data_dir: pathlib.Path, tfds_dir: str) -> list[str]:
  """Makes the TFDS datasets; returns T5's names of the tasks over them."""
  names = []
  for name in _GLUE:
    tfds_samples.prepare(f'glue/{name}:1.0.0', str(data_dir / 'glue'), tfds_dir)
    names.append(f'glue_{name}_v002')
  for name in (*_SUPER_GLUE, 'wsc.fixed'):
    folder = str(data_dir / 'superglue')
    tfds_samples.prepare(f'super_glue/{name}:1.0.2', folder, tfds_dir)
  names += [f'super_glue_{name}_v102' for name in _SUPER_GLUE]
  names.append('super_glue_wsc_v102_simple_train')
  squad = {
    part: str(data_dir / 'squad' / f'{part}-v1.1.json')
    for part in ('train', 'dev')
  }
  tfds_samples.prepare('squad/v1.1:3.0.0', squad, tfds_dir)
  names.append('squad_v010_allanswers')
  english, german = (
    data_dir / 'parallel' / 'wmt14_en_de_tok' / f'train.{language}'
    for language in ('en', 'de')
  )
  pairs = zip(english.open(encoding='utf-8'), german.open(encoding='utf-8'))
  tfds_samples.prepare(
    'wmt14_translate/de-en:1.0.0',
    None,
    tfds_dir,
    {
      'train': (
        (i, {'en': en.strip(), 'de': de.strip()})
        for i, (en, de) in enumerate(pairs)
      )
    },
  )
  names.append('wmt14_ende_v003')
  return names


def rate(task, examples: int, cached: bool) -> tuple[float, float]:
  """Returns examples per second, and per second of processor time."""
  import numpy as np

  ds = task.get_dataset(
    _LENGTHS,
    'train',
    shuffle=True,
    seed=0,
    num_epochs=None,
    try_in_mem_cache=cached,
  )
  start, cpu_start = time.perf_counter(), time.process_time()
  ds.take(examples).reduce(np.int64(0), lambda count, _: count + 1).numpy()
  seconds, cpu_seconds = (
    time.perf_counter() - start,
    time.process_time() - cpu_start,
  )
  return examples / seconds, examples / cpu_seconds


def compare(
  name: str, data_dir: str, examples: int, rounds: int, cached: bool
) -> dict[str, float]:
  """Returns the rates of T5's task `name` and of ours, measured in turns."""
  import seqio

  from synth_mtf import tasks

  os.environ['SYNTH_MTF_DATA_DIR'] = data_dir
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
  result = {}
  for i, suffix in enumerate(('', '_per_cpu_s')):
    best = {side: max(found[side][i] for found in rates) for side in sides}
    for side in sides:
      result[side + suffix] = round(best[side])
    result['ratio' + suffix] = round(best['ours'] / best['t5'], 2)
  return result


def main() -> None:
  """Runs the comparison and prints its JSON."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--data_dir', type=pathlib.Path, required=True)
  parser.add_argument('--examples', type=int, default=10_000)
  parser.add_argument('--rounds', type=int, default=3)
  parser.add_argument('--uncached', action='store_true')
  parser.add_argument('--vocabulary', default='bytes')
  parser.add_argument('--tasks', nargs='*', help="T5's names; default: all")
  args = parser.parse_args()

  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
  os.environ['SYNTH_MTF_VOCABULARY'] = args.vocabulary
  import seqio
  from absl import logging

  logging.set_verbosity(logging.ERROR)
  with tempfile.TemporaryDirectory() as folder:
    os.environ['SYNTH_MTF_INDEX_DIR'] = os.path.join(folder, 'index')
    tfds_dir = os.path.join(folder, 'tfds')
    with contextlib.redirect_stdout(sys.stderr):
      names = prepare(args.data_dir, tfds_dir)
    seqio.set_tfds_data_dir_override(tfds_dir)
    results = {}
    for name in args.tasks or names:
      results[name] = compare(
        name,
        str(args.data_dir),
        args.examples,
        args.rounds,
        not args.uncached,
      )
      print(name, results[name], file=sys.stderr, flush=True)
  print(
    json.dumps(
      {
        'unit': 'examples/s',
        'examples': args.examples,
        'rounds': args.rounds,
        'uncached': args.uncached,
        'vocabulary': args.vocabulary,
        'tasks': results,
      }
    )
  )


if __name__ == '__main__':
  main()
