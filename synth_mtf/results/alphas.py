"""Reads alpha, the weights of a mixture of synthesizers, at each checkpoint."""

import math
import os
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from synth_mtf.checkpoints import files
from synth_mtf.checkpoints.folder import Folder, step_of
from synth_mtf.errors import UserError
from synth_mtf.layer.mixture import mixture_weights
from synth_mtf.results.kinds import Mixture
from synth_mtf.results.runs import Run

_KEYS = ['stack', 'layer', 'function', 'head', 'step']


def frame(run: Run) -> pd.DataFrame:
  """Returns one row per alpha, with its location, step and value.

  The location is a stack ('encoder', 'decoder' or 'cross'), a layer, a head
  (both counted from 1) and the letter of a function, with a number if several
  functions have it ('R 1'). If all heads share alpha, there is one head.

  Raises:
    UserError: the run has no configuration, or a checkpoint is damaged.
  """
  facts = run.facts
  if facts.kind is None:
    raise UserError(facts.fault)
  checkpoints = [
    files.Checkpoint(os.path.join(folder, name))
    for folder in run.folders
    for name in Folder(folder).checkpoints
  ]
  rows: list[tuple[Any, ...]] = []
  for mixture in facts.mixtures:
    name = f'{mixture.scope}/alpha'
    for checkpoint in checkpoints:
      if name in checkpoint:
        place = mixture.stack, mixture.layer
        step = step_of(checkpoint.path)
        for function, head, value in _weights(mixture, checkpoint, name):
          rows.append((*place, function, head, step, value))
  return pd.DataFrame(rows, columns=[*_KEYS, 'value']).drop_duplicates(_KEYS)


def largest_move(frame: pd.DataFrame) -> float:
  """Returns by how much a weight differs at most between checkpoints.

  Infinity if there is one checkpoint, whose weights are all that is known.
  """
  if frame.step.nunique() < 2:
    return math.inf
  values = frame.groupby([key for key in _KEYS if key != 'step'])['value']
  return float((values.max() - values.min()).max())


def _weights(
  mixture: Mixture, checkpoint: files.Checkpoint, name: str
) -> Iterator[tuple[str, int, float]]:
  """Yields function, head (from 1) and weight of a layer's mixture."""
  functions = _numbered(mixture.letters)
  try:
    alpha = mixture_weights(checkpoint[name], len(functions))
    pairs = [*zip(functions, alpha, strict=True)]
  except (ValueError, IndexError, TypeError) as error:  # of somebody else
    raise UserError(
      f'{checkpoint.path}: {name} is not alpha of {len(functions)} functions: '
      f'{error}'
    ) from error
  for function, weights in pairs:
    for head, weight in enumerate(weights.flat, start=1):
      yield function, head, weight


def _numbered(letters: Sequence[str]) -> list[str]:
  """Numbers letters that occur several times: R 1, R 2."""
  numbered = []
  for position, letter in enumerate(letters, start=1):
    if letters.count(letter) > 1:
      letter += f' {letters[:position].count(letter)}'
    numbered.append(letter)
  return numbered
