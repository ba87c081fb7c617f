"""What is timed: steps of a layer, a model and a decoder, run by TensorFlow.

Each builder makes a graph and a session of its own and returns a `Step`.
"""

import dataclasses
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import gin
import mesh_tensorflow as mtf
import numpy as np
import numpy.typing as npt
import tensorflow.compat.v1 as tf
from mesh_tensorflow import placement_mesh_impl
from mesh_tensorflow.transformer import transformer, utils

from benchmarks._contestants import Contestant, configured

_VOCABULARY = 32128  # T5's
_SEED = 1


@dataclasses.dataclass(frozen=True)
class Shape:
  """Sizes of a run.

  Attributes:
    size: the name of a file in gin/sizes.
    batch: number of examples.
    length: tokens of the encoder (or of a layer), padding included.
    targets: tokens of the decoder.
    packed: whether rows hold several sequences; for layers only.
    fill: how full the emptiest and the fullest row may be, at most 1.
    layers: blocks in each stack; 0: as many as the size has.
    beams: of decoding; 1 is greedy.
  """

  size: str = 'base'
  batch: int = 4
  length: int = 512
  targets: int = 114
  packed: bool = False
  fill: tuple[float, float] = (0.6, 1.0)
  layers: int = 0
  beams: int = 1

  def sequence_id(self) -> npt.NDArray[np.int32]:
    """[batch, length]; rows as full as `fill` says, of 1 or (packed) 2."""
    rng = np.random.default_rng(_SEED)
    column = np.arange(self.length)
    least, most = (int(share * self.length) for share in self.fill)
    used = rng.integers(least, most + 1, size=(self.batch, 1))
    ids = (column < used).astype(np.int32)
    if self.packed:
      cut = rng.integers(
        self.length // 4, self.length // 2 + 1, size=(self.batch, 1)
      )
      ids += ids * (column >= cut)
    return ids


@dataclasses.dataclass(frozen=True)
class Step:
  """Something to time.

  Attributes:
    session: its session.
    fetches: what it computes; all of it is fetched, so that none is pruned.
    parameters: number of trained parameters.
    repeats: how often the body of its loop runs, if there is one.
    bytes_read: what the body of the loop must read each time, at least.
  """

  session: tf.Session
  fetches: Any
  parameters: int
  repeats: int = 1
  bytes_read: int = 0

  def run(self) -> Any:
    """Computes it."""
    return self.session.run(self.fetches)


def layer(contestant: Contestant, shape: Shape) -> Step:
  """One encoder layer forward and backward, dropout and padding included.

  As in the paper's tables, there is no relative position bias, which would cost
  all layers the same.
  """
  bindings = (
    'SelfAttention.relative_attention_type = None',
    *(
      ('Synthesizer.relative_attention_type = None',)
      if contestant.name.startswith('mtf ')
      else ()
    ),
    f'Unitransformer.max_length = {max(512, shape.length)}',
    *_packing(contestant, shape.packed),
  )
  with configured(contestant, shape.size, bindings), tf.Graph().as_default():
    tf.set_random_seed(_SEED)
    graph = mtf.Graph()
    mesh = mtf.Mesh(graph, 'mesh')
    context, x, y = _call_layer(mesh, shape)
    cotangent = _normal('cotangent', mesh, x.shape, context.nonpadding)
    loss = mtf.reduce_sum(y * cotangent)
    sources = [v.outputs[0] for v in graph.trainable_variables] + [x]
    gradients = mtf.gradients([loss], sources)
    lowering = mtf.Lowering(
      graph, {mesh: placement_mesh_impl.PlacementMeshImpl([], [], [''])}
    )
    copy = lowering.copy_masters_to_slices()
    results = [lowering.export_to_tf_tensor(t) for t in [y, *gradients]]
    return Step(
      _session(lambda s: s.run(copy)),
      [tf.reduce_sum(t) for t in results],
      sum(v.size for v in graph.trainable_variables),
    )


def training(contestant: Contestant, shape: Shape) -> Step:
  """A whole train step of a T5 model: loss, gradients and Adafactor."""
  rng = np.random.default_rng(_SEED)
  ids = shape.sequence_id()
  targets = dataclasses.replace(shape, length=shape.targets).sequence_id()
  features = {
    'inputs': ids * rng.integers(2, _VOCABULARY, ids.shape),
    'targets': targets * rng.integers(2, _VOCABULARY, targets.shape),
  }
  return _model_step(contestant, shape, features, tf.estimator.ModeKeys.TRAIN)


def decoding(contestant: Contestant, shape: Shape) -> Step:
  """Decoding, encoder included; no example ends before `targets`."""
  features = {'inputs': tokens(shape)}
  bindings = (
    f'Bitransformer.decode.beam_size = {shape.beams}',
    'Bitransformer.decode.temperature = 0.0',
    f'Bitransformer.decode.max_decode_length = {shape.targets}',
    'Unitransformer.sample_autoregressive.never_end = True',
  )
  return _model_step(
    contestant, shape, features, tf.estimator.ModeKeys.PREDICT, bindings
  )


def tokens(shape: Shape) -> npt.NDArray[np.int64]:
  """[batch, length]: tokens of the encoder, 0 at padding."""
  ids = shape.sequence_id()
  return ids * np.random.default_rng(_SEED).integers(2, _VOCABULARY, ids.shape)


