"""Writes the tables of docs/results.md from benchmarks/results/*.json.

    python -m benchmarks.tables

replaces each table below a comment `<!-- table: NAME -->` with the one that
TABLES has under this name.
"""

import dataclasses
import itertools
import json
import pathlib
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_HERE = pathlib.Path(__file__).resolve().parent
RESULTS = _HERE / 'results'
DOCUMENT = _HERE.parent / 'docs' / 'results.md'

Result = Mapping[str, Any]  # of a model
Results = Mapping[str, Result]  # by the names of models
Cell = Callable[[Result], str]  # returns the text for a model

# The paper's letters and names for variants.
_LETTERS = {
  'fixed_random': 'Fix',
  'random': 'R',
  'factorized_random': 'FR',
  'dense': 'D',
  'factorized_dense': 'FD',
  'vanilla': 'V',
  'random_vanilla': 'R+V',
  'factorized_random_vanilla': 'FR+V',
  'dense_vanilla': 'D+V',
  'random_dense': 'R+D',
  'factorized_random_dense': 'FR+D',
  'random_dense_vanilla': 'R+D+V',
  'linformer': 'Linformer',
}


@dataclasses.dataclass(frozen=True)
class Column:
  """A column of a table.

  Attributes:
    heading: its heading.
    results: of the models that it is about.
    cell: returns the text for one of them.
  """

  heading: str
  results: Results
  cell: Cell

  def text(self, model: str) -> str:
    return self.cell(self.results[model]) if model in self.results else ''


@dataclasses.dataclass(frozen=True)
class Table:
  """A table with a row for each model.

  Attributes:
    columns: all but the first one, which has the models' names.
    models: the rows; default: all models of the columns.
  """

  columns: Sequence[Column]
  models: Sequence[str] = ()

  def __str__(self) -> str:
    every = dict.fromkeys(
      model for column in self.columns for model in column.results
    )
    rows = [
      ['', *(column.heading for column in self.columns)],
      ['---'] * (1 + len(self.columns)),
    ]
    for model in self.models or every:
      rows.append([model, *(column.text(model) for column in self.columns)])
    return ''.join(f'| {" | ".join(row)} |\n' for row in rows)


# What the files have.


def section(file: str, name: str) -> Results:
  """Returns a section of a file that `speed` or the compilers wrote."""
  return {label(model): found for model, found in _read(file)[name].items()}


def part(letter: str, word: str = '') -> Results:
  """Returns the results of a part of benchmarks.claims in one task."""
  return {row['model']: row for row in rows(letter, word)}


def rows(letter: str, word: str = '') -> list[Result]:
  """Returns the rows of a part of benchmarks.claims, with what they share.

  Args:
    letter: the part.
    word: what the name of the task contains.
  """
  results = _read(f'claims_{letter}')
  return [{**results, **r} for r in results['rows'] if word in r['task']]


def seeds(result: Result, key: str = 'value') -> list[float]:
  """Returns the mean of a model's seeds and their standard deviation."""
  of_seeds = [*result[f'{key}_of_seeds'].values()]
  return [statistics.fmean(of_seeds), statistics.stdev(of_seeds)]


def _read(file: str) -> Any:
  return json.loads((RESULTS / f'{file}.json').read_text())


def label(model: str) -> str:
  """Returns the paper's letters for a variant, or `model` if it has none."""
  variant, comma, rest = model.partition(', ')  # 'random, fast_cpu'
  return _LETTERS.get(variant, variant) + comma + rest


# What cells show.


def number(key: str, form: str = '') -> Cell:
  """Returns a cell with a number that some models may lack."""

  def cell(result: Result) -> str:
    return '' if result.get(key) is None else format(result[key], form)

  return cell


def milliseconds(form: str) -> Cell:
  """Returns a cell with the time of a step."""
  return lambda result: format(1e3 * result['seconds'], form)


def speed(result: Result) -> str:
  """Returns the median and the quartiles of the rounds, if there are any."""
  median, *quartiles = (f'{x:.2f}' for x in result['speed'])
  return f'{median} ({"-".join(quartiles)})' if quartiles else median


def median_speed(result: Result) -> str:
  """Returns the median of the rounds alone."""
  return f'{result["speed"][0]:.2f}'


def over(rival: str) -> Cell:
  """Returns a cell with the speed relative to a rival's, if it has the layer.

  Args:
    rival: how its names start.
  """

  def cell(result: Result) -> str:
    speeds = result.get('over', {})
    return ''.join(
      f'{speeds[name]:.2f}' for name in speeds if name.startswith(rival)
    )

  return cell


