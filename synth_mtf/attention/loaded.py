"""A model with its weights in a session, to compute anything on token ids."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gin
import mesh_tensorflow as mtf
import numpy as np
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer

from synth_mtf.attention import examples as examples_of
from synth_mtf.attention.file import Array
from synth_mtf.checkpoints import comparison, identity
from synth_mtf.checkpoints.files import Checkpoint
from synth_mtf.host import explanations, foreign, model as models

# Builds part of a graph: (model, rows by side, dtype, *options) -> (anything,
# tensors).
Build = Callable[..., tuple[Any, Any]]
_UNPACKED = (
  'mesh_train_dataset_fn.pack = False',
  'mesh_eval_dataset_fn.pack = False',
)


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
    self, vocab_sizes: Sequence[int], checkpoint: Checkpoint | None
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

    Returns what `build` returns, with the tensors replaced by their values.
    These may have more and longer rows than `ids`.
    """
    rows = {side: _few_shapes(side, found) for side, found in ids.items()}
    shapes = tuple((side, found.shape) for side, found in rows.items())
    part = build, options, shapes
    if part not in self._parts:
      with self._graph.as_default(), explanations.explained():
        self._parts[part] = self._add(build, dict(shapes), options)
    feeds, found, fetches = self._parts[part]
    feed = {feeds[side]: found for side, found in rows.items()}
    with explanations.explained():
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
    kinds = checkpoint and checkpoint.variables[checkpoint.weights[0]]
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
          identity.check_model(model, checkpoint.path)
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
