"""Trains small models to see whether the paper's ideas hold.

    python benchmarks/claims.py a b --out claims
    python benchmarks/claims.py c --data_dir my_data --vocabulary my.model

The parts are

  a  what depends on positions alone (copy, reverse): R, FR, D beside V
  b  what depends on pairs of tokens: R and D beside R+V and V, in self- and in
     cross-attention
  c  span corruption on text, at equal steps, of the systems of Table 4
  f  ablations on span corruption: rank of FR, heads of R+V, mixing
  g  cross-attention: R, FR, D, R+V and D+V in place of V

Each model runs with each seed, in <out>/<part>/<task>/<model>/seed_<n>, which
`synth-mtf table`, `plot` and `report` read. What is done is not done again, and
what was stopped goes on. <out>/<part>.md is the table of the part: mean and
standard deviation over seeds, and the seconds that it took.
"""

import argparse
import dataclasses
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import tabulate

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import synth_mtf  # noqa: F401  (readies the host)
from benchmarks._claims_tasks import LENGTH
from synth_mtf.analysis import runs

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent
COMMAND = pathlib.Path(sys.executable).with_name('synth-mtf')
_TEXT = 'synth_text_span_corruption'
_ACCURACY = 'sequence_accuracy'
_PERPLEXITY = 'neg_log_perplexity'


@dataclasses.dataclass(frozen=True)
class Model:
  """A row of a table.

  Attributes:
    name: in the table.
    variants: files of gin/variants.
    params: gin bindings.
  """

  name: str
  variants: Sequence[str]
  params: Sequence[str] = ()

  @property
  def folder(self) -> str:
    """The name of its folder."""
    return re.sub(r'[^\w+]+', '_', self.name)


@dataclasses.dataclass(frozen=True)
class Part:
  """Models that are compared.

  Attributes:
    claim: what is to be seen.
    tasks: each is trained and measured by itself.
    metric: the host's name of what is measured.
    lengths: of inputs and targets.
    steps: of training.
    models: the rows.
  """

  claim: str
  tasks: Sequence[str]
  metric: str
  lengths: tuple[int, int]
  steps: int
  models: Sequence[Model]


_ROW = LENGTH + 1  # with what ends it
_ON_TEXT: dict[str, Any] = {
  'tasks': [_TEXT],
  'metric': _PERPLEXITY,
  'lengths': (128, 29),
}
_SYSTEMS = (
  Model('V', ['vanilla']),
  Model('Fix', ['fixed_random']),
  Model('R', ['random']),
  Model('FR', ['factorized_random']),
  Model('D', ['dense']),
  Model('FD', ['factorized_dense']),
  Model('R+D', ['random_dense']),
  Model('R+V', ['random_vanilla']),
  Model('D+V', ['dense_vanilla']),
  Model('LightConv', ['lightconv']),
  Model('DyConv', ['dyconv']),
  Model('Linformer', ['linformer']),
)
PARTS = {
  'a': Part(
    claim='What depends on positions alone is learned without pairs of tokens.',
    tasks=['claims_copy', 'claims_reverse'],
    metric=_ACCURACY,
    lengths=(_ROW, _ROW),
    steps=600,
    models=[one for one in _SYSTEMS if one.name in ('V', 'R', 'FR', 'D')],
  ),
  'b': Part(
    claim='What depends on pairs of tokens needs products of tokens.',
    tasks=['claims_pairs'],
    metric=_ACCURACY,
    lengths=(_ROW + 2, 2),
    steps=1000,
    models=[
      Model('V', ['vanilla', 'cross_vanilla']),
      Model('R', ['random', 'cross_random']),
      Model('D', ['dense', 'cross_dense']),
      Model('R+V', ['random_vanilla', 'cross_random_vanilla']),
    ],
  ),
  'c': Part(
    claim='Span corruption on text, at equal steps.',
    steps=600,
    models=_SYSTEMS,
    **_ON_TEXT,
  ),
  'f': Part(
    claim='What the numbers of a variant are worth.',
    steps=600,
    models=[
      *(
        Model(
          f'FR, k = {k}',
          ['factorized_random'],
          [f'FactorizedRandom.rank = {k}'],
        )
        for k in (2, 8, 32)
      ),
      *(
        Model(f'R+V, {n} heads', ['random_vanilla'], [f'num_heads = {n}'])
        for n in (2, 8, 32)
      ),
      *(
        Model(
          f'R+V, {mixing}',
          ['random_vanilla'],
          [f"SyntheticAttention.mixing = '{mixing}'"],
        )
        for mixing in ('softmax', 'layer_softmax', 'sum')
      ),
    ],
    **_ON_TEXT,
  ),
  'g': Part(
    claim='Cross-attention without products of tokens.',
    steps=600,
    models=[
      Model(name, [f'cross_{variant}'])
      for name, variant in {
        'V': 'vanilla',
        'R': 'random',
        'FR': 'factorized_random',
        'D': 'dense',
        'R+V': 'random_vanilla',
        'D+V': 'dense_vanilla',
      }.items()
    ],
    **{**_ON_TEXT, 'tasks': ['claims_copy', _TEXT]},
  ),
}


