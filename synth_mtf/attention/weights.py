"""What a model attends to: its layers' own values, of the graph that runs.

The model is built as a run builds it, called once on all examples, which stand
in unpacked rows, and its layers tell (`layer.recording`).
"""

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Optional

import gin
import mesh_tensorflow as mtf
import numpy as np
import numpy.typing as npt
import tensorflow.compat.v1 as tf
from mesh_tensorflow import placement_mesh_impl
from mesh_tensorflow.transformer import transformer, utils

from synth_mtf.attention import recording as attention
from synth_mtf.attention.file import SIDES, Attention, Stack
from synth_mtf.checkpoints import comparison, layer_settings
from synth_mtf.checkpoints.files import Checkpoint
from synth_mtf.errors import UserError
from synth_mtf.host import errors
from synth_mtf.host import model as models
from synth_mtf.layer.recording import Alignment

Array = npt.NDArray[Any]
Ids = Sequence[Sequence[int]]

_UNPACKED = (
  'mesh_train_dataset_fn.pack = False',
  'mesh_eval_dataset_fn.pack = False',
)


@dataclasses.dataclass(frozen=True)
class Examples:
  """What a model is shown; each by side, for all examples.

  Attributes:
    ids: the tokens, EOS among them and no padding.
    tokens: the same as text, as the layers of that side see them: those of a
      decoder come one later.
    texts: what was tokenized.
  """

  ids: Mapping[str, Ids]
  tokens: Mapping[str, Sequence[Sequence[str]]]
  texts: Mapping[str, Sequence[str]]


def look(
  run: str,
  label: str,
  examples: Examples,
  vocab_sizes: Mapping[str, int],
  checkpoint: Optional[Checkpoint],
  seed: int = 0,
) -> Attention:
  """Looks at examples with the model that gin holds.

  Args:
    run: the model's folder.
    label: its name in tables.
    examples: what it is shown. With the encoder's alone, its stack alone is
      looked at.
    vocab_sizes: number of embeddings of `inputs` and `targets`.
    checkpoint: its weights; None for freshly drawn ones.
    seed: that they are drawn with.

  Raises:
    UserError: the checkpoint is of another model, a text does not fit it, or
      none of its layers has attention weights.
  """
  return Attention(
    run=run,
    label=label,
    step=checkpoint.step if checkpoint else 0,
    stacks=stacks(examples.ids, vocab_sizes, checkpoint, seed),
    tokens={s: _padded(rows, '') for s, rows in examples.tokens.items()},
    texts={side: np.array(texts) for side, texts in examples.texts.items()},
  )


def sides() -> list[str]:
  """The sides of the model that gin holds: encoder, decoder, or both."""
  model_type = gin.get_bindings(utils.run, resolve_references=False).get(
    'model_type', 'bitransformer'
  )
  if model_type == 'bitransformer':
    return ['encoder', 'decoder']
  if model_type in ('lm', 'delimited_lm'):
    return ['decoder']
  if model_type == 'aligned':
    return ['encoder']
  raise UserError(
    f'the attention of a model of type {model_type!r} cannot be shown; those '
    'of bitransformer, lm, delimited_lm and aligned can'
  )


def stacks(
  ids: Mapping[str, Ids],
  vocab_sizes: Mapping[str, int],
  checkpoint: Optional[Checkpoint],
  seed: int = 0,
) -> dict[str, Stack]:
  """Calls the model that gin holds, and takes down what it attends to.

  Args:
    ids: of the examples, by side.
    vocab_sizes: as for `look`, like all others.
    checkpoint: see there.
    seed: see there.

  Returns:
    Each stack that has attention weights, by name.
  """
  with gin.unlock_config():
    gin.parse_config(_UNPACKED)
  with tf.Graph().as_default(), errors.explained():
    tf.set_random_seed(seed)
    graph = mtf.Graph()
    model = models.make_transformer(
      vocab_sizes['inputs'], vocab_sizes['targets']
    )
    if checkpoint:
      layer_settings.check_resumed(model, checkpoint.path)
    calls: list[Alignment] = []
    with attention.recorded_by(calls.append):
      _call(model, mtf.Mesh(graph, 'mesh'), ids, _dtypes(checkpoint))
    told = [one for one in calls if SIDES[one.stack][0] in ids]
    values = _run(graph, told, checkpoint)
  by_stack = collections.defaultdict(list)
  for one, of_it in zip(told, values):
    by_stack[one.stack].append((one, of_it))
  if not by_stack:
    raise UserError(
      'none of these layers has attention weights over tokens: '
      + ', '.join(sorted({type(x).__name__ for _, x in models.layers(model)}))
    )
  lengths = {side: [len(row) for row in rows] for side, rows in ids.items()}
  return {
    name: _stack(name, by_stack[name], lengths)
    for name in SIDES
    if name in by_stack
  }


@dataclasses.dataclass(frozen=True)
class _Values:
  """What one layer's tensors hold.

  Attributes:
    logits: [examples or 1, heads, queries, memory].
    weights: the same.
    alpha: [heads, functions]; None where nothing is mixed.
  """

  logits: Array
  weights: Array
  alpha: Optional[Array]


def _dtypes(checkpoint: Optional[Checkpoint]) -> mtf.VariableDType:
  """float32, from weights of the type that the checkpoint has."""
  kept = checkpoint.kinds[checkpoint.weights[0]][0] if checkpoint else 'float32'
  return mtf.VariableDType(tf.as_dtype(kept), tf.float32, tf.float32)


