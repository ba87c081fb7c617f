"""A model of a part that `claims` wrote, and the examples of its tasks."""

import functools
import json
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from benchmarks.accelerator.programs import Array, Program
from benchmarks.accelerator.training import Batch

_HELD_OUT = 8  # batches, at most


class ClaimsModel:
  """A model of a part: one program, trained on each task with each seed.

  Attributes:
    part: the letter of the part.
    name: of the model, as in the tables.
    program: its training step, whose loss is a sum.
    tasks: of the part.
    steps: how many the part takes.
    lengths: of inputs and targets.
    window: of the part, or None.
  """

  def __init__(self, folder: pathlib.Path, part: str, name: str) -> None:
    plan = read_plan(folder)[part]
    self.part, self.name = part, name
    self.tasks: list[str] = plan['tasks']
    self.steps: int = plan['steps']
    self.lengths: list[int] = plan['lengths']
    self.window: int | None = plan['window']
    self.program = Program.read(folder / part, plan['models'][name])
    self._folder = folder / part
    self._batch: int = self.program.description['size']['batch']

  def batches(self, task: str, seed: int) -> Iterator[Batch]:
    """Yields batches without end, in an order that depends on the seed."""
    rows = _rows(self._folder / f'{task}.npz', 'train')
    rng = np.random.default_rng(seed)
    while True:
      order = rng.permutation(len(rows['targets']))
      for start in range(0, len(order) - self._batch + 1, self._batch):
        chosen = order[start : start + self._batch]
        yield {name: ids[chosen] for name, ids in rows.items()}

  def held_out(self, task: str) -> list[Batch]:
    """Returns validation rows in whole batches."""
    rows = _rows(self._folder / f'{task}.npz', 'validation')
    whole = min(len(rows['targets']) // self._batch, _HELD_OUT)
    return [
      {
        name: ids[number * self._batch : (number + 1) * self._batch]
        for name, ids in rows.items()
      }
      for number in range(whole)
    ]


def read_plan(folder: pathlib.Path) -> Mapping[str, Any]:
  """Reads what is to be trained, by part."""
  return json.loads((folder / 'plan.json').read_text())


@functools.cache  # the models of a part have the same tasks
def _rows(path: pathlib.Path, split: str) -> Mapping[str, Array]:
  """Returns the ids of a split by feature, [rows, length]."""
  with np.load(path) as file:
    return {
      name.removeprefix(f'{split}_'): file[name]
      for name in file
      if name.startswith(f'{split}_')
    }