@dataclasses.dataclass(frozen=True)
class Measured:
  """What a run has found.

  Attributes:
    value: of the part's metric, log perplexity without its minus.
    steps_per_second: of its training.
  """

  value: float
  steps_per_second: float


def main(args: argparse.Namespace) -> None:
  """Runs the parts, each with its table at its end."""
  for letter in args.parts:
    begun = time.monotonic()
    part = PARTS[letter]
    if args.steps:
      part = dataclasses.replace(part, steps=args.steps)
    rows = []
    for task in part.tasks:
      for model in part.models:
        if args.models and model.name not in args.models:
          continue
        folder = args.out / letter / task / model.folder
        runs = [
          _run(part, task, model, seed, folder, args) for seed in args.seeds
        ]
        rows.append((task, model.name, runs))
    seconds = time.monotonic() - begun
    text = _table(part, rows, seconds)
    (args.out / f'{letter}.md').write_text(text, encoding='utf-8')
    print(text)


def _run(
  part: Part,
  task: str,
  model: Model,
  seed: int,
  folder: pathlib.Path,
  args: argparse.Namespace,
) -> Measured:
  """Trains and measures a model, or reads what it has found before."""
  model_dir = folder / f'seed_{seed}'
  inputs, targets = part.lengths
  words = [
    'transformer',
    '--module_import=benchmarks._claims_tasks',
    f'--model_dir={model_dir}',
    *([f'--data_dir={args.data_dir}'] if args.data_dir else []),
    f'--vocabulary={args.vocabulary}',
    '--gin_file=sizes/tiny.gin',
    *(f'--gin_file=variants/{variant}.gin' for variant in model.variants),
  ]
  params = [
    f"MIXTURE_NAME = '{task}'",
    'utils.run.batch_size = 32',
    f"utils.run.sequence_length = {{'inputs': {inputs}, 'targets': {targets}}}",
    'Unitransformer.max_length = 128',
    f'utils.run.train_steps = {part.steps}',
    f'utils.run.save_checkpoints_steps = {part.steps}',
    f'mesh_train_dataset_fn.seed = {seed}',
    f'synth_mtf.train_with_progress.seed = {seed}',
    'utils.run.perplexity_eval_steps = 32',
    *model.params,
  ]
  for file in ('runs/pretrain_text.gin', 'runs/perplexity_text.gin'):
    done = model_dir / f'{pathlib.Path(file).stem}_{part.steps}.done'
    if not done.exists():
      _call([
        *words,
        *(f'--gin_file={name}' for name in (file, 'runs/cpu.gin')),
        *(f'--gin_param={param}' for param in params),
      ])  # fmt: skip
      done.touch()
  return _measured(str(model_dir), task, part.metric)


def _call(words: Sequence[str]) -> None:
  """Runs our command from the checkout, so that it finds the tasks."""
  environment = {
    **os.environ,
    'PYTHONPATH': f'{CHECKOUT}:{os.environ.get("PYTHONPATH", "")}',
    'PYTHONHASHSEED': '0',
  }
  subprocess.run([COMMAND, *words], cwd=CHECKOUT, env=environment, check=True)


def _measured(model_dir: str, task: str, metric: str) -> Measured:
  (run,) = runs.read(model_dir)
  value = next(
    one.value
    for one in reversed(run.results)
    if (one.task, one.metric) == (task, metric)
  )
  if value is None or run.steps_per_second is None:
    raise SystemExit(f'{model_dir}: {metric} is not a number')
  return Measured(
    -value if metric == _PERPLEXITY else value, run.steps_per_second
  )


def _table(
  part: Part,
  rows: Sequence[tuple[str, str, Sequence[Measured]]],
  seconds: float,
) -> str:
  """Returns the table of a part as Markdown."""
  what = 'log perplexity' if part.metric == _PERPLEXITY else 'rows right'
  lines = [
    [
      task,
      name,
      _spread([one.value for one in found], '.3f'),
      _spread([one.steps_per_second for one in found], '.1f'),
    ]
    for task, name, found in rows
  ]
  seeds = len(rows[0][2])
  return (
    f'{part.claim}\n\n'
    + tabulate.tabulate(
      lines,
      ['task', 'model', what, 'steps/s'],
      'pipe',
      colalign=('left', 'left', 'right', 'right'),
      disable_numparse=True,
    )
    + f'\n\n{part.steps} steps, {seeds} seeds, {seconds:.0f} s.\n'
  )


def _spread(values: Sequence[float], form: str) -> str:
  """Mean, and of several values the standard deviation."""
  mean = format(statistics.fmean(values), form)
  if len(values) == 1:
    return mean
  return f'{mean}±{statistics.stdev(values):{form}}'


def _arguments() -> argparse.Namespace:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('parts', nargs='+', choices=PARTS, metavar='PART')
  parser.add_argument(
    '--out', type=lambda name: pathlib.Path(name).absolute(), default='claims'
  )
  parser.add_argument('--seeds', nargs='+', type=int, default=[0, 1, 2])
  parser.add_argument('--models', nargs='+', help='these rows alone')
  parser.add_argument('--steps', type=int, help='instead of those of the part')
  parser.add_argument('--data_dir', help='with text below corpus/: c, f and g')
  parser.add_argument('--vocabulary', default='bytes', help='of that text')
  return parser.parse_args()


if __name__ == '__main__':
  main(_arguments())