def _call(
  model: models.Transformer,
  mesh: mtf.Mesh,
  ids: Mapping[str, Ids],
  dtypes: mtf.VariableDType,
) -> None:
  """Calls the model on rows that are filled up with padding."""
  common = {'compute_loss': False, 'mode': 'eval', 'variable_dtype': dtypes}
  rows = {side: _import(mesh, of_side) for side, of_side in ids.items()}
  if isinstance(model, transformer.Bitransformer):
    # The decoder is called, be there anything for it or not.
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
  padded = _padded(rows, 0).astype(np.int32)
  dims = [
    mtf.Dimension(name, size)
    for name, size in zip(('batch', 'length'), padded.shape)
  ]
  return mtf.import_tf_tensor(mesh, tf.constant(padded), mtf.Shape(dims))


def _padded(rows: Sequence[Sequence[Any]], filling: Any) -> Array:
  longest = max(map(len, rows))
  return np.array([[*row, *[filling] * (longest - len(row))] for row in rows])


def _run(
  graph: mtf.Graph, told: Sequence[Alignment], checkpoint: Optional[Checkpoint]
) -> list[_Values]:
  """Lowers the graph, loads the weights, and computes what was told."""
  weights = {v.name for v in graph.all_variables}
  (mesh,) = {operation.mesh for operation in graph.operations}
  lowering = mtf.Lowering(
    graph,
    {mesh: placement_mesh_impl.PlacementMeshImpl('', '', [''])},
    autostack=False,
  )
  fetches = [
    (
      lowering.export_to_tf_tensor(one.logits),
      lowering.export_to_tf_tensor(one.weights),
      [lowering.export_to_tf_tensor(a) for a in one.alphas if a is not None],
    )
    for one in told
  ]
  masters = [v for v in tf.global_variables() if v.op.name in weights]
  given = {}
  if checkpoint:
    comparison.require_same(masters, checkpoint)
    given = {v.initializer.inputs[1]: checkpoint[v.op.name] for v in masters}
  with tf.Session() as session:
    session.run([v.initializer for v in masters], given)
    session.run(lowering.copy_masters_to_slices())
    found = session.run(fetches)
  return [_values(one, *values) for one, values in zip(told, found)]


def _values(
  told: Alignment, logits: Array, weights: Array, alphas: Sequence[Array]
) -> _Values:
  length, memory = logits.shape[-2:]
  rows, heads = _rows(told.logits, logits), _heads(told.logits, logits)
  alpha = None
  if alphas:
    columns = [np.broadcast_to(a.reshape(-1), [heads]) for a in alphas]
    alpha = np.stack(columns, axis=-1)
  return _Values(
    logits.reshape(rows, heads, length, memory),
    weights.reshape(_rows(told.weights, weights), heads, length, memory),
    alpha,
  )


def _rows(tensor: mtf.Tensor, array: Array) -> int:
  return array.shape[0] if 'batch' in tensor.shape.dimension_names else 1


def _heads(tensor: mtf.Tensor, array: Array) -> int:
  """How many there are; where keys have fewer, heads have two dimensions."""
  return int(np.prod(array.shape[:-2])) // _rows(tensor, array)


def _stack(
  name: str,
  layers: Sequence[tuple[Alignment, _Values]],
  lengths: Mapping[str, Sequence[int]],
) -> Stack:
  """Puts the layers of a stack together."""
  queries, memory = (lengths[side] for side in SIDES[name])
  values = [of_layer for _, of_layer in layers]
  logits = _of_layers([one.logits for one in values])
  weights = _of_layers([one.weights for one in values])
  if logits.shape[1] == 1:
    weights = _once(weights, queries, memory)
  if weights.shape[1] > 1:
    weights = weights * _are_tokens(queries, weights.shape[3])[..., None]
  letters = {tuple(one.letters) for one, _ in layers}
  functions = letters.pop() if len(letters) == 1 else ()
  alphas = [one.alpha for one in values if one.alpha is not None]
  return Stack(
    weights,
    logits,
    functions,
    np.stack(alphas) if functions and len(alphas) == len(values) else None,
  )


def _of_layers(arrays: Sequence[Array]) -> Array:
  """[layers, examples or 1, heads, queries, memory]."""
  rows = max(len(array) for array in arrays)
  return np.stack(
    [np.broadcast_to(array, [rows, *array.shape[1:]]) for array in arrays]
  )


def _are_tokens(lengths: Sequence[int], longest: int) -> Array:
  """1 at tokens and 0 at padding, [examples, 1, length]."""
  at = np.arange(longest) < np.asarray(lengths)[:, None]
  return at[:, None, :].astype(np.float32)


def _once(
  weights: Array, queries: Sequence[int], memory: Sequence[int]
) -> Array:
  """The weights of the longest example, if those of the others are a part."""
  longest = int(np.argmax(np.add(queries, memory)))
  whole = weights[:, longest if weights.shape[1] > 1 else 0]
  for number, (n, m) in enumerate(zip(queries, memory)):
    one = weights[:, number if weights.shape[1] > 1 else 0]
    if (
      n > queries[longest]
      or m > memory[longest]
      or not np.allclose(
        one[..., :n, :m], whole[..., :n, :m], rtol=1e-6, atol=1e-9
      )
    ):
      return weights
  return whole[:, None]
