"""Reads alpha, the weights of a mixture of synthesizers, at each checkpoint."""

import collections
import os
from typing import Any

import pandas as pd
from mesh_tensorflow.transformer import transformer_layers

from synth_mtf.checkpoints import files
from synth_mtf.checkpoints.folder import Folder, step_of
from synth_mtf.host import foreign, model as models
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
  rows: list[tuple[Any, ...]] = []
  layers: collections.Counter[str] = collections.Counter()
  checkpoints = [
    files.Checkpoint(os.path.join(folder, name))
    for folder in run.folders
    for name in Folder(folder).checkpoints
  ]
  with foreign.bounded():
    run.configure()
    # Any vocabulary will do: no layer is called.
    for scope, layer in models.layers(models.make_transformer(128)):
      is_cross = isinstance(layer, transformer_layers.EncDecAttention)
      stack = 'cross' if is_cross else scope.partition('/')[0]
      layers[stack] += isinstance(layer, transformer_layers.SelfAttention)
      for checkpoint in checkpoints:
        if isinstance(layer, SyntheticLayer) and f'{scope}/alpha' in checkpoint:
          letters = _numbered([f.letter for f in layer.synthesizers])
          alpha = mixture_weights(checkpoint[f'{scope}/alpha'], len(letters))
          step = step_of(checkpoint.path)
          rows += [
            (stack, layers[stack], letter, head, step, value)
            for letter, of_heads in zip(letters, alpha, strict=True)
            for head, value in enumerate(of_heads.flat, 1)
          ]
  return pd.DataFrame(rows, columns=[*_KEYS, 'value']).drop_duplicates(_KEYS)


def _numbered(letters: list[str]) -> list[str]:
  """Numbers letters that occur several times."""
  return [
    f'{x} {letters[: i + 1].count(x)}' if letters.count(x) > 1 else x
    for i, x in enumerate(letters)
  ]
