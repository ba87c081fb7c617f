"""Reads alpha, the weights in mixtures of synthesizers, over training.

Checkpoints hold alpha, and so do event files, if training wrote summaries of
attention (`train_with_progress.attention_every`).
"""

import dataclasses
import os
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from mesh_tensorflow.transformer import transformer_layers

from synth_mtf.checkpoints import folder as folders
from synth_mtf.checkpoints.files import Checkpoint
from synth_mtf.errors import UserError
from synth_mtf.host import gin_files
from synth_mtf.host import model as models
from synth_mtf.layer.synthetic import SyntheticLayer
from synth_mtf.results.runs import Run

_VOCABULARY_SIZE = 128  # any: no layer is called


@dataclasses.dataclass(frozen=True)
class Path:
  """The alphas of a layer, from checkpoint to checkpoint.

  Attributes:
    stack: 'encoder', 'decoder' or 'cross'.
    layer: its number in the stack, counted from 1.
    functions: the letters of its functions.
    steps: [steps].
    values: [steps, heads, functions]; heads is 1 where a layer has one alpha
      for all.
  """

  stack: str
  layer: int
  functions: Sequence[str]
  steps: npt.NDArray[Any]
  values: npt.NDArray[Any]


def paths(run: Run) -> list[Path]:
  """Returns the alphas of all layers that mix functions, in their order.

  Raises:
    UserError: the run has no configuration, or a checkpoint is damaged.
  """
  if not run.gin:
    raise UserError(
      f'{run.name} does not say what its model is: it has no '
      'operative_config.gin'
    )
  gin_files.parse_foreign(run.gin, run.name)
  checkpoints = [
    Checkpoint(os.path.join(folder, name))
    for folder in run.folders
    for name in folders.written(folder)
  ]
  by_step = {one.step: one for one in checkpoints}
  counts: dict[str, int] = {}
  found = []
  for scope, layer in models.layers(models.make_transformer(_VOCABULARY_SIZE)):
    if not isinstance(layer, transformer_layers.SelfAttention):
      continue
    stack = _stack(scope, layer)
    counts[stack] = counts.get(stack, 0) + 1
    if not isinstance(layer, SyntheticLayer):
      continue
    letters = [function.letter for function in layer.synthesizers]
    values = {
      **_from_events(run, stack, counts[stack], letters),
      **{
        step: _alpha(one[f'{scope}/alpha'])
        for step, one in by_step.items()
        if f'{scope}/alpha' in one
      },
    }
    if values:
      steps = sorted(values)
      found.append(
        Path(
          stack,
          counts[stack],
          letters,
          np.array(steps),
          np.stack([values[step] for step in steps]),
        )
      )
  return found


def _from_events(
  run: Run, stack: str, layer: int, letters: Sequence[str]
) -> dict[int, npt.NDArray[np.float64]]:
  """[heads, functions] by step, from the event files."""
  begin = f'attention/{stack}/layer_{layer:02d}/alpha/'
  columns: list[dict[int, list[float]]] = []
  for letter in letters:
    of_letter = begin + re.sub(r'[^\w.-]', '_', letter) + '/head_'
    by_step: dict[int, list[float]] = {}
    for tag in sorted(run.curves):
      if tag.startswith(of_letter):
        for step, value in run.curves[tag]:
          by_step.setdefault(int(step), []).append(value)
    columns.append(by_step)
  return {
    step: np.array([column[step] for column in columns]).T
    for step in columns[0]
    if all(
      len(column.get(step, ())) == len(columns[0][step]) for column in columns
    )
  }


def _alpha(scores: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
  """[heads, functions] of the variable, [functions, heads] or [functions]."""
  scores = scores.astype(np.float64).reshape(len(scores), -1)
  e = np.exp(scores - scores.max(0))
  return (e / e.sum(0)).T


def _stack(scope: str, layer: transformer_layers.SelfAttention) -> str:
  if isinstance(layer, transformer_layers.EncDecAttention):
    return 'cross'
  return 'encoder' if scope.startswith('encoder/') else 'decoder'