def mean(key: str = 'value') -> Cell:
  """Returns a cell with the mean of the seeds ± their standard deviation."""
  return lambda result: ' ± '.join(f'{x:.3f}' for x in seeds(result, key))


def seconds_at(length: str) -> Cell:
  """Returns a cell with the time at a length."""
  return lambda result: f'{result[length]["seconds"]:.2f}'


def megabytes_at(length: str) -> Cell:
  """Returns a cell with the peak of memory at a length."""
  return lambda result: f'{result[length]["bytes"] / 1e6:.0f}'


# The tables.

_SPEED = 'x SelfAttention (middle half)'


def _layer(file: str, name: str, prefix: str = '') -> list[Column]:
  found = section(file, name)
  return [
    Column(f'{prefix}ms', found, milliseconds('.0f')),
    Column(_SPEED, found, speed),
    Column("x mtf's mode", found, over('mtf ')),
  ]


def _frameworks() -> list[Column]:
  found = section('frameworks', 'layer')
  return [
    Column('ms', found, milliseconds('.0f')),
    Column(_SPEED, found, speed),
    Column('x PyTorch', found, over('torch: ')),
    Column('x JAX', found, over('jax: ')),
  ]


def _gpu(name: str) -> list[Column]:
  steps = section('h100', name)
  time, *use = _gpu_use(steps)
  return [time, Column(_SPEED, steps, speed), *use]


def _gpu_use(steps: Any) -> list[Column]:
  """Returns how long steps take, and what they use of the GPU."""
  return [
    Column('ms', steps, milliseconds('.1f')),
    Column('TFLOP/s', steps, number('tflops', '.0f')),
    Column('share', steps, number('share', '.0%')),
    Column('GB', steps, number('gb', '.1f')),
  ]


def _gpu_long() -> list[Column]:
  found = section('h100', 'long')
  return [
    Column('ms', found, milliseconds('.0f')),
    Column(_SPEED, found, speed),
    Column('GB', found, number('gb', '.1f')),
  ]


def _gpu_torch() -> list[Column]:
  return _gpu_use(section('h100', 'torch'))


def _gpu_torch_long() -> list[Column]:
  found = section('h100', 'torch_long')
  return [
    Column('ms', found, milliseconds('.0f')),
    Column('GB', found, number('gb', '.1f')),
  ]


def _gpu_training() -> list[Column]:
  found = section('h100', 'train')
  return [
    Column('100 steps', found, number('loss_100', '.3f')),
    Column('500 steps', found, number('loss_500', '.3f')),
    Column('1,100 steps', found, number('loss_1100', '.3f')),
    Column('steps/s', found, number('steps_per_second', '.1f')),
  ]


def _filled(title: str, file: str) -> list[Column]:
  found = section(file, 'layer')
  return [
    Column(f'{title}: ms', found, milliseconds('.0f')),
    Column('x SelfAttention', found, median_speed),
  ]


def _memory(length: str) -> list[Column]:
  found = section('memory', 'memory')
  return [
    Column(f'N {length}: s', found, seconds_at(length)),
    Column(f'N {length}: MB', found, megabytes_at(length)),
  ]


def _tensorflow(heading: str, name: str, cell: Cell) -> list[Column]:
  return [
    Column(heading, section('tf212', name), cell),
    Column('2.21', section('tf221', name), cell),
  ]


def _model(heading: str, file: str) -> list[Column]:
  found = section(file, 'model')
  return [
    Column(heading, found, number('seconds', '.2f')),
    Column('x as shipped (middle half)', found, speed),
  ]


def _decoding(batch: int, beams: int) -> list[Column]:
  found = section(f'decode_batch{batch}_beams{beams}', 'decode')
  return [
    Column(f'batch {batch}, beams {beams}: s', found, number('seconds', '.2f')),
    Column('x HF', found, over('torch: ')),
  ]


def _span_corruption() -> list[Column]:
  found, timed = part('c'), section('claims_e', 'model')
  return [
    Column('log perplexity', found, mean()),
    Column('the paper', found, number('paper')),
    Column('speed: x V', timed, median_speed),
    Column('the paper', timed, number('paper')),
  ]


def _compiled(name: str, gigabytes: str, prefix: str = '') -> list[Column]:
  found = section('tpu', name)
  return [
    Column(f'{prefix}GFLOP', found, number('gflop', '.1f')),
    Column('GB', found, number('gbyte', gigabytes)),
    Column('MB', found, number('mbyte', '.0f')),
  ]


