"""A lowered program in training on one device; needs only JAX and NumPy."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np

from benchmarks.accelerator.programs import Array, Program, Step

Batch = Mapping[str, Array]


class Training:
  """A program in training, from values that follow from a seed.

  Attributes:
    taken: the number of steps so far.
  """

  def __init__(
    self, program: Program, step: Step, device: Any, seed: int
  ) -> None:
    self._program, self._step, self._device = program, step, device
    self._state = program.initial(device, seed)
    self.taken = 0

  def train(self, batches: Iterable[Batch]) -> list[float]:
    """Takes a step with each batch; returns the losses."""
    losses = []
    for batch in batches:
      features = self._program.features(batch, self._device)
      loss, self._state = self._step(features, self._state)
      losses.append(loss)
    self.taken += len(losses)
    return [float(loss) for loss in jax.device_get(losses)]

  def losses(self, batches: Iterable[Batch]) -> list[float]:
    """Returns the loss of each batch, without taking a step."""
    losses = []
    for batch in batches:
      features = self._program.features(batch, self._device)
      # The step reuses the memory of what it is given.
      copies = [variable.copy() for variable in self._state]
      loss, _ = self._step(features, copies)
      losses.append(float(np.asarray(loss)))
    return losses

  def variables(self, pattern: str) -> dict[str, Array]:
    """Returns the values of variables by name."""
    described = self._program.description['state']
    return {
      variable['name']: np.asarray(value)
      for variable, value in zip(described, self._state, strict=True)
      if re.search(pattern, variable['name'])
    }


def tokens(batch: Batch) -> int:
  """Counts the tokens of the targets."""
  return int(np.count_nonzero(batch['targets']))
