"""Computes the attention of runs in the graph that a run would build.

The run's model is built from its configuration and called on all examples, one
per row, while `attention.recording` records its layers.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import mesh_tensorflow as mtf
import numpy as np

from synth_mtf.attention.examples import Examples, Ids, ModelInputs
from synth_mtf.attention.file import SIDES_OF_STACK, Array, Attention, Stack
from synth_mtf.attention.loaded import Loaded, call, padded
from synth_mtf.attention.opening import open_run
from synth_mtf.attention.recording import Alignment, recorded_by
from synth_mtf.errors import UserError
from synth_mtf.host import explanations, model as models
from synth_mtf.results import runs


def look(
  folder: str,
  steps: Sequence[int | str],
  choose: Callable[[ModelInputs], Examples],
  vocabulary: str | None = None,
) -> list[Attention]:
  """Computes the attention of one run at each of the given steps.

  Args:
    folder: a model folder, or a demo folder that holds one run.
    steps: as in `open_run`.
    choose: returns the examples, given what the model reads; called while the
      tasks have the run's settings.
    vocabulary: as in `--vocabulary`; None uses the run's vocabulary.
  """
  opened = open_run(folder, steps, vocabulary)
  with opened.model.configured(), explanations.explained():
    examples = choose(opened.inputs)
  attentions = []
  for checkpoint in opened.checkpoints:
    loaded = Loaded(opened.model, opened.inputs, checkpoint)
    with contextlib.closing(loaded):
      attentions.append(attention(opened.run, loaded, examples))
  return attentions


def attention(run: runs.Run, loaded: Loaded, examples: Examples) -> Attention:
  """Computes the attention of a run's model on examples."""
  return Attention(
    run=run.name,
    label=run.label,
    step=loaded.step,
    stacks=stacks(examples.ids, loaded),
    tokens={s: padded(rows, '') for s, rows in examples.tokens.items()},
    texts={s: np.array(texts) for s, texts in examples.texts.items()},
  )


def stacks(ids: Mapping[str, Ids], loaded: Loaded) -> dict[str, Stack]:
  """Computes the attention of a model.

  Args:
    ids: token ids, by side. With the encoder's alone, only the encoder's
      attention is computed.
    loaded: the model.
  """
  alignments, values = loaded.run(_alignments, ids)
  lengths = {side: [len(row) for row in rows] for side, rows in ids.items()}
  by_stack = {}
  for name, (queries, memory) in SIDES_OF_STACK.items():
    layers = [
      _Layer(alignment, *arrays)
      for alignment, arrays in zip(alignments, values, strict=True)
      if alignment.stack == name
    ]
    if layers:
      by_stack[name] = _stack(layers, lengths[queries], max(lengths[memory]))
  return by_stack


class _Layer(NamedTuple):
  """What one layer computed: its tensors, and their values."""

  alignment: Alignment
  logits: Array
  weights: Array
  alphas: Sequence[Array]


def _alignments(
  model: models.Transformer, rows: Mapping[str, mtf.Tensor], dtype: Any
) -> tuple[list[Alignment], list[Any]]:
  """Calls a model; returns the alignments on the given sides, with tensors."""
  recorded: list[Alignment] = []
  with recorded_by(recorded.append):
    call(model, rows, dtype)
  alignments = [x for x in recorded if SIDES_OF_STACK[x.stack][0] in rows]
  if not alignments:
    classes = {type(layer).__name__ for _, layer in models.layers(model)}
    raise UserError(
      'none of these layers has attention weights over tokens: '
      + ', '.join(sorted(classes))
    )
  tensors = []
  for alignment in alignments:
    alphas = [alpha for alpha in alignment.alphas if alpha is not None]
    tensors.append((alignment.logits, alignment.weights, alphas))
  return alignments, tensors


def _stack(
  layers: Sequence[_Layer], lengths: Sequence[int], memory: int
) -> Stack:
  """Joins the layers of a stack.

  Args:
    layers: those of the stack.
    lengths: of each example's queries.
    memory: the longest memory.
  """
  without_padding = np.s_[:, : len(lengths), :, : max(lengths), :memory]
  logits = _joined([(x.alignment.logits, x.logits) for x in layers])
  logits = logits[without_padding]
  weights = _joined([(x.alignment.weights, x.weights) for x in layers])
  weights = weights[without_padding]
  is_token = np.arange(weights.shape[3]) < np.array(lengths)[:, None]
  weights = np.where(is_token[:, None, :, None], weights, np.float32(0))
  letters = {
    tuple(function.letter for function in x.alignment.layer.synthesizers)
    for x in layers
  }
  if len(letters) > 1:
    return Stack(weights, logits)
  (functions,) = letters
  alpha = None
  if all(x.alphas for x in layers):
    alpha = np.stack([_alpha(x.alphas, logits.shape[2]) for x in layers])
  return Stack(weights, logits, functions, alpha)


def _alpha(alphas: Sequence[Array], heads: int) -> Array:
  """Returns the weights of a layer's functions: [heads, functions]."""
  of_heads = [np.broadcast_to(alpha.ravel(), heads) for alpha in alphas]
  return np.stack(of_heads, axis=-1)


def _joined(layers: Sequence[tuple[mtf.Tensor, Array]]) -> Array:
  """Merges all head axes: [layers, examples or 1, heads, queries, memory]."""
  rows = []
  for tensor, array in layers:
    if 'batch' not in tensor.shape.dimension_names:
      array = array[np.newaxis]
    rows.append(array.reshape(len(array), -1, *array.shape[-2:]))
  return np.stack(np.broadcast_arrays(*rows))