TABLES = {
  'layer': Table(
    [*_layer('layer', 'layer'), *_layer('packed', 'packed', 'packed: ')],
    [
      *('R', 'Fix', 'FR', 'D', 'FD', 'V', 'R+V', 'FR+V', 'D+V', 'R+D+V'),
      *('SelfAttention', 'mtf random', 'mtf factorized', 'mtf dense_minus'),
    ],
  ),
  'frameworks': Table(
    _frameworks(),
    [
      *('R', 'V', 'R+V', 'SelfAttention'),
      *('torch: V fused', 'torch: R+V', 'torch: R'),
      *('jax: V', 'jax: R+V', 'jax: R'),
    ],
  ),
  'gpu': Table(_gpu('base')),
  'gpu, as on a TPU': Table(_gpu('as_on_tpu')),
  'gpu, N 4096': Table(_gpu_long()),
  'gpu, PyTorch': Table(_gpu_torch()),
  'gpu, PyTorch, N 4096': Table(_gpu_torch_long()),
  'gpu, training': Table(_gpu_training()),
  'short and full rows': Table(
    [*_filled('short', 'short_rows'), *_filled('full', 'full_rows')],
    ['R', 'FR', 'D', 'V', 'R+V', 'D+V', 'SelfAttention'],
  ),
  'memory': Table([*_memory('4096'), *_memory('8192')]),
  'tensorflow': Table(
    [
      *_tensorflow('layer: ms', 'layer', milliseconds('.0f')),
      *_tensorflow('N 4096: s', 'memory', seconds_at('4096')),
      *_tensorflow('MB', 'memory', megabytes_at('4096')),
      *_tensorflow('step: s', 'model', number('seconds', '.2f')),
      *_tensorflow('decoding: s', 'decode', number('seconds', '.2f')),
    ]
  ),
  'model': Table(
    [
      *_model('s', 'model'),
      *_model('short rows, 6 + 6 blocks: s', 'short_rows_model'),
    ]
  ),
  'decoding': Table(
    [
      column
      for batch, beams in itertools.product((1, 4), (1, 4))
      for column in _decoding(batch, beams)
    ]
  ),
  'positions and pairs': Table(
    [
      Column('copy', part('a', 'claims_copy'), mean()),
      Column('reverse', part('a', 'claims_reverse'), mean()),
      Column('look up', part('b', 'claims_lookup'), mean()),
    ]
  ),
  'span corruption': Table(_span_corruption()),
  'ablations': Table([Column('log perplexity', part('f'), mean())]),
  'cross-attention': Table(
    [
      Column('copy', part('g', 'claims_copy'), mean()),
      Column(
        'span corruption', part('g', 'synth_text_span_corruption'), mean()
      ),
      Column('translation', part('g', 'synth_wmt14_ende_v003'), mean()),
    ]
  ),
  'sentence pairs': Table(
    [
      Column('both sentences', part('h', 'claims_pair'), mean()),
      Column('one sentence', part('h', 'claims_single'), mean()),
      Column('decoder: both sentences', part('i', 'claims_pair'), mean()),
      Column('decoder: one sentence', part('i', 'claims_single'), mean()),
    ]
  ),
  'recall': Table([Column('nats per token', part('j'), mean())]),
  'tables 2 and 3': Table(
    [
      Column('translation', part('p'), mean()),
      Column('language models', part('q'), mean()),
      Column('summaries', part('r'), mean()),
      Column('dialogue', part('m'), mean()),
    ]
  ),
  'further functions': Table([Column('log perplexity', part('k'), mean())]),
  'encoders': Table([Column('nats', part('l', 'ag_news'), mean())]),
  'windows': Table(
    [
      Column('before training', part('n'), mean('share_at_first')),
      Column('after it', part('n'), mean('share')),
      Column('nats per token', part('n'), mean()),
    ]
  ),
  'tpu, one block': Table(_compiled('one_block', '.2f')),
  'tpu': Table(
    [
      *_compiled('pretrain_c4', '.1f'),
      *_compiled('finetune_en_mix', '.1f', 'finetuning: '),
    ]
  ),
}


def updated(document: str) -> str:
  """Returns the document with its tables made anew."""
  return re.sub(
    r'(<!-- table: (.*) -->\n)(?:\|.*\n)*',
    lambda match: match[1] + str(TABLES[match[2]]),
    document,
  )


if __name__ == '__main__':
  DOCUMENT.write_text(updated(DOCUMENT.read_text()))
