"""Trains small models to see whether the paper's ideas hold.

    python -m benchmarks.claims a b --out claims
    python -m benchmarks.claims c f --data_dir my_data --vocabulary my.model

The parts are

  a  what depends on positions alone (copy, reverse): R, FR, D beside V
  b  what depends on pairs of tokens (what came after this letter?): R and D
     beside V, R+V and D+V, in self- and in cross-attention; the mixtures also
     with an alpha that is learned at the learning rate
  c  span corruption on text, at equal steps and at equal time, of the systems
     of Table 4
  f  ablations on span corruption: rank of FR, factors of FD, heads of R+V,
     mixing, N
  g  cross-attention: R, FR, D, R+V and D+V in place of V, on copying, text and
     translation

Each model runs with each seed, in <out>/<part>/<task>/<model>/seed_<n>, which
`synth-mtf table`, `plot` and `report` read; the command's output is in log.txt
there. A second call skips what is done and resumes what was stopped. As many
models train side by side as there are cores, each on one of them, so that times
are comparable. <out>/<part>.json has what was measured: mean and standard
deviation over the seeds. c, f and g read --data_dir: text below corpus/, and
for g a language pair in the place of wmt14_en_de.
"""

import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Optional

import pandas as pd

from benchmarks._worker import HERE
from benchmarks.claims_parts import PARTS, PERPLEXITY, Model, Part
from synth_mtf.results import runs

_CHECKPOINTS = 10  # while a model trains
# The command, from this checkout.
_COMMAND = """import sys
from synth_mtf import cli
sys.argv[0] = 'synth-mtf'
sys.exit(cli.main())
"""


@dataclasses.dataclass(frozen=True)
class Training:
  """A model that is trained on a task with a seed.

  Attributes:
    part: which it belongs to.
    task: what it is trained on.
    model: the row of the table.
    seed: of its data, initial values and dropout.
    folder: of its checkpoints.
    options: words for `synth-mtf transformer`: data and vocabulary.
  """

  part: Part
  task: str
  model: Model
  seed: int
  folder: pathlib.Path
  options: Sequence[str]

  def train(self, steps: int) -> None:
    """Trains up to a number of steps, unless that is done."""
    params = [
      f'utils.run.train_steps = {steps}',
      f'utils.run.save_checkpoints_steps = {_interval(self.part)}',
      'utils.run.skip_seen_data = True',
      'utils.run.seen_data_init_step = 0',
      f'mesh_train_dataset_fn.seed = {self.seed}',
      f'synth_mtf.train_with_progress.seed = {self.seed}',
    ]
    self._run_once(f'train_{steps}', 'pretrain_text', params)

  def measure(self, steps: Iterable[int]) -> None:
    """Evaluates checkpoints, unless that is done."""
    at = sorted({*steps})
    params = [
      f'eval_checkpoint_step = {at}',
      'utils.run.perplexity_eval_steps = 32',
    ]
    name = f'measure_{"_".join(map(str, at))}'
    self._run_once(name, 'perplexity_text', params)

  def value(self, steps: int) -> float:
    """What was measured; log perplexity without its minus.

    Raises:
      SystemExit: nothing was, or NaN.
    """
    for one in self._result.results:
      found = one.task, one.step, one.metric
      if (
        found == (self.task, steps, self.part.metric) and one.value is not None
      ):
        return -one.value if one.metric == PERPLEXITY else one.value
    raise SystemExit(f'{self.folder}: no {self.part.metric}')

  @property
  def steps_per_second(self) -> float:
    """Of its training, without what it trained on for equal time."""
    done = self.folder / f'train_{self.part.steps}.done'
    return json.loads(done.read_text())['steps_per_second'] or 0.0

  @property
  def _result(self) -> runs.Run:
    (run,) = runs.read(str(self.folder))
    return run

  def _run_once(self, name: str, run: str, params: Sequence[str]) -> None:
    """Runs `synth-mtf transformer` on one core, unless that is done.

    Raises:
      SystemExit: it has failed, or was done with other words.
    """
    inputs, targets = self.model.lengths or self.part.lengths
    words = [
      *(sys.executable, '-c', _COMMAND, 'transformer'),
      '--module_import=benchmarks.claims_tasks',
      f'--model_dir={self.folder}',
      *self.options,
      '--gin_file=sizes/tiny.gin',
      *(f'--gin_file=variants/{one}.gin' for one in self.model.variants),
      f'--gin_file=runs/{run}.gin',
      '--gin_file=runs/cpu.gin',
    ]
    for param in (
      f"MIXTURE_NAME = '{self.task}'",
      'utils.run.batch_size = 32',
      'utils.run.sequence_length = '
      f"{{'inputs': {inputs}, 'targets': {targets}}}",
      'Unitransformer.max_length = 128',
      *self.part.params,
      *self.model.params,
      *params,
    ):
      words.append(f'--gin_param={param}')
    done = self.folder / f'{name}.done'
    if done.exists():
      before = json.loads(done.read_text())['words']
      if before != words:
        raise SystemExit(
          f'{done} is of another command:\n{shlex.join(before)}\n'
          f'and not of\n{shlex.join(words)}\n'
          'Use another --out, or remove the folder.'
        )
      return
    self.folder.mkdir(parents=True, exist_ok=True)
    log = self.folder / 'log.txt'
    threads = {'TF_NUM_INTRAOP_THREADS': '1', 'TF_NUM_INTEROP_THREADS': '1'}
    environment = {**os.environ, **threads, 'PYTHONHASHSEED': '0'}
    with log.open('a', encoding='utf-8') as file:
      failed = subprocess.run(
        words, cwd=HERE, env=environment, stdout=file, stderr=file, check=False
      ).returncode
    if failed:
      raise SystemExit(
        f'{shlex.join(words)}\nhas failed: see {log}, which ends\n'
        f'{log.read_text()[-2000:]}'
      )
    speed = self._result.steps_per_second
    done.write_text(json.dumps({'words': words, 'steps_per_second': speed}))