def _call_layer(
  mesh: mtf.Mesh, shape: Shape
) -> tuple[transformer.Context, mtf.Tensor, mtf.Tensor]:
  """The encoder's layer of the gin configuration on tokens of its own."""
  model = transformer.Unitransformer(
    layer_stack=None,
    d_model=gin.query_parameter('%d_model'),
    input_vocab_size=_VOCABULARY,
    output_vocab_size=None,
    autoregressive=False,
    positional_embedding=False,
    name='encoder',
  )
  batch = mtf.Dimension('batch', shape.batch)
  length = mtf.Dimension('length', shape.length)
  # Out of a constant, TensorFlow would make masks before the run.
  ids = tf.get_variable(
    'sequence_id', initializer=shape.sequence_id(), trainable=False
  )
  sequence_id = mtf.import_tf_tensor(mesh, ids, mtf.Shape([batch, length]))
  context = transformer.Context(
    model=model,
    mesh=mesh,
    batch_dims=[batch],
    length_dim=length,
    variable_dtype=mtf.VariableDType(tf.float32),
    mode=tf.estimator.ModeKeys.TRAIN,
    losses=[],
    sequence_id=sequence_id,
    position=mtf.range(mesh, length, tf.int32),
    position_is_default=True,
  )
  shape_of_x = mtf.Shape([batch, length, model.model_dim])
  x = _normal('x', mesh, shape_of_x, context.nonpadding)
  layers = gin.query_parameter('encoder/transformer.make_layer_stack.layers')
  with tf.variable_scope('encoder'), gin.config_scope('encoder'):
    return context, x, layers[0].scoped_configurable_fn().call(context, x)


def _normal(
  name: str, mesh: mtf.Mesh, shape: mtf.Shape, nonpadding: mtf.Tensor
) -> mtf.Tensor:
  """Normal numbers at tokens, 0 at padding.

  They are kept as a variable: a graph holds several copies of a constant.
  """
  numbers = tf.get_variable(
    name,
    shape.to_integer_list,
    initializer=tf.random_normal_initializer(seed=_SEED),
    trainable=False,
  )
  return mtf.import_tf_tensor(mesh, numbers, shape) * nonpadding


def _model_step(
  contestant: Contestant,
  shape: Shape,
  features: Mapping[str, npt.NDArray[Any]],
  mode: str,
  bindings: tuple[str, ...] = (),
) -> Step:
  """The host's own model function on constant features."""
  bindings += _packing(contestant, packed=False)
  if shape.layers:
    bindings += (f'num_layers = {shape.layers}',)
  with configured(contestant, shape.size, bindings), tf.Graph().as_default():
    tf.set_random_seed(_SEED)
    tf.train.create_global_step()
    mesh_shape, layout = mtf.Shape([]), mtf.LayoutRules([])
    model = utils.build_model(
      input_vocab_size=_VOCABULARY,
      output_vocab_size=_VOCABULARY,
      layout_rules=layout,
      mesh_shape=mesh_shape,
    )
    with tempfile.TemporaryDirectory() as folder:
      spec = utils.tpu_estimator_model_fn(
        model_type='bitransformer',
        transformer_model=model,
        vocabulary=None,
        model_dir=folder,
        use_tpu=False,
        mesh_shape=mesh_shape,
        layout_rules=layout,
        batch_size=shape.batch,
        sequence_length={'inputs': shape.length, 'targets': shape.targets},
        autostack=True,
        keep_checkpoint_max=1,
        save_checkpoints_steps=1,
        learning_rate_schedule=1e-4,
        optimizer=gin.query_parameter(
          'utils.run.optimizer'
        ).scoped_configurable_fn,
      )({n: tf.constant(x) for n, x in features.items()}, None, mode)
    if mode == tf.estimator.ModeKeys.TRAIN:
      restore, fetches, repeats = spec.training_chief_hooks[0], spec.train_op, 1
    else:
      restore, fetches = spec.prediction_hooks[0], spec.predictions['outputs']
      repeats = shape.targets
    restore.begin()
    parameters = sum(v.shape.num_elements() for v in tf.trainable_variables())
    return Step(
      _session(lambda s: restore.after_create_session(s, None)),
      fetches,
      parameters,
      repeats,
      _bytes_read(shape),
    )


def _bytes_read(shape: Shape) -> int:
  """What a step of decoding reads once, of the model in the current graph.

  The decoder's weights and the softmax's embedding; in place of the weights of
  cross-attention's keys and values, those themselves; of a table a row only.
  """
  elements = 0
  for variable in tf.trainable_variables():
    name, size = variable.op.name, variable.shape.num_elements()
    if name.endswith(('EncDecAttention/k', 'EncDecAttention/v')):
      elements += shape.batch * shape.length * variable.shape.as_list()[-1]
    elif name.startswith(('decoder/', 'shared/')) and '/random/' not in name:
      elements += size
  return 4 * elements


def _packing(contestant: Contestant, packed: bool) -> tuple[str, ...]:
  """Tells our layer what the data pipeline would."""
  if contestant.is_ours:
    return (f'SyntheticAttention.packed = {packed}',)
  return ()


def _session(load: Callable[[tf.Session], None]) -> tf.Session:
  """A session of the current graph, its variables initialized and loaded."""
  session = tf.Session()
  session.run(tf.global_variables_initializer())
  load(session)
  return session
