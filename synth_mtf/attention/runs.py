"""Computes the attention of runs in the graph that a run would build.

The run's model is built from its configuration and called once on all examples,
one per row, while `layer.recording` records its layers.
"""

import importlib
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional, Union

import gin
import mesh_tensorflow as mtf
import numpy as np
import tensorflow.compat.v1 as tf
from mesh_tensorflow import placement_mesh_impl
from mesh_tensorflow.transformer import transformer

from synth_mtf import tasks
from synth_mtf.attention import examples as examples_of
from synth_mtf.attention.examples import Examples, Ids
from synth_mtf.attention.file import SIDES, Array, Attention, Stack
from synth_mtf.checkpoints import comparison, records
from synth_mtf.checkpoints.files import Checkpoint
from synth_mtf.errors import UserError
from synth_mtf.host import errors, foreign
from synth_mtf.host import model as models
from synth_mtf.layer.recording import Alignment, recorded_by
from synth_mtf.results import runs

INITIAL = 'initial'
LAST = 'last'
_UNPACKED = (
  'mesh_train_dataset_fn.pack = False',
  'mesh_eval_dataset_fn.pack = False',
)


def look(
  folder: str,
  steps: Sequence[Union[int, str]],
  choose: Callable[[], Examples],
  vocabulary: Optional[str] = None,
) -> list[Attention]:
  """Computes the attention of one run at each of the given steps.

  Args:
    folder: a model folder, or a demo folder that holds one run.
    steps: steps of checkpoints, `LAST`, or `INITIAL` for initial weights.
    choose: returns the examples; called when gin has the run's configuration.
    vocabulary: as in `--vocabulary`; None uses the run's vocabulary.
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
  label = run.label  # also configures
  run.configure()
  choose_vocabulary(vocabulary, run.folder)
  with errors.explained():  # T5's own vocabulary needs a network
    known = examples_of.vocabulary()
    for checkpoint in filter(None, checkpoints):
      records.check_vocabulary(tuple(known.values()), checkpoint.path)
    examples = choose()
    sizes = [one.vocab_size for one in known.values()]
  return [
    Attention(
      run=run.name,
      label=label,
      step=checkpoint.step if checkpoint else 0,
      stacks=stacks(examples.ids, sizes, checkpoint),
      tokens={s: _padded(rows, '') for s, rows in examples.tokens.items()},
      texts={s: np.array(texts) for s, texts in examples.texts.items()},
    )
    for checkpoint in checkpoints
  ]


def look_at_each(
  found: Sequence[runs.Run],
  choose: Callable[[], Examples],
  vocabulary: Optional[str] = None,
) -> tuple[list[Attention], list[str]]:
  """Returns attention at each run's last checkpoint, and why any is missing.

  `choose` and `vocabulary` are as in `look`.
  """
  attentions, missing = [], []
  for run in found:
    try:
      attentions += look(run.name, [LAST], choose, vocabulary)
    except UserError as error:
      missing.append(f'No attention of {run.label}, {run.name}: {error}')
  return attentions, missing


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


def stacks(
  ids: Mapping[str, Ids],
  vocab_sizes: Sequence[int],
  checkpoint: Optional[Checkpoint],
) -> dict[str, Stack]:
  """Computes the attention of the model that gin configures.

  Args:
    ids: token ids, by side. With the encoder's alone, only the encoder's
      attention is computed.
    vocab_sizes: numbers of embeddings for inputs and targets.
    checkpoint: holds the weights; None uses initial values.
  """
  with gin.unlock_config():
    gin.parse_config(_UNPACKED)
  calls: list[Alignment] = []
  with tf.Graph().as_default(), errors.explained():
    tf.set_random_seed(0)
    graph = mtf.Graph()
    with foreign.bounded(), recorded_by(calls.append):
      model = models.make_transformer(*vocab_sizes)
      if checkpoint:
        records.check_model(model, checkpoint.path)
      _call(model, mtf.Mesh(graph, 'mesh'), ids, checkpoint)
    calls = [call for call in calls if SIDES[call.stack][0] in ids]
    values = _evaluate(graph, calls, checkpoint)
  if not calls:
    raise UserError(
      'none of these layers has attention weights over tokens: '
      + ', '.join(sorted({type(x).__name__ for _, x in models.layers(model)}))
    )
  return {
    name: _stack(found, [len(row) for row in ids[queries]])
    for name, (queries, _) in SIDES.items()
    if (found := [one for one in zip(calls, values) if one[0].stack == name])
  }


def _call(
  model: models.Transformer,
  mesh: mtf.Mesh,
  ids: Mapping[str, Ids],
  checkpoint: Optional[Checkpoint],
) -> None:
  """Calls the model on padded rows, in float32, with the weights as stored."""
  is_pair = isinstance(model, transformer.Bitransformer)
  if is_pair:  # the decoder needs targets even if only the encoder is shown
    ids = {'decoder': [[1]] * len(ids['encoder']), **ids}
  rows = []
  for side in filter(ids.get, ('encoder', 'decoder')):
    padded = tf.constant(_padded(ids[side], 0), tf.int32)
    dims = zip(('batch', 'length'), padded.shape.as_list())
    shape = mtf.Shape([mtf.Dimension(*dim) for dim in dims])
    rows.append(mtf.import_tf_tensor(mesh, padded, shape))
  inputs, targets = rows[0], rows[-1]
  segments = {}
  if not is_pair:
    segments['sequence_id'] = mtf.minimum(targets, 1)
    if model.autoregressive:
      inputs = transformer.autoregressive_inputs(targets, **segments)
  kind = checkpoint.kinds[checkpoint.weights[0]][0] if checkpoint else 'float32'
  model.call_simple(
    inputs,
    targets,
    compute_loss=False,
    mode='eval',
    variable_dtype=mtf.VariableDType(tf.as_dtype(kind), tf.float32, tf.float32),
    **segments,
  )


def _padded(rows: Sequence[Sequence[Any]], padding: Any) -> Array:
  return np.array(list(itertools.zip_longest(*rows, fillvalue=padding))).T


def _evaluate(
  graph: mtf.Graph, calls: Sequence[Alignment], checkpoint: Optional[Checkpoint]
) -> list[Any]:
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
  names = {v.name for v in graph.all_variables}
  masters = [v for v in tf.global_variables() if v.op.name in names]
  values = {}
  if checkpoint:
    comparison.require_same(masters, checkpoint)
    values = {v.initializer.inputs[1]: checkpoint[v.op.name] for v in masters}
  with tf.Session() as session:
    session.run([v.initializer for v in masters], values)
    session.run(lowering.copy_masters_to_slices())
    return session.run(fetches)


def _stack(
  layers: Sequence[tuple[Alignment, Any]], lengths: Sequence[int]
) -> Stack:
  """Joins the layers of a stack; `lengths` are the query lengths."""
  logits = _joined([(call.logits, found[0]) for call, found in layers])
  weights = _joined([(call.weights, found[1]) for call, found in layers])
  if weights.shape[1] > 1:
    is_token = np.arange(weights.shape[3]) < np.array(lengths)[:, None]
    weights = np.where(is_token[:, None, :, None], weights, np.float32(0))
  if logits.shape[1] == 1 and np.allclose(weights, weights[:, :1], 1e-6, 1e-9):
    weights = weights[:, :1]
  functions, *others = {tuple(call.letters) for call, _ in layers}
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
