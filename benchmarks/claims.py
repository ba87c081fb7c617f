"""Trains small models to test whether the paper's ideas hold.

    python -m benchmarks.claims a b --out claims
    python -m benchmarks.claims c f --data_dir my_data --vocabulary my.model

The parts are

  a  tasks that depend only on positions (copy, reverse): R, FR and D against V
  b  a task that depends on pairs of tokens (which capital followed this
     letter?): R and D against V, R+V and D+V, in self- and cross-attention; the
     mixtures also with an alpha that is learned at the learning rate
  c  span corruption on text, with the systems of Table 4
  f  ablations on span corruption: rank of FR, factors of FD, heads of R+V,
     mixing, N
  g  cross-attention: R, FR, D, R+V and D+V instead of V, on copying, text and
     translation
  h  sentence pairs: encoders with R, D, V, R+V and D+V on a class that depends
     on two sentences, and on one that depends on one of them
  i  the same in an encoder and a decoder, whose cross-attention is T5's
  j  recall in context by language models: V, V with frozen queries and keys,
     Fix, R, R+V
  k  translation: the further functions of version 1 against D, R with 2 to 32
     heads
  l  encoders that classify news and reviews: FR and FR+V against Linformer and
     V
  m  dialogue: R and D against V and the mixtures with V
  n  where language models look: the share of attention within a window, before
     training and after it
  p  translation: the systems of Table 2
  q  language models of sentences: systems of Table 2
  r  summaries: the systems of Table 3, and R+D

Each model trains with each seed in <out>/<part>/<task>/<model>/seed_<n>, which
`synth-mtf table`, `plot` and `report` read. A second call skips finished models
and resumes interrupted ones. <out>/<part>.json has the numbers of the seeds,
their means and standard deviations. Parts read from --data_dir: text below
corpus/ (c, f, g, n), a language pair in the folder of wmt14_en_de (g, k, p),
AG News and IMDB (l), PersonaChat (m), LM1B (q), CNN/DailyMail (r).

By default, one model trains on each core at a time. With --device, one model
after another trains on a device that JAX finds, as with `synth-mtf transformer
--device`; CUDA_VISIBLE_DEVICES chooses one of several GPUs. More --jobs share a
GPU if XLA_PYTHON_CLIENT_PREALLOCATE=false is set.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import shlex
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pandas as pd

from benchmarks import _forks
from benchmarks.claims_parts import PARTS, PERPLEXITY, Model, Part
from benchmarks.windows import share_within
from synth_mtf.attention import file
from synth_mtf.results import runs

_CHECKPOINTS = 10  # saved during training
# As without --device.
_ACTIVATIONS = "utils.get_variable_dtype.activation_dtype = 'float32'"
_ONE_THREAD = {f'TF_NUM_{x}_THREADS': '1' for x in ('INTRAOP', 'INTEROP')}


@dataclasses.dataclass(frozen=True)
class Training:
  """One model trained on one task with one seed.

  Attributes:
    part: the part that it belongs to.
    task: name of the task.
    model: its row in the table.
    seed: seed of the data, initial values and dropout.
    folder: folder for its checkpoints.
    data: flags for the data, which all trainings share.
    device: flags of `synth-mtf transformer`, likewise.
  """

  part: Part
  task: str
  model: Model
  seed: int
  folder: pathlib.Path
  data: Sequence[str]
  device: Sequence[str]

  def train(self, steps: int) -> None:
    """Trains up to a number of steps, unless already done."""
    self._run_once(
      f'train_{steps}',
      'pretrain_text',
      f'utils.run.train_steps = {steps}',
      f'utils.run.save_checkpoints_steps = {_interval(self.part)}',
      'utils.run.skip_seen_data = True',
      'utils.run.seen_data_init_step = 0',
      f'mesh_train_dataset_fn.seed = {self.seed}',
      f'synth_mtf.train_with_progress.seed = {self.seed}',
    )

  def measure(self, step: int) -> None:
    """Evaluates a checkpoint, unless already done."""
    self._run_once(
      f'measure_{step}',
      'perplexity_text',
      f"utils.run.dataset_split = '{self.part.held_out}'",
      f'eval_checkpoint_step = [{step}]',
      'utils.run.perplexity_eval_steps = 32',
    )

  def value(self, steps: int) -> float:
    """Returns the metric at a step; a negative log perplexity is negated."""
    asked = self.task, steps, self.part.metric
    for one in runs.read(str(self.folder))[0].results:
      if (one.task, one.step, one.metric) == asked and one.value is not None:
        return -one.value if one.metric == PERPLEXITY else one.value
    raise SystemExit(f'{self.folder}: no {self.part.metric}')

  def share(self, step: int, window: int) -> float:
    """Returns the share of self-attention within a window, on held-out rows."""
    path = self.folder / f'attention_{step}.npz'
    if not path.exists():
      self._run(
        *('attention', str(self.folder), f'--step={step}', f'--out={path}'),
        *(f'--task={self.task}', f'--split={self.part.held_out}'),
        *('--examples=32', '--module_import=benchmarks.claims_tasks'),
        *self.data,
      )
    attention = file.read(str(path))
    stacks = [x for name, x in attention.stacks.items() if name != 'cross']
    return statistics.fmean(share_within(x.weights, window) for x in stacks)

  def _run_once(self, name: str, run: str, *params: str) -> None:
    """Runs `synth-mtf transformer` on one core, unless already done."""
    done = self.folder / f'{name}.done'
    if done.exists():
      return
    inputs, targets = self.model.lengths or self.part.lengths
    lengths = {'inputs': inputs, 'targets': targets}
    if self.part.model_type == 'aligned':
      lengths['targets_segmentation'] = targets
    bindings = (
      f"utils.run.model_type = '{self.part.model_type}'",
      f"MIXTURE_NAME = '{self.task}'",
      'utils.run.batch_size = 32',
      f'utils.run.sequence_length = {lengths}',
      'Unitransformer.max_length = 128',
      *self.part.params,
      *self.model.params,
      *params,
    )
    self.folder.mkdir(parents=True, exist_ok=True)
    self._run(
      *('transformer', '--module_import=benchmarks.claims_tasks'),
      f'--model_dir={self.folder}',
      *self.data,
      *self.device,
      '--gin_file=sizes/tiny.gin',
      *(f'--gin_file=variants/{one}.gin' for one in self.model.variants),
      f'--gin_file=runs/{run}.gin',
      '--gin_file=runs/cpu.gin',
      *(f'--gin_param={binding}' for binding in bindings),
    )
    done.touch()

  def _run(self, *words: str) -> None:
    """Runs `synth-mtf` on one core; its output goes to log.txt."""
    log = self.folder / 'log.txt'
    if _forks.run(words, log, _ONE_THREAD):
      raise SystemExit(
        f'synth-mtf {shlex.join(words)}\nhas failed: see {log}, which ends\n'
        f'{log.read_text()[-2000:]}'
      )


def main(argv: Sequence[str]) -> None:
  """Runs the parts; prints and writes the results of each."""
  args = _parse(argv)
  for letter in args.parts:
    part = PARTS[letter]
    if args.steps:
      part = dataclasses.replace(part, steps=args.steps)
    trainings = list(_trainings(letter, part, args))
    found = _compare(part, trainings, _jobs(args))
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / f'{letter}.json'
    path.write_text(json.dumps(found, indent=1) + '\n')
    print(f'\n{part.claim}\n{pd.DataFrame(found["rows"]).to_string()}')
    if found['agreement'] is not None:
      print(f"Kendall's tau with the paper's order: {found['agreement']:.2f}")


def _jobs(args: argparse.Namespace) -> int:
  """Returns how many models train at the same time."""
  cores = os.cpu_count() or 1
  return args.jobs or (1 if args.device else cores)


def _trainings(
  letter: str, part: Part, args: argparse.Namespace
) -> Iterator[Training]:
  vocabulary = args.vocabulary  # a file, or a name such as 'bytes'
  if os.path.exists(vocabulary):
    vocabulary = os.path.abspath(vocabulary)
  data = [f'--vocabulary={vocabulary}']
  if args.data_dir:
    data.append(f'--data_dir={os.path.abspath(args.data_dir)}')
  device = []
  if args.device:
    device = [f'--device={args.device}', f'--gin_param={_ACTIVATIONS}']
  for task in args.tasks or part.tasks:
    for model in part.models:
      for seed in args.seeds:
        if args.models and model.name not in args.models:
          continue
        folder = args.out / letter / task / model.folder / f'seed_{seed}'
        yield Training(part, task, model, seed, folder, data, device)


def _compare(
  part: Part, trainings: Sequence[Training], jobs: int
) -> dict[str, Any]:
  """Trains and evaluates in parallel, and returns the results."""

  def each(what: str, run: Callable[[Training], None]) -> None:
    def one(training: Training) -> None:
      print(what, training.folder, flush=True)
      run(training)

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
      try:
        # Reports the first error at once, not after all the other runs.
        list(pool.map(one, trainings))
      except BaseException:
        pool.shutdown(cancel_futures=True)
        raise

  each('train', lambda training: training.train(part.steps))
  each('measure', lambda training: training.measure(part.steps))
  rows: list[dict[str, Any]] = []
  for (task, name), several in _groups(trainings).items():
    row: dict[str, Any] = {
      'task': task,
      'model': name,
      **of_seeds('value', several, lambda t: t.value(part.steps)),
    }
    if part.paper:
      row['paper'] = part.paper.get(name)
    if window := part.window:
      row['window'] = window
      row |= of_seeds('share_at_first', several, lambda t: t.share(0, window))
      row |= of_seeds('share', several, lambda t: t.share(part.steps, window))
    rows.append(row)
  return {
    'steps': part.steps,
    'seeds': sorted({training.seed for training in trainings}),
    'rows': rows,
    'agreement': agreement(
      {row['model']: row['value'][0] for row in rows}, part.paper or {}
    ),
  }


def agreement(ours: dict[str, float], paper: dict[str, float]) -> float | None:
  """Returns Kendall's tau of two orders, None for fewer than two models."""
  both = [name for name in ours if name in paper]
  if len(both) < 2:
    return None
  return pd.Series(ours)[both].corr(pd.Series(paper)[both], method='kendall')