def main(argv: Sequence[str]) -> None:
  """Runs the parts, and prints and writes the results of each.

  Args:
    argv: the command line without the program.
  """
  args = _parse(argv)
  for letter in args.parts:
    part = PARTS[letter]
    if args.steps:
      part = dataclasses.replace(part, steps=args.steps)
    trainings = list(_trainings(letter, part, args))
    found = _compare(part, trainings, args.jobs)
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / f'{letter}.json'
    path.write_text(json.dumps(found, indent=1) + '\n')
    print(f'\n{part.claim}\n{pd.DataFrame(found["rows"]).to_string()}')
    if found['agreement'] is not None:
      print(f"Kendall's tau with the paper's order: {found['agreement']:.2f}")


def _trainings(
  letter: str, part: Part, args: argparse.Namespace
) -> Iterator[Training]:
  vocabulary = args.vocabulary  # a file, or a name such as 'bytes'
  if os.path.exists(vocabulary):
    vocabulary = os.path.abspath(vocabulary)
  options = [f'--vocabulary={vocabulary}']
  if args.data_dir:
    options.append(f'--data_dir={os.path.abspath(args.data_dir)}')
  for task in args.tasks or part.tasks:
    for model in part.models:
      for seed in args.seeds:
        if args.models and model.name not in args.models:
          continue
        folder = args.out / letter / task / model.folder / f'seed_{seed}'
        yield Training(part, task, model, seed, folder, options)


