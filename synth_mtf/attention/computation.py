"""Computes the attention of runs in the graph that a run would build.

The run's model is built from its configuration and called on all examples, one
per row, while `attention.recording` records its layers.
"""

import contextlib
import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gin
import mesh_tensorflow as mtf
import numpy as np
import seqio

from synth_mtf import tasks
from synth_mtf.attention import examples as examples_of
from synth_mtf.attention.file import SIDES, Array, Attention, Stack
from synth_mtf.attention.loaded import Loaded, call, padded
from synth_mtf.attention.recording import Alignment, recorded_by
from synth_mtf.checkpoints import identity
from synth_mtf.checkpoints.files import Checkpoint
from synth_mtf.errors import UserError
from synth_mtf.host import explanations, model as models
from synth_mtf.results import runs

INITIAL = 'initial'
LAST = 'last'


def look(
  folder: str,
  steps: Sequence[int | str],
  choose: Callable[[], examples_of.Examples],
  vocabulary: str | None = None,
) -> list[Attention]:
  """Computes the attention of one run at each of the given steps.

  Args:
    folder: a model folder, or a demo folder that holds one run.
    steps: steps of checkpoints, `LAST`, or `INITIAL` for initial weights.
    choose: returns the examples; called when gin has the run's configuration.
    vocabulary: as in `--vocabulary`; None uses the run's vocabulary.
  """
  run, checkpoints, known = opened(folder, steps, vocabulary)
  with explanations.explained():  # T5's own vocabulary needs a network
    examples = choose()
  sizes = [one.vocab_size for one in known.values()]
  found = []
  for checkpoint in checkpoints:
    with contextlib.closing(Loaded(sizes, checkpoint)) as loaded:
      found.append(attention(run, loaded, examples))
  return found


def opened(
  folder: str, steps: Sequence[int | str], vocabulary: str | None
) -> tuple[runs.Run, list[Checkpoint | None], Mapping[str, seqio.Vocabulary]]:
  """Finds a run and some of its checkpoints, and loads its configuration.

  The arguments are those of `look`. Also returns the vocabularies, by side.
  """
  run, *others = runs.read(folder)
  if others:
    raise UserError(
      f'{folder} holds {1 + len(others)} runs; give one of them: '
      + ' '.join(one.name for one in (run, *others))
    )
  names = ['' if step == LAST else f'model.ckpt-{step}' for step in steps]
  checkpoints = [
    None if step == INITIAL else Checkpoint(os.path.join(run.folder, name))
    for step, name in zip(steps, names, strict=True)
  ]
  importlib.import_module('t5.data.mixtures')
  _ = run.label  # kept: making it later would replace gin's configuration
  run.configure()
  choose_vocabulary(vocabulary, run.folder)
  with explanations.explained():  # T5's own vocabulary needs a network
    known = examples_of.vocabulary()
    for checkpoint in filter(None, checkpoints):
      identity.check_vocabulary(tuple(known.values()), checkpoint.path)
  return run, checkpoints, known


def choose_vocabulary(given: str | None, model_dir: str) -> None:
  """Sets the tasks' vocabulary: the given one, or else the run's."""
  if given is None and tasks.settings().vocabulary is None:
    name = identity.recorded_vocabulary(model_dir) or ''
    if name == 'ByteVocabulary':
      given = tasks.data_settings.BYTES
    elif os.path.isfile(name):
      given = name
  if given is not None:
    with gin.unlock_config():
      gin.bind_parameter('synth_mtf.tasks.settings.vocabulary', given)


def attention(
  run: runs.Run, loaded: Loaded, examples: examples_of.Examples
) -> Attention:
  """Computes the attention of a run's model on examples."""
  return Attention(
    run=run.name,
    label=run.label,
    step=loaded.checkpoint.step if loaded.checkpoint else 0,
    stacks=stacks(examples.ids, loaded),
    tokens={s: padded(rows, '') for s, rows in examples.tokens.items()},
    texts={s: np.array(texts) for s, texts in examples.texts.items()},
  )


def stacks(
  ids: Mapping[str, examples_of.Ids], loaded: Loaded
) -> dict[str, Stack]:
  """Computes the attention of a model.

  Args:
    ids: token ids, by side. With the encoder's alone, only the encoder's
      attention is computed.
    loaded: the model.
  """
  calls, values = loaded.run(_alignments, ids)
  lengths = {side: [len(row) for row in rows] for side, rows in ids.items()}
  return {
    name: _stack(found, lengths[queries], max(lengths[memory]))
    for name, (queries, memory) in SIDES.items()
    if (
      found := [
        one for one in zip(calls, values, strict=True) if one[0].stack == name
      ]
    )
  }


def _alignments(
  model: models.Transformer, rows: Mapping[str, mtf.Tensor], dtype: Any
) -> tuple[list[Alignment], list[Any]]:
  """Calls a model; returns the alignments on the given sides, with tensors."""
  calls: list[Alignment] = []
  with recorded_by(calls.append):
    call(model, rows, dtype)
  calls = [one for one in calls if SIDES[one.stack][0] in rows]
  if not calls:
    raise UserError(
      'none of these layers has attention weights over tokens: '
      + ', '.join(sorted({type(x).__name__ for _, x in models.layers(model)}))
    )
  return calls, [
    (one.logits, one.weights, [a for a in one.alphas if a is not None])
    for one in calls
  ]


def _stack(
  layers: Sequence[tuple[Alignment, Any]], lengths: Sequence[int], memory: int
) -> Stack:
  """Joins the layers of a stack, given query lengths and the memory's most."""
  given = np.s_[:, : len(lengths), :, : max(lengths), :memory]
  logits = _joined([(one.logits, found[0]) for one, found in layers])[given]
  weights = _joined([(one.weights, found[1]) for one, found in layers])[given]
  is_token = np.arange(weights.shape[3]) < np.array(lengths)[:, None]
  weights = np.where(is_token[:, None, :, None], weights, np.float32(0))
  functions, *others = {
    tuple(function.letter for function in one.layer.synthesizers)
    for one, _ in layers
  }
  if others:
    return Stack(weights, logits)
  alphas = [
    np.stack([np.broadcast_to(a.ravel(), logits.shape[2]) for a in found], -1)
    for _, (_, _, found) in layers
    if found
  ]
  mixed = len(alphas) == len(layers)
  return Stack(weights, logits, functions, np.stack(alphas) if mixed else None)


def _joined(layers: Sequence[tuple[mtf.Tensor, Array]]) -> Array:
  """Merges all head axes: [layers, examples or 1, heads, queries, memory]."""
  arrays = (
    array if 'batch' in tensor.shape.dimension_names else array[np.newaxis]
    for tensor, array in layers
  )
  rows = [array.reshape(len(array), -1, *array.shape[-2:]) for array in arrays]
  return np.stack(np.broadcast_arrays(*rows))
