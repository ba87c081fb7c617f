r"""Trains the parts that `claims` wrote, with several seeds, in turns.

    python -m benchmarks.accelerator.turns FOLDER --out out --seconds 100 \
      --gpu_parts k m n o

Models are divided among processes of one core, and those of --gpu_parts among
--gpu_processes that share the accelerator (`claims_worker`).

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
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.accelerator import claims_worker
from benchmarks.accelerator.claims_model import read_plan

Plan = Mapping[str, Any]
Trainings = Sequence[Mapping[str, Any]]
_TO_END = 15  # seconds that a process may take beyond its time
_ONE_CORE = {
  'JAX_PLATFORMS': 'cpu',
  'XLA_FLAGS': '--xla_cpu_multi_thread_eigen=false',
}
_SHARED_GPU = {
  'XLA_PYTHON_CLIENT_PREALLOCATE': 'false',
  # Products are small: looking for the fastest takes longer than they do.
  'XLA_FLAGS': '--xla_gpu_autotune_level=0',
}


def main(argv: Sequence[str] | None = None) -> None:
  """Starts the processes and collects their results."""
  args = _parse(argv)
  args.out.mkdir(parents=True, exist_ok=True)
  plan = read_plan(args.folder)
  chosen = args.parts or list(plan)
  on_gpu = [part for part in chosen if part in args.gpu_parts]
  on_cpu = [part for part in chosen if part not in args.gpu_parts]
  workers = {}
  for number, models in enumerate(divided(plan, on_gpu, args.gpu_processes)):
    name = f'gpu_{number}'
    workers[name] = _start(args, name, models, _SHARED_GPU)
  for number, models in enumerate(divided(plan, on_cpu, args.cpu_processes)):
    name = f'cpu_{number}'
    core = number % (os.cpu_count() or 1)
    on_core = ['taskset', '-c', str(core)]
    workers[name] = _start(args, name, models, _ONE_CORE, on_core)
  _wait(workers, args.seconds + _TO_END)
  for name in workers:
    if not (args.out / f'worker_{name}.json').exists():
      print(f'worker {name}: its models have no results', flush=True)
  for part, of_part in results(collect(args.out), plan).items():
    path = args.out / f'claims_{part}.json'
    path.write_text(json.dumps(of_part, indent=1) + '\n')
    print(f'{part} after {of_part["steps"]} steps: {of_part["claim"]}')
    for row in of_part['rows']:
      print(f'  {row["task"]:26} {row["model"]:18} {row["value"]}', flush=True)


def divided(
  plan: Plan, parts: Sequence[str], processes: int
) -> list[list[str]]:
  """Divides the models of the parts among processes, each part among all."""
  models = [
    f'{part}:{model}' for part in parts for model in plan[part]['models']
  ]
  shares = [models[first::processes] for first in range(processes)]
  return [share for share in shares if share]


def _start(
  args: argparse.Namespace,
  worker: str,
  models: Sequence[str],
  environment: Mapping[str, str],
  prefix: Sequence[str] = (),
) -> 'subprocess.Popen[bytes]':
  command = [
    *(*prefix, sys.executable, '-m', 'benchmarks.accelerator.claims_worker'),
    *(str(args.folder), '--out', str(args.out), '--worker', worker),
    *('--models', *models, '--seeds', *map(str, args.seeds)),
    *('--seconds', str(args.seconds)),
  ]
  if args.steps:
    command += ['--steps', str(args.steps)]
  return subprocess.Popen(command, env={**os.environ, **environment})


def _wait(
  workers: Mapping[str, 'subprocess.Popen[bytes]'], seconds: float
) -> None:
  """Waits for processes, and kills those that do not end in time."""
  end = time.monotonic() + seconds
  for name, process in workers.items():
    try:
      status = process.wait(max(1.0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
      process.kill()
      print(f'worker {name}: killed after {seconds:.0f} s', flush=True)
      continue
    if status:
      print(f'worker {name}: ended with status {status}', flush=True)


def collect(out: pathlib.Path) -> list[dict[str, Any]]:
  """Returns the trainings of all processes, and prints their errors."""
  trainings = []
  for path in sorted(out.glob('worker_*.json')):
    of_worker = json.loads(path.read_text())
    for name, error in of_worker['errors'].items():
      print(f'{path.name}: {name}: {error}')
    trainings += [
      {'device': of_worker['device'], **training}
      for training in of_worker['trainings']
    ]
  return trainings


def results(trainings: Trainings, plan: Plan) -> dict[str, Any]:
  """Returns the results of each part, in the form of benchmarks/claims.py."""
  by_part = {}
  for part in plan:
    own = [training for training in trainings if training['part'] == part]
    evaluated = _evaluated_by_all(own)
    if evaluated:
      by_part[part] = _of_part(own, plan[part], evaluated)
  return by_part


def _evaluated_by_all(trainings: Trainings) -> list[int]:
  """Returns the numbers of steps at which all have been evaluated."""
  if not trainings:
    return []
  return sorted(
    set.intersection(
      *({step for step, _ in each['validation']} for each in trainings)
    )
  )


def _of_part(
  trainings: Trainings, plan: Plan, evaluated: Sequence[int]
) -> dict[str, Any]:
  of_part = {
    'claim': plan['claim'],
    'device': trainings[0]['device'],
    'steps': evaluated[-1],
    'seeds': sorted({training['seed'] for training in trainings}),
    'evaluated': evaluated,
    'rows': _rows(trainings, evaluated),
  }
  if plan['window']:
    of_part['window'] = plan['window']
    of_part['shares'] = {
      f'{training["model"]}, seed {training["seed"]}': training['shares']
      for training in trainings
    }
  return of_part


def _rows(
  trainings: Trainings, evaluated: Sequence[int]
) -> list[dict[str, Any]]:
  """Returns a row for each task and model, with the losses of each seed."""
  losses: dict[tuple[str, str], dict[int, list[float]]] = {}
  for training in trainings:
    of_row = losses.setdefault((training['task'], training['model']), {})
    of_row[training['seed']] = [
      loss for step, loss in training['validation'] if step in evaluated
    ]
  return [
    {
      'task': task,
      'model': model,
      'value': _spread([of_seed[-1] for of_seed in by_seed.values()]),
      'losses': {
        seed: [round(loss, 4) for loss in of_seed]
        for seed, of_seed in by_seed.items()
      },
    }
    for (task, model), by_seed in losses.items()
  ]


def _spread(values: Sequence[float]) -> list[float]:
  """Returns the mean and, of several values, the standard deviation."""
  spread = [statistics.stdev(values)] if len(values) > 1 else []
  return [round(x, 4) for x in [statistics.fmean(values), *spread]]


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  claims_worker.add_arguments(parser)
  add = parser.add_argument
  add('--parts', nargs='+', help='these alone')
  add('--gpu_parts', nargs='*', default=[])
  add('--gpu_processes', type=int, default=3)
  add('--cpu_processes', type=int, default=os.cpu_count())
  return parser.parse_args(argv)


if __name__ == '__main__':
  main()