def _compare(
  part: Part, trainings: Sequence[Training], jobs: int
) -> dict[str, Any]:
  """Trains and measures side by side, and returns what was measured."""

  def each(what: str, run: Callable[[Training], None]) -> None:
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:

      def one(number: int, training: Training) -> None:
        print(
          f'[{number}/{len(trainings)}] {what} {training.task} '
          f'{training.model.name}, seed {training.seed}',
          flush=True,
        )
        run(training)

      running = [
        pool.submit(one, number, training)
        for number, training in enumerate(trainings, 1)
      ]
      try:
        for done in concurrent.futures.as_completed(running):
          done.result()
      except BaseException:  # reported at once, and not after all the others
        pool.shutdown(cancel_futures=True)
        raise

  each('train', lambda training: training.train(part.steps))
  steps = {training.model.name: part.steps for training in trainings}
  if part.paper:
    steps = _of_equal_time(part, trainings)
    each('train', lambda t: t.train(max(part.steps, steps[t.model.name])))
  each('measure', lambda t: t.measure([part.steps, steps[t.model.name]]))
  rows: list[dict[str, Any]] = []
  for (task, name), several in _groups(trainings).items():
    row: dict[str, Any] = {
      'task': task,
      'model': name,
      'value': _spread([t.value(part.steps) for t in several]),
      'steps_per_second': _spread([t.steps_per_second for t in several]),
    }
    if part.paper:
      row['equal_time'] = _spread([t.value(steps[name]) for t in several])
      row['steps'] = steps[name]
      row['paper'] = part.paper.get(name)
    rows.append(row)
  means = {row['model']: row['value'][0] for row in rows}
  return {
    'steps': part.steps,
    'seeds': sorted({training.seed for training in trainings}),
    'rows': rows,
    'agreement': agreement(means, part.paper or {}),
  }


def _of_equal_time(part: Part, trainings: Sequence[Training]) -> dict[str, int]:
  """Steps, to the next checkpoint, in the time that V takes; by model."""
  speeds = {
    name: statistics.median(t.steps_per_second for t in several)
    for (_, name), several in _groups(trainings).items()
  }
  first = speeds.get('V', next(iter(speeds.values())))
  every = _interval(part)
  return {
    name: max(every, round(part.steps * speed / first / every) * every)
    for name, speed in speeds.items()
  }


def agreement(
  ours: dict[str, float], paper: dict[str, float]
) -> Optional[float]:
  """Returns Kendall's tau of two orders; None for fewer than two models."""
  both = [name for name in ours if name in paper]
  if len(both) < 2:
    return None
  columns = [pd.Series([of[name] for name in both]) for of in (ours, paper)]
  return columns[0].corr(columns[1], method='kendall')


def _groups(
  trainings: Iterable[Training],
) -> dict[tuple[str, str], list[Training]]:
  """The seeds of each task and model."""
  found: dict[tuple[str, str], list[Training]] = {}
  for training in trainings:
    key = training.task, training.model.name
    found.setdefault(key, []).append(training)
  return found


def _interval(part: Part) -> int:
  """Steps from a checkpoint to the next."""
  return max(1, part.steps // _CHECKPOINTS)


def _spread(values: Sequence[float]) -> list[float]:
  """Mean, and of several values the standard deviation."""
  spread = [statistics.stdev(values)] if len(values) > 1 else []
  return [round(x, 4) for x in [statistics.fmean(values), *spread]]


def _parse(argv: Sequence[str]) -> argparse.Namespace:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add = parser.add_argument
  add('parts', nargs='+', choices=sorted(PARTS), metavar='PART')
  add(
    '--out',
    type=lambda name: pathlib.Path(name).absolute(),
    default=pathlib.Path('claims').absolute(),
  )
  add('--seeds', nargs='+', type=int, default=[0, 1, 2])
  add('--models', nargs='+', help='these rows alone')
  add('--tasks', nargs='+', help='these tasks instead of those of the part')
  add('--steps', type=int, help='instead of those of the part')
  add('--jobs', type=int, default=os.cpu_count(), help='trainings side by side')
  add('--data_dir', help='text below corpus/: c, f and g')
  add('--vocabulary', default='bytes', help='of that data')
  return parser.parse_args(argv)


if __name__ == '__main__':
  main(sys.argv[1:])
