"""Trains some models of the parts that `claims` wrote, in one process.

    python -m benchmarks.accelerator.claims_worker FOLDER --out OUT \
      --worker 0 --models k:V k:GLU --seeds 0 1 2 --seconds 100

All models with all seeds take turns of a tenth of their steps, so that all have
taken about the same number when the time is over. OUT/worker_0.json has the
losses of each training, in nats for each token of the targets, and the errors
of those that failed. `turns` starts several of these and collects what they
write.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import time
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from benchmarks.accelerator import programs
from benchmarks.accelerator.claims_model import ClaimsModel
from benchmarks.accelerator.programs import Array
from benchmarks.accelerator.training import Batch, Training, tokens
from benchmarks.accelerator.windows import share_within

TURNS = 10
_START = time.monotonic()


@dataclasses.dataclass
class Trained:
  """A model in training on a task with a seed, and what is known of it.

  Attributes:
    model: the model.
    task: its task.
    seed: of its variables and of the order of the examples.
    steps: how many it takes in all turns.
    training: its variables.
    batches: those that it has not seen yet.
    validation: pairs of steps and loss.
    shares: for each table of R, pairs of steps and the share of its attention
      within the window of the part.
    tables: R before and after the training.
    longest: seconds of the longest turn.
  """

  model: ClaimsModel
  task: str
  seed: int
  steps: int
  training: Training
  batches: Iterator[Batch]
  validation: list[list[float]] = dataclasses.field(default_factory=list)
  shares: dict[str, list[list[float]]] = dataclasses.field(default_factory=dict)
  tables: dict[str, Array] = dataclasses.field(default_factory=dict)
  longest: float = 0.0

  def take_turn(self, turn: int) -> None:
    """Trains up to the end of a turn and evaluates; turn 0 takes no step."""
    start = time.monotonic()
    missing = self.steps * turn // TURNS - self.training.taken
    self.training.train(next(self.batches) for _ in range(missing))
    held_out = self.model.held_out(self.task)
    total = sum(self.training.losses(held_out))
    mean = total / sum(tokens(batch) for batch in held_out)
    self.validation.append([self.training.taken, mean])
    if self.model.window:
      self._look(self.model.window)
    self.longest = max(self.longest, time.monotonic() - start)

  def _look(self, window: int) -> None:
    """Records where R looks."""
    taken = self.training.taken
    for name, table in self.training.variables('/random/R$').items():
      is_causal = not name.startswith('encoder')
      length = self.model.lengths[is_causal]
      near = share_within(table[:, :length, :length], window, is_causal)
      self.shares.setdefault(name, []).append([taken, round(near, 5)])
      when = 'after' if taken else 'before'
      key = f'{self.model.part}|{when}|{name}'
      self.tables[key] = table.astype(np.float16)

  def results(self) -> dict[str, Any]:
    """Returns what `turns` reads."""
    return {
      'part': self.model.part,
      'task': self.task,
      'model': self.model.name,
      'seed': self.seed,
      'validation': self.validation,
      'shares': self.shares,
    }


class Worker:
  """The trainings of a process, and the file with their results."""

  def __init__(self, args: argparse.Namespace) -> None:
    self._args = args
    self._device = jax.devices()[0]
    self._errors: dict[str, str] = {}
    self._trained: list[Trained] = []

  def start(self) -> None:
    """Compiles the models and draws their variables."""
    models = [
      ClaimsModel(self._args.folder, *name.split(':', 1))
      for name in self._args.models
    ]
    compiled = programs.compile_all(
      {model: model.program for model in models},
      self._device,
      self._args.seconds,
    )
    for model, step in compiled.items():
      if isinstance(step, Exception):
        self._errors[f'{model.part}:{model.name}'] = repr(step)[-1000:]
      else:
        self._trained += self._trainings(model, step)
    self._print(f'{len(models) - len(self._errors)} compiled')

  def _trainings(
    self, model: ClaimsModel, step: programs.Step
  ) -> list[Trained]:
    return [
      Trained(
        model,
        task,
        seed,
        self._args.steps or model.steps,
        Training(model.program, step, self._device, seed),
        model.batches(task, seed),
      )
      for seed in self._args.seeds
      for task in model.tasks
    ]

  def train(self) -> None:
    """Takes turns until one might end after the time."""
    for turn in range(TURNS + 1):
      took_all = self._take_turn(turn)
      self._save()
      if not took_all:
        break
    self._print(f'ends after turn {turn}')

  def _take_turn(self, turn: int) -> bool:
    """Lets each training take a turn; returns whether the time sufficed."""
    took_all = True
    for trained in self._trained:
      elapsed = time.monotonic() - _START
      if elapsed + trained.longest > self._args.seconds:
        took_all = False
        continue
      try:
        trained.take_turn(turn)
      except Exception:
        name = f'{trained.model.part}:{trained.model.name}'
        self._errors[name] = traceback.format_exc()[-2000:]
    return took_all

  def _save(self) -> None:
    results = {
      'device': self._device.device_kind,
      'errors': self._errors,
      'trainings': [trained.results() for trained in self._trained],
    }
    path = self._args.out / f'worker_{self._args.worker}.json'
    path.write_text(json.dumps(results))

  def save_tables(self) -> None:
    """Writes the tables of the first seed, in float16."""
    tables: dict[str, Array] = {}
    for trained in self._trained:
      if trained.seed == self._args.seeds[0]:
        tables |= trained.tables
    if tables:
      path = self._args.out / f'tables_{self._args.worker}.npz'
      np.savez_compressed(path, **tables)

  def _print(self, what: str) -> None:
    elapsed = time.monotonic() - _START
    print(f'worker {self._args.worker}: {what}, {elapsed:.0f} s', flush=True)


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the arguments that `turns` passes on."""
  add = parser.add_argument
  add('folder', type=pathlib.Path)
  add('--out', type=pathlib.Path, required=True)
  add('--seeds', nargs='+', type=int, default=[0, 1, 2])
  add('--steps', type=int, help='instead of those of the plan')
  add('--seconds', type=float, default=100.0, help='at most, roughly')


def main(argv: Sequence[str] | None = None) -> None:
  """Trains the models on the command line."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add_arguments(parser)
  add = parser.add_argument
  add('--worker', default='0', help='the name of this process')
  add('--models', nargs='+', required=True, metavar='PART:MODEL')
  worker = Worker(parser.parse_args(argv))
  worker.start()
  worker.train()
  worker.save_tables()


if __name__ == '__main__':
  main()
  os._exit(0)  # do not wait for compilations that took too long
