"""Computes the attention of runs in the graph that a run would build.

The run's model is built from its configuration and called on all examples, one
per row, while `layer.recording` records its layers. `Loaded` keeps a model with
its weights, also to compute something else (`synth_mtf.trained`).
"""

import contextlib
import importlib
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional, Union

import gin
import mesh_tensorflow as mtf
import numpy as np
import seqio
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer

from synth_mtf import tasks
from synth_mtf.attention import examples as examples_of
from synth_mtf.attention.file import SIDES, Array, Attention, Stack
from synth_mtf.checkpoints import comparison, records
from synth_mtf.checkpoints.files import Checkpoint
from synth_mtf.errors import UserError
from synth_mtf.host import errors, foreign, model as models
from synth_mtf.layer.recording import Alignment, recorded_by
from synth_mtf.results import runs

# Builds part of a graph: (model, rows by side, dtype, *options) -> (anything,
# tensors).
Build = Callable[..., tuple[Any, Any]]
INITIAL = 'initial'
LAST = 'last'
_UNPACKED = (
  'mesh_train_dataset_fn.pack = False',
  'mesh_eval_dataset_fn.pack = False',
)


def look(
  folder: str,
  steps: Sequence[Union[int, str]],
  choose: Callable[[], examples_of.Examples],
  vocabulary: Optional[str] = None,
) -> list[Attention]:
  """Computes the attention of one run at each of the given steps.

  Args:
    folder: a model folder, or a demo folder that holds one run.
    steps: steps of checkpoints, `LAST`, or `INITIAL` for initial weights.
    choose: returns the examples; called when gin has the run's configuration.
    vocabulary: as in `--vocabulary`; None uses the run's vocabulary.
  """
  run, checkpoints, known = opened(folder, steps, vocabulary)
  with errors.explained():  # T5's own vocabulary needs a network
    examples = choose()
  sizes = [one.vocab_size for one in known.values()]
  found = []
  for checkpoint in checkpoints:
    with contextlib.closing(Loaded(sizes, checkpoint)) as loaded:
      found.append(attention(run, loaded, examples))
  return found


def opened(
  folder: str, steps: Sequence[Union[int, str]], vocabulary: Optional[str]
) -> tuple[
  runs.Run, list[Optional[Checkpoint]], Mapping[str, seqio.Vocabulary]
]:
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
    for step, name in zip(steps, names)
  ]
  importlib.import_module('t5.data.mixtures')
  _ = run.label  # also configures
  run.configure()
  choose_vocabulary(vocabulary, run.folder)
  with errors.explained():  # T5's own vocabulary needs a network
    known = examples_of.vocabulary()
    for checkpoint in filter(None, checkpoints):
      records.check_vocabulary(tuple(known.values()), checkpoint.path)
  return run, checkpoints, known


def choose_vocabulary(given: Optional[str], model_dir: str) -> None:
  """Sets the tasks' vocabulary: the given one, or else the run's."""
  if given is None and tasks.settings().vocabulary is None:
    name = records.recorded_vocabulary(model_dir) or ''
    if name == 'ByteVocabulary':
      given = tasks.data_settings.BYTES
    elif os.path.isfile(name):
      given = name
  if given is not None:
    with gin.unlock_config():
      gin.bind_parameter('synth_mtf.tasks.settings.vocabulary', given)


