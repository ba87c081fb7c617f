"""Computes what a model attends to, in the graph that a run would build.

The model that gin holds is built and called once on all examples, one per row,
while its layers are recorded (`attention.recording`).
"""

import collections
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional

import gin
import mesh_tensorflow as mtf
import numpy as np
import tensorflow.compat.v1 as tf
from mesh_tensorflow import placement_mesh_impl
from mesh_tensorflow.transformer import transformer

from synth_mtf.attention import recording
from synth_mtf.attention.examples import Examples, Ids
from synth_mtf.attention.file import SIDES, Array, Attention, Stack
from synth_mtf.checkpoints import comparison, layer_settings
from synth_mtf.checkpoints.files import Checkpoint
from synth_mtf.errors import UserError
from synth_mtf.host import errors
from synth_mtf.host import model as models
from synth_mtf.layer.recording import Alignment

_UNPACKED = (
  'mesh_train_dataset_fn.pack = False',
  'mesh_eval_dataset_fn.pack = False',
)


class _Layer(NamedTuple):
  """What one layer's tensors hold.

  Attributes:
    logits: [examples or 1, heads, queries, memory].
    weights: the same axes.
    alpha: [heads, functions]; None where nothing is mixed.
    functions: their letters.
  """

  logits: Array
  weights: Array
  alpha: Optional[Array]
  functions: tuple[str, ...]


def compute(
  run: str,
  label: str,
  examples: Examples,
  vocab_sizes: Mapping[str, int],
  checkpoint: Optional[Checkpoint],
  seed: int = 0,
) -> Attention:
  """Computes the attention of the model that gin holds.

  Args:
    run: the model's folder.
    label: its name in tables.
    examples: what it reads. Given the encoder's alone, only its stack is
      computed.
    vocab_sizes: the number of embeddings of `inputs` and `targets`.
    checkpoint: its weights; None for initial ones.
    seed: of initial weights.

  Raises:
    UserError: the checkpoint belongs to another model, a text does not fit the
      model, or none of its layers has attention weights.
  """
  ids = examples.ids
  with gin.unlock_config():
    gin.parse_config(_UNPACKED)
  with tf.Graph().as_default(), errors.explained():
    tf.set_random_seed(seed)
    graph = mtf.Graph()
    model = models.make_transformer(
      vocab_sizes['inputs'], vocab_sizes['targets']
    )
    if checkpoint:
      layer_settings.check(model, checkpoint.path)
    calls: list[Alignment] = []
    with recording.recorded_by(calls.append):
      _call(model, mtf.Mesh(graph, 'mesh'), ids, _dtypes(checkpoint))
    calls = [call for call in calls if SIDES[call.stack][0] in ids]
    layers = _run(graph, calls, checkpoint)
  by_stack = collections.defaultdict(list)
  for call, layer in zip(calls, layers):
    by_stack[call.stack].append(layer)
  if not by_stack:
    raise UserError(
      'none of these layers has attention weights over tokens: '
      + ', '.join(sorted({type(x).__name__ for _, x in models.layers(model)}))
    )
  lengths = {side: [len(row) for row in rows] for side, rows in ids.items()}
  return Attention(
    run=run,
    label=label,
    step=checkpoint.step if checkpoint else 0,
    stacks={
      name: _stack(by_stack[name], *(lengths[side] for side in SIDES[name]))
      for name in SIDES
      if name in by_stack
    },
    tokens={s: _padded(rows, '') for s, rows in examples.tokens.items()},
    texts={side: np.array(texts) for side, texts in examples.texts.items()},
  )


def _dtypes(checkpoint: Optional[Checkpoint]) -> mtf.VariableDType:
  """Computes in float32, with the checkpoint's type of weights."""
  stored = (
    checkpoint.kinds[checkpoint.weights[0]][0] if checkpoint else 'float32'
  )
  return mtf.VariableDType(tf.as_dtype(stored), tf.float32, tf.float32)


def _call(
  model: models.Transformer,
  mesh: mtf.Mesh,
  ids: Mapping[str, Ids],
  dtypes: mtf.VariableDType,
) -> None:
  """Calls the model on padded rows."""
  common = {'compute_loss': False, 'mode': 'eval', 'variable_dtype': dtypes}
  rows = {side: _import(mesh, of_side) for side, of_side in ids.items()}
  if isinstance(model, transformer.Bitransformer):
    # The decoder needs some targets even if only the encoder is looked at.
    targets = rows.get('decoder') or _import(mesh, [[1]] * len(ids['encoder']))
    model.call_simple(rows['encoder'], targets, **common)
    return
  (targets,) = rows.values()
  segments = mtf.minimum(targets, 1)
  inputs = targets
  if model.autoregressive:
    inputs = transformer.autoregressive_inputs(targets, segments)
  model.call_simple(inputs, targets, sequence_id=segments, **common)


