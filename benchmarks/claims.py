"""Trains small models to see whether the paper's ideas hold.

    python benchmarks/claims.py a b --out claims
    python benchmarks/claims.py c d --data_dir my_data --vocabulary my.model
    python benchmarks/claims.py e

The parts are

  a  what depends on positions alone (copy, reverse): R, FR, D beside V
  b  what depends on pairs of tokens (what came after this word?): R and D
     beside V, R+V and D+V, in self- and in cross-attention; the mixtures also
     with an alpha that is learned at the learning rate
  c  span corruption on text, at equal steps and at equal time, of the systems
     of Table 4, with the paper's order beside ours
  d  finetuning on three real tasks, from the models of c
  e  steps/s of the same systems beside Table 4's, at the size of T5 (Base) with
     fewer blocks
  f  ablations on span corruption: rank of FR, factors of FD, heads of R+V,
     mixing, N
  g  cross-attention: R, FR, D, R+V and D+V in place of V, on copying, text and
     translation

Each model runs with each seed, in <out>/<part>/<task>/<model>/seed_<n>, which
`synth-mtf table`, `plot` and `report` read; what the command says is in `log`
there. What is done is not done again, and what was stopped goes on. As many
models train side by side as there are cores, each on one of them, so that time
is compared among equals; part e takes turns instead. <out>/<part>.md is the
table of a part: mean and standard deviation over seeds, and the minutes.

c, d, f and g read --data_dir: text below corpus/, the official files of the
tasks of d, and a pair of languages in the place of wmt14_en_de for g.
"""

import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Optional

import pandas as pd
import tabulate

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import synth_mtf  # noqa: F401  (readies the host)
from benchmarks import _commands
from benchmarks._claims_parts import (
  PAPER_SPEED,
  PARTS,
  PERPLEXITY,
  SYSTEMS,
  Model,
  Part,
)
from synth_mtf.results import runs

_SPEED_PART = 'e'
_SPEED_OPTIONS = ['--layers', '4', '--rounds', '3']
_CHECKPOINTS = 10  # while a model trains


