"""Reads alpha, the weights of a mixture of synthesizers, at each checkpoint."""

import collections
import os
from collections.abc import Iterator
from typing import Any

import pandas as pd
from mesh_tensorflow.transformer import transformer_layers

from synth_mtf.checkpoints import files
from synth_mtf.checkpoints.folder import Folder, step_of
from synth_mtf.host import model as models
from synth_mtf.host.described import described
from synth_mtf.layer.synthetic import SyntheticLayer, mixture_weights
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
  checkpoints = [
    files.Checkpoint(os.path.join(folder, name))
    for folder in run.folders
    for name in Folder(folder).checkpoints
  ]
  rows: list[tuple[Any, ...]] = []
  layers: collections.Counter[str] = collections.Counter()
  with described(run.gin, run.gin_file) as model:
    transformer = model.transformer()
  for scope, layer in models.layers(transformer):
    is_cross = isinstance(layer, transformer_layers.EncDecAttention)
    stack = 'cross' if is_cross else scope.partition('/')[0]
    if isinstance(layer, transformer_layers.SelfAttention):
      layers[stack] += 1
    if not isinstance(layer, SyntheticLayer):
      continue
    for checkpoint in checkpoints:
      if f'{scope}/alpha' in checkpoint:
        step = step_of(checkpoint.path)
        for function, head, value in _mixture(layer, scope, checkpoint):
          rows.append((stack, layers[stack], function, head, step, value))
  return pd.DataFrame(rows, columns=[*_KEYS, 'value']).drop_duplicates(_KEYS)


def _mixture(
  layer: SyntheticLayer, scope: str, checkpoint: files.Checkpoint
) -> Iterator[tuple[str, int, float]]:
  """Yields function, head (from 1) and weight of a layer's mixture."""
  functions = _numbered([f.letter for f in layer.synthesizers])
  with models.explained():  # a checkpoint of somebody else
    alpha = mixture_weights(checkpoint[f'{scope}/alpha'], len(functions))
  for function, weights in zip(functions, alpha, strict=True):
    for head, weight in enumerate(weights.flat, start=1):
      yield function, head, weight


def _numbered(letters: list[str]) -> list[str]:
  """Numbers letters that occur several times: R 1, R 2."""
  numbered = []
  for position, letter in enumerate(letters, start=1):
    if letters.count(letter) > 1:
      letter += f' {letters[:position].count(letter)}'
    numbered.append(letter)
  return numbered