def _import(mesh: mtf.Mesh, rows: Ids) -> mtf.Tensor:
  padded = tf.constant(_padded(rows, 0), tf.int32)
  dims = zip(('batch', 'length'), padded.shape.as_list())
  shape = mtf.Shape([mtf.Dimension(*dim) for dim in dims])
  return mtf.import_tf_tensor(mesh, padded, shape)


def _padded(rows: Sequence[Sequence[Any]], padding: Any) -> Array:
  longest = max(map(len, rows))
  return np.array([[*row, *[padding] * (longest - len(row))] for row in rows])


def _run(
  graph: mtf.Graph, calls: Sequence[Alignment], checkpoint: Optional[Checkpoint]
) -> list[_Layer]:
  """Lowers the graph, loads the weights, and evaluates what was recorded."""
  weights = {v.name for v in graph.all_variables}
  (mesh,) = {operation.mesh for operation in graph.operations}
  lowering = mtf.Lowering(
    graph,
    {mesh: placement_mesh_impl.PlacementMeshImpl('', '', [''])},
    autostack=False,
  )
  export = lowering.export_to_tf_tensor
  fetches = [
    (
      export(call.logits),
      export(call.weights),
      [export(alpha) for alpha in call.alphas if alpha is not None],
    )
    for call in calls
  ]
  masters = [v for v in tf.global_variables() if v.op.name in weights]
  values = {}
  if checkpoint:
    comparison.require_same(masters, checkpoint)
    values = {v.initializer.inputs[1]: checkpoint[v.op.name] for v in masters}
  with tf.Session() as session:
    session.run([v.initializer for v in masters], values)
    session.run(lowering.copy_masters_to_slices())
    fetched = session.run(fetches)
  return [_layer(call, *arrays) for call, arrays in zip(calls, fetched)]


def _layer(
  call: Alignment, logits: Array, weights: Array, alphas: Sequence[Array]
) -> _Layer:
  logits = _with_axes(call.logits, logits)
  alpha = None
  if alphas:
    heads = logits.shape[1]
    columns = [np.broadcast_to(a.reshape(-1), [heads]) for a in alphas]
    alpha = np.stack(columns, axis=-1)
  return _Layer(
    logits, _with_axes(call.weights, weights), alpha, tuple(call.letters)
  )


def _with_axes(tensor: mtf.Tensor, array: Array) -> Array:
  """[examples or 1, heads, queries, memory], all heads in one axis."""
  rows = len(array) if 'batch' in tensor.shape.dimension_names else 1
  return array.reshape(rows, -1, *array.shape[-2:])


def _stack(
  layers: Sequence[_Layer], queries: Sequence[int], memory: Sequence[int]
) -> Stack:
  """Joins the layers of a stack, given the lengths of the examples."""
  logits = _join([layer.logits for layer in layers])
  weights = _join([layer.weights for layer in layers])
  if logits.shape[1] == 1 < weights.shape[1]:
    weights = _shared(weights, queries, memory)
  if weights.shape[1] > 1:
    is_token = np.arange(weights.shape[3]) < np.asarray(queries)[:, None]
    weights = weights * is_token[:, None, :, None].astype(np.float32)
  if len({layer.functions for layer in layers}) > 1:
    return Stack(weights, logits)
  alphas = [layer.alpha for layer in layers if layer.alpha is not None]
  mixed = len(alphas) == len(layers)
  return Stack(
    weights, logits, layers[0].functions, np.stack(alphas) if mixed else None
  )


def _join(arrays: Sequence[Array]) -> Array:
  """[layers, examples or 1, heads, queries, memory]."""
  rows = max(map(len, arrays))
  return np.stack(
    [np.broadcast_to(array, [rows, *array.shape[1:]]) for array in arrays]
  )


def _shared(
  weights: Array, queries: Sequence[int], memory: Sequence[int]
) -> Array:
  """The weights of the longest example, if they contain those of the others."""
  longest = int(np.argmax(np.add(queries, memory)))
  whole = weights[:, [longest]]
  if (max(queries), max(memory)) != (queries[longest], memory[longest]):
    return weights
  for number, (n, m) in enumerate(zip(queries, memory)):
    part = weights[:, [number], :, :n, :m]
    if not np.allclose(part, whole[..., :n, :m], rtol=1e-6, atol=1e-9):
      return weights
  return whole
