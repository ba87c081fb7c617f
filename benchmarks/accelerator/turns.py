r"""Trains the parts that `claims` wrote, with several seeds, in turns.

    python -m benchmarks.accelerator.turns FOLDER --out out --seconds 100 \
      --gpu_parts k m n o

Models are divided among processes of one core, and those of --gpu_parts among
--gpu_processes that share the accelerator. In each process, all models with all
seeds take turns of a tenth of their steps, so that all have taken about the
same number when the time is over.

OUT/claims_PART.json has a row for each task and model: the mean and standard
deviation of the validation loss, in nats for each token of the targets, after
the largest number of steps that all trainings of the part have taken; and the
losses of each seed at all steps. For a part with a window, it also has the
share of R's attention within the window, by table, seed and step; the tables
of the first seed, before and after, are in OUT/tables_WORKER.npz, in float16.
This needs only JAX and NumPy.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

TURNS = 10
_START = time.monotonic()
Batch = Mapping[str, Any]


class Training:
  """A program in training on a task, with a seed."""

  def __init__(
    self, unit: 'Unit', task: str, seed: int, program: Any, step: Any
  ) -> None:
    self.unit, self.task, self.seed = unit, task, seed
    self._program, self._step = program, step
    self._device = unit.device
    self._state = program.initial(unit.device, seed)
    self._batches = unit.batches(task, 'train', seed)
    self.taken = 0
    self.validation: list[list[float]] = []
    self.shares: dict[str, list[list[float]]] = {}
    self.tables: dict[str, Any] = {}

  def train(self, steps: int) -> None:
    """Trains up to a number of steps."""
    loss = None
    for _ in range(steps - self.taken):
      features = self._program.features(next(self._batches), self._device)
      loss, self._state = self._step(features, self._state)
    if loss is not None:
      loss.block_until_ready()
    self.taken = steps

  def evaluate(self) -> None:
    """Records the loss of the validation rows."""
    import numpy as np

    total, tokens = 0.0, 0
    for batch in self.unit.held_out(self.task):
      features = self._program.features(batch, self._device)
      # The step reuses the memory of what it is given.
      copies = [variable.copy() for variable in self._state]
      loss, _ = self._step(features, copies)
      total += float(np.asarray(loss))
      tokens += np.count_nonzero(batch['targets'])
    self.validation.append([self.taken, total / tokens])
    if self.unit.window:
      self._look()

  def _look(self) -> None:
    """Records where R looks."""
    import jax
    import numpy as np

    from benchmarks.accelerator.windows import share_within

    for variable, value in zip(
      self._program.description['state'], self._state, strict=True
    ):
      name = variable['name']
      if name.endswith('/random/R'):
        table = jax.device_get(value)
        is_encoder = name.startswith('encoder')
        length = self.unit.lengths[not is_encoder]
        near = share_within(
          table[:, :length, :length], self.unit.window, causal=not is_encoder
        )
        self.shares.setdefault(name, []).append([self.taken, round(near, 5)])
        if self.seed == self.unit.first_seed:
          when = 'after' if self.taken else 'before'
          self.tables[f'{self.unit.part}|{when}|{name}'] = table.astype(
            np.float16
          )


class Unit:
  """A model of a part: one program, trained on each task with each seed."""

  def __init__(
    self, folder: pathlib.Path, part: str, plan: Mapping[str, Any], model: str
  ) -> None:
    self.folder, self.part, self.model = folder / part, part, model
    self.file = plan['models'][model]
    self.tasks, self.steps = plan['tasks'], plan['steps']
    self.window, self.lengths = plan['window'], plan['lengths']
    self.device: Any = None
    self.first_seed = 0
    self._arrays: dict[str, Mapping[str, Any]] = {}

  def rows(self, task: str, split: str) -> Mapping[str, Any]:
    """Returns the ids of a split by feature, [rows, length]."""
    import numpy as np

    if task not in self._arrays:
      with np.load(self.folder / f'{task}.npz') as file:
        self._arrays[task] = dict(file)
    return {
      name.partition('_')[2]: ids
      for name, ids in self._arrays[task].items()
      if name.startswith(split + '_')
    }

  def batches(self, task: str, split: str, seed: int) -> Iterator[Batch]:
    """Yields batches without end, in an order that depends on the seed."""
    import numpy as np

    rows = self.rows(task, split)
    rng = np.random.default_rng(seed)
    while True:
      order = rng.permutation(len(rows['targets']))
      for start in range(0, len(order) - self.size + 1, self.size):
        chosen = order[start : start + self.size]
        yield {name: ids[chosen] for name, ids in rows.items()}

  def held_out(self, task: str) -> Iterator[Batch]:
    """Yields the validation rows in whole batches, 8 at most."""
    rows = self.rows(task, 'validation')
    last = min(len(rows['targets']), 8 * self.size) - self.size + 1
    for start in range(0, last, self.size):
      yield {name: ids[start : start + self.size] for name, ids in rows.items()}

  @property
  def size(self) -> int:
    return self.description['size']['batch']

  @property
  def description(self) -> Mapping[str, Any]:
    return json.loads((self.folder / f'{self.file}.json').read_text())


def work(args: argparse.Namespace) -> None:
  """Trains the units of one process."""
  import jax

  from benchmarks.accelerator import programs

  path = args.out / f'worker_{args.worker}.json'
  plan = json.loads((args.folder / 'plan.json').read_text())
  units = [
    Unit(args.folder, part, plan[part], model)
    for part, model in (name.split(':', 1) for name in args.units)
  ]
  device = jax.devices()[0]
  loaded = {}
  for unit in units:
    unit.device = device
    unit.first_seed = args.seeds[0]
    loaded[unit] = programs.Program.read(unit.folder, unit.file)
  compiled = programs.compile_all(loaded, device, args.seconds)
  results: dict[str, Any] = {
    'device': device.device_kind,
    'compiled': time.monotonic() - _START,
    'errors': {},
    'trainings': [],
  }
  trainings = []
  for unit, step in compiled.items():
    if isinstance(step, Exception):
      results['errors'][f'{unit.part}:{unit.model}'] = repr(step)[-1000:]
      continue
    trainings += [
      Training(unit, task, seed, loaded[unit], step)
      for seed in args.seeds
      for task in unit.tasks
    ]
  print(f'worker {args.worker}: {len(compiled)} compiled in '
        f'{results["compiled"]:.0f} s', flush=True)  # fmt: skip
  tables: dict[str, Any] = {}
  longest: dict[int, float] = {}
  turn, ended = 0, False
  for turn in range(TURNS + 1):
    for number, training in enumerate(trainings):
      began = time.monotonic()
      if began - _START + longest.get(number, 0.0) > args.seconds:
        ended = True
        continue
      try:
        training.train(_steps(args, training.unit) * turn // TURNS)
        training.evaluate()
      except Exception:
        name = f'{training.unit.part}:{training.unit.model}'
        results['errors'][name] = traceback.format_exc()[-2000:]
      longest[number] = time.monotonic() - began
    results['trainings'] = [
      {
        'part': training.unit.part,
        'task': training.task,
        'model': training.unit.model,
        'seed': training.seed,
        'validation': training.validation,
        'shares': training.shares,
      }
      for training in trainings
    ]
    path.write_text(json.dumps(results))
    for training in trainings:
      tables |= training.tables
    if ended:
      break
  if tables:
    import numpy as np

    np.savez_compressed(args.out / f'tables_{args.worker}.npz', **tables)
  print(f'worker {args.worker}: ends after {turn} turns, '
        f'{time.monotonic() - _START:.0f} s', flush=True)  # fmt: skip


def _steps(args: argparse.Namespace, unit: Unit) -> int:
  return args.steps or unit.steps


def main(argv: Sequence[str] | None = None) -> None:
  """Starts the processes and collects their results."""
  args = _parse(argv)
  args.out.mkdir(parents=True, exist_ok=True)
  if args.units:
    work(args)
    os._exit(0)  # do not wait for compilations that took too long
  plan = json.loads((args.folder / 'plan.json').read_text())
  letters = args.parts or list(plan)
  on_gpu = [x for x in letters if x in args.gpu_parts]
  on_cpu = [x for x in letters if x not in args.gpu_parts]
  shares = {
    'gpu': _shares(plan, on_gpu, args.gpu_processes),
    'cpu': _shares(plan, on_cpu, args.cpu_processes),
  }
  processes: dict[str, subprocess.Popen[bytes]] = {}
  core = 0
  for kind, several in shares.items():
    for share in several:
      worker = f'{kind}_{len(processes)}'
      environment = dict(os.environ)
      command = [sys.executable, '-m', 'benchmarks.accelerator.turns']
      if kind == 'cpu':
        environment['JAX_PLATFORMS'] = 'cpu'
        environment['XLA_FLAGS'] = '--xla_cpu_multi_thread_eigen=false'
        command = ['taskset', '-c', str(core % (os.cpu_count() or 1)), *command]
        core += 1
      else:
        environment['XLA_PYTHON_CLIENT_PREALLOCATE'] = 'false'
        # Products are small: looking for the fastest takes longer than they do.
        environment['XLA_FLAGS'] = '--xla_gpu_autotune_level=0'
      command += [str(args.folder), '--out', str(args.out)]
      command += ['--seconds', str(args.seconds), '--worker', worker]
      command += ['--seeds', *map(str, args.seeds), '--units', *share]
      if args.steps:
        command += ['--steps', str(args.steps)]
      processes[worker] = subprocess.Popen(command, env=environment)
  limit = args.seconds + 15
  for worker, process in processes.items():
    try:
      status = process.wait(max(1.0, limit - (time.monotonic() - _START)))
    except subprocess.TimeoutExpired:
      process.kill()
      print(f'worker {worker}: killed after {limit:.0f} s', flush=True)
    else:
      if status:
        print(f'worker {worker}: ended with status {status}', flush=True)
    if not (args.out / f'worker_{worker}.json').exists():
      print(f'worker {worker}: its models have no results', flush=True)
  for part, found in results(collect(args.out), plan).items():
    path = args.out / f'claims_{part}.json'
    path.write_text(json.dumps(found, indent=1) + '\n')
    print(f'{part} after {found["steps"]} steps: {found["claim"]}')
    for row in found['rows']:
      print(f'  {row["task"]:26} {row["model"]:18} {row["value"]}', flush=True)


def _shares(
  plan: Mapping[str, Any], letters: Sequence[str], processes: int
) -> list[list[str]]:
  """Divides the models of the parts among processes, each part among all."""
  units = [f'{x}:{model}' for x in letters for model in plan[x]['models']]
  shares = [units[i::processes] for i in range(processes)]
  return [share for share in shares if share]


def collect(out: pathlib.Path) -> list[dict[str, Any]]:
  """Returns the trainings of all processes."""
  found = []
  for path in sorted(out.glob('worker_*.json')):
    results = json.loads(path.read_text())
    for name, error in results['errors'].items():
      print(f'{path.name}: {name}: {error}')
    for training in results['trainings']:
      found.append({'device': results['device'], **training})
  return found


def results(
  trainings: Sequence[Mapping[str, Any]], plan: Mapping[str, Any]
) -> dict[str, Any]:
  """Returns the results of each part, in the form of benchmarks/claims.py."""
  found = {}
  for part in plan:
    own = [one for one in trainings if one['part'] == part]
    taken = [{step for step, _ in one['validation']} for one in own]
    common = sorted(set.intersection(*taken)) if taken else []
    if not common:
      continue
    rows: dict[tuple[str, str], dict[int, list[float]]] = {}
    for one in own:
      key = one['task'], one['model']
      losses = rows.setdefault(key, {})
      losses[one['seed']] = [loss for step, loss in one['validation']
                             if step in common]  # fmt: skip
    found[part] = {
      'claim': plan[part]['claim'],
      'device': own[0]['device'],
      'steps': common[-1],
      'seeds': sorted({one['seed'] for one in own}),
      'evaluated': common,
      'rows': [
        {
          'task': task,
          'model': model,
          'value': _spread([losses[-1] for losses in several.values()]),
          'losses': {
            seed: [round(loss, 4) for loss in losses]
            for seed, losses in several.items()
          },
        }
        for (task, model), several in rows.items()
      ],
    }
    if plan[part]['window']:
      found[part]['window'] = plan[part]['window']
      found[part]['shares'] = {
        f'{one["model"]}, seed {one["seed"]}': one['shares'] for one in own
      }
  return found


def _spread(values: Sequence[float]) -> list[float]:
  spread = [statistics.stdev(values)] if len(values) > 1 else []
  return [round(x, 4) for x in [statistics.fmean(values), *spread]]


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add = parser.add_argument
  add('folder', type=pathlib.Path)
  add('--out', type=pathlib.Path, required=True)
  add('--parts', nargs='+', help='these alone')
  add('--gpu_parts', nargs='*', default=[])
  add('--gpu_processes', type=int, default=3)
  add('--cpu_processes', type=int, default=os.cpu_count())
  add('--seeds', nargs='+', type=int, default=[0, 1, 2])
  add('--steps', type=int, help='instead of those of the plan')
  add('--seconds', type=float, default=100.0, help='at most, roughly')
  add('--units', nargs='+', help=argparse.SUPPRESS)
  add('--worker', default='0', help=argparse.SUPPRESS)
  return parser.parse_args(argv)


if __name__ == '__main__':
  main()
