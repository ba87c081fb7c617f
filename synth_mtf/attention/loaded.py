"""A model with its weights in a session, to compute anything on token ids."""

import ctypes
import gc
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import gin
import mesh_tensorflow as mtf
import numpy as np
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer

from synth_mtf.attention.examples import SIDES, Ids, ModelInputs
from synth_mtf.attention.file import Array
from synth_mtf.checkpoints import comparison, identity
from synth_mtf.checkpoints.files import Checkpoint
from synth_mtf.errors import UserError
from synth_mtf.host import explanations, foreign, model as models
from synth_mtf.host.described import DescribedModel

# Builds part of a graph: (model, rows by side, dtype, *options) -> (anything,
# tensors).
Build = Callable[..., tuple[Any, Any]]
_PARTS = 16  # of a graph; each takes tens of megabytes
_UNPACKED = (
  'mesh_train_dataset_fn.pack = False',
  'mesh_eval_dataset_fn.pack = False',
)


class Loaded:
  """A model with its weights in a session.

  It computes in float32, with the weights as stored. Weights are read once; the
  graph has a part for each function and shape of its arguments. Rows are padded
  to few shapes, and at most `_PARTS` parts are kept: since a graph only grows,
  one more makes a new graph.
  """

  def __init__(
    self,
    model: DescribedModel,
    inputs: ModelInputs,
    checkpoint: Checkpoint | None,
  ) -> None:
    """Takes a model; its weights are read when it first runs.

    Args:
      model: what the run's configuration describes.
      inputs: what the model reads.
      checkpoint: holds the weights; None uses initial values.
    """
    self.checkpoint = checkpoint
    self.step = checkpoint.step if checkpoint else 0
    self._model = model
    self._inputs = inputs
    self._weights: Mapping[str, Array] = {}
    self._open()

  def _open(self) -> None:
    """Makes a new session of an empty graph."""
    self._graph = tf.Graph()
    self._session = tf.Session(graph=self._graph)
    self._parts: dict[Any, _Part] = {}

  def _reopen(self) -> None:
    """Frees all parts; the weights stay."""
    with self._graph.as_default():
      weights = {v.op.name: v for v in tf.global_variables()}
    self._weights = self._session.run(weights)
    self.close()
    self._open()

  def close(self) -> None:
    """Frees the memory."""
    self._session.close()

  def run(
    self, build: Build, ids: Mapping[str, Ids], *options: Any
  ) -> tuple[Any, Any]:
    """Calls `build(model, rows, dtype, *options)` once for each shape of rows.

    Returns what `build` returns, with the tensors replaced by their values.
    These may have more and longer rows than `ids`.
    """
    rows = {}
    for side, unpadded in ids.items():
      rows[side] = _few_shapes(unpadded, self._inputs.most(side))
    shapes = {side: array.shape for side, array in rows.items()}
    key = build, options, tuple(shapes.items())
    with explanations.explained(), self._model.configured():
      if key not in self._parts:
        if len(self._parts) >= _PARTS:
          self._reopen()
          _return_memory()
        with self._graph.as_default():
          self._parts[key] = self._add(build, shapes, options)
      part = self._parts[key]
      feed = {part.feeds[side]: array for side, array in rows.items()}
      return part.result, self._session.run(part.fetches, feed)

  def _add(
    self,
    build: Build,
    shapes: Mapping[str, tuple[int, ...]],
    options: Sequence[Any],
  ) -> '_Part':
    """Adds a part to the graph; the first one also loads the weights."""
    with gin.unlock_config():
      gin.parse_config(_UNPACKED)
    tf.set_random_seed(0)
    graph = mtf.Graph()
    mesh = mtf.Mesh(graph, 'mesh')
    feeds, rows = {}, {}
    for side, (batch, length) in shapes.items():
      feeds[side] = tf.placeholder(tf.int32, [batch, length])
      dims = [mtf.Dimension('batch', batch), mtf.Dimension('length', length)]
      rows[side] = mtf.import_tf_tensor(mesh, feeds[side], mtf.Shape(dims))
    with tf.variable_scope(tf.get_variable_scope(), reuse=tf.AUTO_REUSE):
      with foreign.bounded():
        vocabularies = self._inputs.vocabularies.values()
        model = models.make_transformer(*(x.vocab_size for x in vocabularies))
        if self.checkpoint:
          identity.check_model(model, self.checkpoint.path)
        result, tensors = build(model, rows, self._dtype(), *options)
      names = {v.name for v in graph.all_variables}
      masters = [v for v in tf.global_variables() if v.op.name in names]
      is_first = not self._parts
      if self.checkpoint and is_first:  # lowering may fail on other sizes
        comparison.require_same(masters, self.checkpoint)
      implementation = mtf.placement_mesh_impl.PlacementMeshImpl('', '', [''])
      lowering = mtf.Lowering(graph, {mesh: implementation}, autostack=False)
      copy = lowering.copy_masters_to_slices()
    if is_first:
      self._load(masters)
    self._session.run(copy)
    fetches = tf.nest.map_structure(lowering.export_to_tf_tensor, tensors)
    return _Part(feeds, result, fetches)

  def _dtype(self) -> mtf.VariableDType:
    """Keeps weights in the checkpoint's type, and computes in float32."""
    master = 'float32'
    if self.checkpoint:
      variables = self.checkpoint.variables
      for name in self.checkpoint.weights:
        if not tf.as_dtype(variables[name].dtype).is_floating:
          raise UserError(
            f'{name} of {self.checkpoint.path} is {variables[name]}; expected '
            'weights in floating point'
          )
      master = variables[self.checkpoint.weights[0]].dtype
    return mtf.VariableDType(tf.as_dtype(master), tf.float32, tf.float32)

  def _load(self, masters: Sequence[tf.Variable]) -> None:
    """Gives variables their values in the checkpoint, or initial ones."""
    weights: Any = self._weights or self.checkpoint
    values = {}
    if weights:
      for variable in masters:
        initial_value = variable.initializer.inputs[1]
        values[initial_value] = weights[variable.op.name]
    self._session.run([v.initializer for v in masters], values)
    self._weights = {}