@dataclasses.dataclass(frozen=True)
class Training:
  """A model that is trained on a task with a seed.

  Attributes:
    part: which it belongs to.
    task: what it is trained on.
    model: the row of the table.
    seed: of its data, initial values and dropout.
    folder: of its checkpoints.
    start: a checkpoint that it begins with, or ''.
    options: words for `synth-mtf transformer`: data and vocabulary.
  """

  part: Part
  task: str
  model: Model
  seed: int
  folder: pathlib.Path
  start: str
  options: Sequence[str]

  @property
  def first_step(self) -> int:
    """Steps that its checkpoint has counted."""
    return int(self.start.rpartition('-')[2]) if self.start else 0

  def train(self, steps: int) -> None:
    """Trains up to a number of steps of its own, unless that is done."""
    last = self.first_step + steps
    run = 'finetune_en_mix' if self.start else 'pretrain_text'
    params = [
      f'utils.run.train_steps = {last}',
      f'utils.run.save_checkpoints_steps = {_interval(self.part)}',
      'utils.run.skip_seen_data = True',
      f'utils.run.seen_data_init_step = {self.first_step}',
      f'mesh_train_dataset_fn.seed = {self.seed}',
      f'synth_mtf.train_with_progress.seed = {self.seed}',
    ]
    if self.start:
      params += [
        f"utils.run.init_checkpoint = '{self.start}'",
        'utils.run.variable_filter = None',
        'constant_learning_rate.learning_rate = 0.01',
      ]
    self._once(f'train_{last}', run, params)

  def measure(self, steps: Iterable[int]) -> None:
    """Evaluates checkpoints, unless that is done."""
    at = sorted({self.first_step + step for step in steps})
    self._once(
      f'measure_{"_".join(map(str, at))}',
      'perplexity_text' if self.part.metric else 'eval_en_mix',
      [
        f'eval_checkpoint_step = {at}',
        'utils.run.perplexity_eval_steps = 32'
        if self.part.metric
        else 'Bitransformer.decode.max_decode_length = 8',
      ],
    )

  def value(self, steps: int) -> float:
    """What was measured; log perplexity without its minus.

    Raises:
      SystemExit: it was not, or is no number.
    """
    found = [
      one.value
      for one in self._run.results
      if one.task == self.task
      and one.step == self.first_step + steps
      and self.part.metric in (None, one.metric)
    ]
    numbers = [value for value in found if value is not None]
    if not numbers or len(numbers) < len(found):
      raise SystemExit(f'{self.folder}: no {self.part.metric or "score"}')
    mean = statistics.fmean(numbers)
    return -mean if self.part.metric == PERPLEXITY else mean

  @property
  def steps_per_second(self) -> float:
    """Of its training, without what it trained on for equal time."""
    path = self.folder / f'train_{self.first_step + self.part.steps}.speed'
    if not path.exists():
      speed = self._run.steps_per_second
      if speed is None:
        raise SystemExit(f'{self.folder}: its speed is not known')
      path.write_text(repr(speed))
    return float(path.read_text())

  @property
  def seconds(self) -> float:
    """What all of it has taken."""
    return sum(
      json.loads(path.read_text())['seconds']
      for path in self.folder.glob('*.done')
    )

  @property
  def _run(self) -> runs.Run:
    (run,) = runs.read(str(self.folder))
    return run

  def _once(self, name: str, run: str, params: Sequence[str]) -> None:
    inputs, targets = self.model.lengths or self.part.lengths
    words = [
      'transformer',
      '--module_import=benchmarks._claims_tasks',
      f'--model_dir={self.folder}',
      *self.options,
      '--gin_file=sizes/tiny.gin',
      *(f'--gin_file=variants/{one}.gin' for one in self.model.variants),
      f'--gin_file=runs/{run}.gin',
      '--gin_file=runs/cpu.gin',
    ]
    common = [
      f"MIXTURE_NAME = '{self.task}'",
      'utils.run.batch_size = 32',
      'utils.run.sequence_length = '
      f"{{'inputs': {inputs}, 'targets': {targets}}}",
      'Unitransformer.max_length = 128',
    ]
    for param in (*common, *self.part.params, *self.model.params, *params):
      words.append(f'--gin_param={param}')
    _once(self.folder / name, ['synth-mtf', *words], _commands.call)


def main(argv: Sequence[str]) -> None:
  """Runs the parts, each with its table at its end.

  Args:
    argv: the command line without the program.
  """
  args = _parse(argv)
  for letter in args.parts:
    if letter == _SPEED_PART:
      text = _speeds(args)
    else:
      part = PARTS[letter]
      if args.steps:
        part = dataclasses.replace(part, steps=args.steps)
      text = _compare(part, list(_trainings(letter, part, args)), args.jobs)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / f'{letter}.md').write_text(text, encoding='utf-8')
    print(text)


def _trainings(
  letter: str, part: Part, args: argparse.Namespace
) -> Iterable[Training]:
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
        below = pathlib.Path(task, model.folder, f'seed_{seed}')
        start = ''
        if part.begins_with:
          before = PARTS[part.begins_with]
          there = args.out / part.begins_with / before.tasks[0]
          there = there / model.folder / f'seed_{seed}'
          start = str(there / f'model.ckpt-{args.steps or before.steps}')
        yield Training(
          part, task, model, seed, args.out / letter / below, start, options
        )