class Loaded:
  """A model that gin configures, with its weights in a session.

  It computes in float32, with the weights as stored. Weights are read once; the
  graph has a part for each function and shape of its arguments. Rows are padded
  to few shapes.

  Args:
    vocab_sizes: numbers of embeddings for inputs and targets.
    checkpoint: holds the weights; None uses initial values.
  """

  def __init__(
    self, vocab_sizes: Sequence[int], checkpoint: Optional[Checkpoint]
  ) -> None:
    self.checkpoint = checkpoint
    self._vocab_sizes = vocab_sizes
    self._graph = tf.Graph()
    self._session = tf.Session(graph=self._graph)
    self._parts: dict[Any, tuple[Any, Any, Any]] = {}

  def close(self) -> None:
    """Frees the memory."""
    self._session.close()

  def run(
    self, build: Build, ids: Mapping[str, examples_of.Ids], *options: Any
  ) -> tuple[Any, Any]:
    """Calls `build(model, rows, dtype, *options)` once for each shape of rows.

    It returns anything, and tensors, whose values take their place here. They
    have more rows than `ids`, and longer ones.
    """
    rows = {side: _few_shapes(side, found) for side, found in ids.items()}
    shapes = tuple((side, found.shape) for side, found in rows.items())
    part = build, options, shapes
    if part not in self._parts:
      with self._graph.as_default(), errors.explained():
        self._parts[part] = self._add(build, dict(shapes), options)
    feeds, found, fetches = self._parts[part]
    feed = {feeds[side]: found for side, found in rows.items()}
    with errors.explained():
      return found, self._session.run(fetches, feed)

  def _add(
    self,
    build: Build,
    shapes: Mapping[str, tuple[int, ...]],
    options: Sequence[Any],
  ) -> tuple[Any, Any, Any]:
    with gin.unlock_config():
      gin.parse_config(_UNPACKED)
    tf.set_random_seed(0)
    checkpoint = self.checkpoint
    kinds = checkpoint and checkpoint.kinds[checkpoint.weights[0]]
    master = tf.as_dtype(kinds.dtype if kinds else 'float32')
    dtype = mtf.VariableDType(master, tf.float32, tf.float32)
    graph = mtf.Graph()
    mesh = mtf.Mesh(graph, 'mesh')
    feeds, rows = {}, {}
    for side, shape in shapes.items():
      feeds[side] = tf.placeholder(tf.int32, shape)
      dims = map(mtf.Dimension, ('batch', 'length'), shape)
      rows[side] = mtf.import_tf_tensor(mesh, feeds[side], mtf.Shape([*dims]))
    with tf.variable_scope(tf.get_variable_scope(), reuse=tf.AUTO_REUSE):
      with foreign.bounded():
        model = models.make_transformer(*self._vocab_sizes)
        if checkpoint:
          records.check_model(model, checkpoint.path)
        found, fetches = build(model, rows, dtype, *options)
      names = {v.name for v in graph.all_variables}
      masters = [v for v in tf.global_variables() if v.op.name in names]
      if checkpoint and not self._parts:  # lowering may fail on other sizes
        comparison.require_same(masters, checkpoint)
      implementation = mtf.placement_mesh_impl.PlacementMeshImpl('', '', [''])
      lowering = mtf.Lowering(graph, {mesh: implementation}, autostack=False)
      copy = lowering.copy_masters_to_slices()
    if not self._parts:
      values = checkpoint and {
        v.initializer.inputs[1]: checkpoint[v.op.name] for v in masters
      }
      self._session.run([v.initializer for v in masters], values)
    self._session.run(copy)
    export = lowering.export_to_tf_tensor
    return feeds, found, tf.nest.map_structure(export, fetches)


def call(
  model: models.Transformer, rows: Mapping[str, mtf.Tensor], dtype: Any
) -> mtf.Tensor:
  """Returns the logits of a model that is called on padded rows, by side."""
  found = [rows[side] for side in ('encoder', 'decoder') if side in rows]
  inputs, targets = found[0], found[-1]
  segments = {}
  if isinstance(model, transformer.Bitransformer):
    if len(found) == 1:  # it needs targets even if only the encoder is shown
      dims = [inputs.shape.dims[0], mtf.Dimension('length', 1)]
      targets = mtf.ones(inputs.mesh, mtf.Shape(dims), tf.int32)
  else:
    segments['sequence_id'] = mtf.minimum(targets, 1)
    if model.autoregressive:
      inputs = transformer.autoregressive_inputs(targets, **segments)
  logits, _ = model.call_simple(
    inputs,
    targets,
    compute_loss=False,
    mode='eval',
    variable_dtype=dtype,
    **segments,
  )
  return logits


def padded(rows: Sequence[Sequence[Any]], padding: Any = 0) -> Array:
  """Returns rows of one length as an array."""
  return np.array(list(itertools.zip_longest(*rows, fillvalue=padding))).T


def _few_shapes(side: str, rows: examples_of.Ids) -> Array:
  """Pads rows to powers of two, or to the most tokens of a side."""
  found, most = padded(rows), examples_of.most_of(side)
  count, length = (1 << (n - 1).bit_length() for n in found.shape)
  length = min(length, most) if most else found.shape[1]
  more = [(0, count - len(rows)), (0, length - found.shape[1])]
  found = np.pad(found, more)
  found[len(rows) :] = found[0]  # rows of padding would decode to the end
  return found


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
    if (found := [one for one in zip(calls, values) if one[0].stack == name])
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
  functions, *others = {tuple(one.letters) for one, _ in layers}
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