def _groups(
  trainings: Iterable[Training],
) -> dict[tuple[str, str], list[Training]]:
  """Groups trainings by task and model, with all seeds in one group."""
  found = collections.defaultdict(list)
  for training in trainings:
    found[training.task, training.model.name].append(training)
  return found


def _interval(part: Part) -> int:
  return max(1, part.steps // _CHECKPOINTS)


def of_seeds(
  name: str, trainings: Sequence[Training], number: Callable[[Training], float]
) -> dict[str, Any]:
  """Returns a number of each seed, their mean and their standard deviation."""
  of_seeds = {str(t.seed): number(t) for t in trainings}
  values = [*of_seeds.values()]
  spread = [statistics.stdev(values)] if len(values) > 1 else []
  mean = [round(x, 4) for x in [statistics.fmean(values), *spread]]
  return {name: mean, f'{name}_of_seeds': of_seeds}


def _parse(argv: Sequence[str]) -> argparse.Namespace:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add = parser.add_argument
  add('parts', nargs='+', choices=sorted(PARTS), metavar='PART')
  add('--out', type=lambda x: pathlib.Path(x).absolute(), default='claims')
  add('--seeds', nargs='+', type=int, default=[0, 1, 2])
  add('--models', nargs='+', help='these rows alone')
  add('--tasks', nargs='+', help='these tasks instead of those of the part')
  add('--steps', type=int, help='instead of those of the part')
  add('--device', choices=['cpu', 'gpu', 'tpu'], help='see above')
  add('--jobs', type=int, help='trainings side by side: see above')
  add('--data_dir', help='text below corpus/, and more: see above')
  add('--vocabulary', default='bytes', help='of that data')
  return parser.parse_args(argv)


if __name__ == '__main__':
  main(sys.argv[1:])