def _compare(part: Part, trainings: Sequence[Training], jobs: int) -> str:
  """Trains and measures side by side, and returns the table."""
  _commands.start()
  with concurrent.futures.ThreadPoolExecutor(jobs) as pool:

    def each(what: str, steps: Mapping[str, int]) -> None:
      def one(number: int, training: Training) -> None:
        print(
          f'[{number}/{len(trainings)}] {what} {training.task} '
          f'{training.model.name}, seed {training.seed}',
          flush=True,
        )
        last = steps[training.model.name]
        if what == 'train':
          training.train(last)
        else:
          training.measure([part.steps, last])

      running = [
        pool.submit(one, number, training)
        for number, training in enumerate(trainings, 1)
      ]
      try:
        for done in concurrent.futures.as_completed(running):
          done.result()
      except BaseException:  # said at once, and not after all the others
        pool.shutdown(cancel_futures=True)
        raise

    names = [training.model.name for training in trainings]
    steps = dict.fromkeys(names, part.steps)
    each('train', steps)
    if part.paper:
      steps = _of_equal_time(part, trainings)
      longer = {name: max(n, part.steps) for name, n in steps.items()}
      each('train', longer)
    each('measure', steps)
  return _table(part, trainings, steps)


def _of_equal_time(part: Part, trainings: Sequence[Training]) -> dict[str, int]:
  """Steps, to the next checkpoint, in the time that V takes; by model."""
  speeds = {
    name: statistics.median(t.steps_per_second for t in several)
    for name, several in _by_model(trainings).items()
  }
  first = speeds.get('V', next(iter(speeds.values())))
  every = _interval(part)
  return {
    name: max(every, round(part.steps * speed / first / every) * every)
    for name, speed in speeds.items()
  }


def _by_model(trainings: Iterable[Training]) -> dict[str, list[Training]]:
  found: dict[str, list[Training]] = {}
  for training in trainings:
    found.setdefault(training.model.name, []).append(training)
  return found


