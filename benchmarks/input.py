"""Input rate: examples per second of our tasks over official files, and of T5's.

    python -m benchmarks.input --data_dir DIR [--examples N] [--rounds N]

T5's own task reads the same rows through TFDS: the datasets are made from the
files by TFDS's own builders first. Both sides run the whole pipeline of
training, shuffled and tokenized with one vocabulary, in turns in one process.
Nothing is kept in memory between epochs, as with the full-size data sets.

One line of JSON goes to the standard output; it has for each task the median
rate of each side and their ratio.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import statistics
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


def rate(task, examples: int) -> float:
  """Returns examples per second, from the first to the last of `examples`."""
  import numpy as np

  ds = task.get_dataset(
    _LENGTHS,
    'train',
    shuffle=True,
    seed=0,
    num_epochs=None,
    try_in_mem_cache=False,
  )
  start = time.perf_counter()
  ds.take(examples).reduce(np.int64(0), lambda count, _: count + 1).numpy()
  return examples / (time.perf_counter() - start)


def compare(name: str, data_dir: str, examples: int, rounds: int) -> dict:
  """Returns the rates of T5's task `name` and of ours, measured in turns."""
  import seqio

  from synth_mtf import tasks

  ours = tasks.get('synth_' + name)
  t5_own = seqio.TaskRegistry.get(name)
  t5_own = t5_own.replace(output_features=tasks.OUTPUT_FEATURES)
  os.environ['SYNTH_MTF_DATA_DIR'] = data_dir
  rates = {'ours': [], 't5': []}
  for task in (ours, t5_own):
    rate(task, 100)
  for _ in range(rounds):
    rates['t5'].append(rate(t5_own, examples))
    rates['ours'].append(rate(ours, examples))
  medians = {side: statistics.median(values) for side, values in rates.items()}
  return {
    'ours': round(medians['ours']),
    't5': round(medians['t5']),
    'ratio': round(medians['ours'] / medians['t5'], 2),
  }


def main() -> None:
  """Runs the comparison and prints its JSON."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--data_dir', type=pathlib.Path, required=True)
  parser.add_argument('--examples', type=int, default=10_000)
  parser.add_argument('--rounds', type=int, default=3)
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
        name, str(args.data_dir), args.examples, args.rounds
      )
      print(name, results[name], file=sys.stderr, flush=True)
  print(
    json.dumps(
      {
        'unit': 'examples/s',
        'examples': args.examples,
        'rounds': args.rounds,
        'vocabulary': args.vocabulary,
        'tasks': results,
      }
    )
  )


if __name__ == '__main__':
  main()