class _Part(NamedTuple):
  """A part of the graph: placeholders by side, and what `build` returned."""

  feeds: Mapping[str, tf.Tensor]
  result: Any
  fetches: Any


def _return_memory() -> None:
  """Gives the memory of discarded graphs back to the system.

  Graphs refer to themselves, and Python's collector does not see how large
  they are. glibc keeps what TensorFlow's threads have freed.
  """
  gc.collect()
  if sys.platform == 'linux':
    trim = getattr(ctypes.CDLL(None), 'malloc_trim', None)
    if trim:  # other C libraries lack it
      trim(0)


def call(
  model: models.Transformer, rows: Mapping[str, mtf.Tensor], dtype: Any
) -> mtf.Tensor:
  """Returns the logits of a model that is called on padded rows, by side."""
  given = [rows[side] for side in SIDES if side in rows]
  inputs, targets = given[0], given[-1]
  segments = {}
  if isinstance(model, transformer.Bitransformer):
    if len(given) == 1:  # it needs targets even if only the encoder is shown
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


def _few_shapes(unpadded: Ids, most: int | None) -> Array:
  """Pads rows to powers of two, at least 16, or to the most tokens of a side.

  The number of rows becomes a power of four.
  """
  rows = padded(unpadded)
  count, length = rows.shape
  if most:
    length = min(max(16, _power_of_two(length)), most)
  more_rows, more_tokens = _power_of_four(count) - count, length - rows.shape[1]
  rows = np.pad(rows, [(0, more_rows), (0, more_tokens)])
  rows[count:] = rows[0]  # rows of padding would decode to the end
  return rows


def _power_of_four(number: int) -> int:
  """Returns the next power of four."""
  return 4 ** ((number - 1).bit_length() + 1 >> 1)


def _power_of_two(number: int) -> int:
  """Returns the next power of two."""
  return 1 << (number - 1).bit_length()