def _interval(part: Part) -> int:
  """Steps from a checkpoint to the next."""
  return max(1, part.steps // _CHECKPOINTS)


def _table(
  part: Part, trainings: Sequence[Training], steps: Mapping[str, int]
) -> str:
  """Returns the table of a part as Markdown."""
  what = {PERPLEXITY: 'log perplexity', None: 'score'}.get(
    part.metric, 'tokens right'
  )
  headers = ['task', 'model', what, 'steps/s']
  if part.paper:
    headers += [f'{what} in the time of V', 'steps of it', 'the paper']
  lines = []
  means: dict[str, float] = {}
  for task in dict.fromkeys(training.task for training in trainings):
    here = [training for training in trainings if training.task == task]
    for name, several in _by_model(here).items():
      values = [t.value(part.steps) for t in several]
      means[name] = statistics.fmean(values)
      line = [
        task,
        name,
        _spread(values, '.3f'),
        _spread([t.steps_per_second for t in several], '.1f'),
      ]
      if part.paper:
        line += [
          _spread([t.value(steps[name]) for t in several], '.3f'),
          str(steps[name]),
          format(part.paper[name], '.3f') if name in part.paper else '',
        ]
      lines.append(line)
  minutes = sum(training.seconds for training in trainings) / 60
  seeds = len({training.seed for training in trainings})
  sentences = [
    f'{part.steps} steps, {seeds} seeds, {len(trainings)} trainings, '
    f'{minutes:.0f} minutes of one core.',
    part.note,
  ]
  if part.paper:
    sentences.append(agreement(means, part.paper))
  return (
    f'{part.claim}\n\n{_markdown(lines, headers)}\n\n'
    + '\n'.join(filter(None, sentences))
    + '\n'
  )


def agreement(ours: Mapping[str, float], paper: Mapping[str, float]) -> str:
  """Returns Kendall's tau of two orders."""
  both = [name for name in ours if name in paper]
  if len(both) < 2:
    return ''
  tau = pd.Series([ours[name] for name in both]).corr(
    pd.Series([paper[name] for name in both]), method='kendall'
  )
  return (
    f"Kendall's tau between the paper's order and ours at equal steps: "
    f'{tau:.2f} ({len(both)} models).'
  )


def _speeds(args: argparse.Namespace) -> str:
  """Times the systems in turn in one process, and returns the table."""
  names = [
    f'{model.variants[0]}, fast_cpu'
    for model in SYSTEMS
    if not args.models or model.name in args.models
  ]
  found = args.out / _SPEED_PART / 'speeds.json'
  options = args.speed_options or _SPEED_OPTIONS
  _once(
    found,
    [
      *(sys.executable, '-m', 'benchmarks.attention', '--sections', 'model'),
      *('--variants', 'SelfAttention, fast_cpu', *names),
      *(*options, '--json', str(found)),
    ],
    _commands.call_alone,
  )
  entries = json.loads(found.read_text())['model']['contestants']
  v = entries['vanilla, fast_cpu']['seconds']['median']
  lines = []
  for model in SYSTEMS:
    entry = entries.get(f'{model.variants[0]}, fast_cpu')
    if entry:
      seconds = entry['seconds']['median']
      paper: Optional[float] = PAPER_SPEED.get(model.name)
      lines.append(
        [
          model.name,
          f'{1 / seconds:.2f}',
          f'{v / seconds:.2f}',
          '' if paper is None else f'{paper:.2f}',
        ]
      )
  headers = ['model', 'steps/s', 'x V', 'the paper, on TPUs']
  return (
    'Steps/s of a whole training step, in turns.\n\n'
    f'{_markdown(lines, headers)}\n\n{" ".join(options)}\n'
  )


def _once(
  path: pathlib.Path,
  words: Sequence[str],
  call: Callable[[Sequence[str], pathlib.Path], int],
) -> None:
  """Runs a command, unless that is done, and marks it with <path>.done.

  Args:
    path: the folder, and what the command does there.
    words: the command line.
    call: runs it with a log, and returns its exit status.

  Raises:
    SystemExit: it has failed, or was done with other words.
  """
  done = path.with_name(f'{path.name}.done')
  if done.exists():
    before = json.loads(done.read_text()).get('words', [])
    if before != words:
      raise SystemExit(
        f'{done} is of another command:\n{shlex.join(before)}\n'
        f'and not of\n{shlex.join(words)}\n'
        'Take another --out, or remove the folder.'
      )
    return
  begun = time.monotonic()
  log = path.with_name('log.txt')
  log.parent.mkdir(parents=True, exist_ok=True)
  if call(words, log):
    raise SystemExit(
      f'{shlex.join(words)}\nhas failed: see {log}, which ends\n'
      f'{log.read_text()[-2000:]}'
    )
  done.write_text(
    json.dumps({'seconds': time.monotonic() - begun, 'words': words})
  )


def _markdown(lines: Sequence[Sequence[Any]], headers: Sequence[str]) -> str:
  left = [h in ('task', 'model') for h in headers]
  return tabulate.tabulate(
    lines,
    headers,
    'pipe',
    colalign=['left' if one else 'right' for one in left],
    disable_numparse=True,
  )


def _spread(values: Sequence[float], form: str) -> str:
  """Mean, and of several values the standard deviation."""
  mean = format(statistics.fmean(values), form)
  if len(values) == 1:
    return mean
  return f'{mean}±{statistics.stdev(values):{form}}'


def _parse(argv: Sequence[str]) -> argparse.Namespace:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  letters = sorted([*PARTS, _SPEED_PART])
  add = parser.add_argument
  add('parts', nargs='+', choices=letters, metavar='PART')
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
  add('--data_dir', help='text below corpus/, official files: c, d, f and g')
  add('--vocabulary', default='bytes', help='of that data')
  add(
    '--speed_options',
    type=str.split,
    help='of benchmarks/attention.py, for e '
    f'(default: {" ".join(_SPEED_OPTIONS)!r})',
  )
  return parser.parse_args(argv)


if __name__ == '__main__':
  main(sys.argv[1:])
