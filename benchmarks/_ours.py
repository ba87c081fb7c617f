"""Runs layers, models and decoding of a checkout as a worker; see `_worker`.

    python -m benchmarks._ours layer '{"batch": 4, "length": 512}' random ...

`speed` explains the names.
"""

import contextlib
import dataclasses
import functools
import itertools
import json
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

sys.argv[0] = 'synth-mtf'  # such processes import TensorFlow lazily
_checkout = os.environ.get('BENCHMARKED_CHECKOUT', '')
sys.path.insert(0, _checkout)
from synth_mtf.run import process

process.load_quietly()
sys.path.remove(_checkout)  # import the benchmarks of this checkout

import gin
import mesh_tensorflow as mtf
import numpy as np
import numpy.typing as npt
import tensorflow.compat.v1 as tf
from mesh_tensorflow import placement_mesh_impl
from mesh_tensorflow.transformer import transformer, utils

from benchmarks._layer import tokens_seen
from benchmarks._worker import serve
from synth_mtf.host import gin_files

_VOCABULARY = 32128  # T5's
_SEED = 1
_DEVICES = 'devices'  # beside a name: computed by JAX


@dataclasses.dataclass(frozen=True)
class Shape:
  """Sizes of a run; see `speed`."""

  size: str = 'base'
  batch: int = 4
  length: int = 512  # padding included
  targets: int = 114
  packed: bool = False  # for layers only
  fill: tuple[float, float] = (0.6, 1.0)
  layers: int = 0
  beams: int = 1

  def sequence_id(self) -> npt.NDArray[np.int32]:
    """Returns [batch, length]: ids of the sequences in a row, 0 at padding."""
    seen = tokens_seen(self.batch, self.length, self.fill).astype(np.int32)
    if not self.packed:
      return seen
    n, rng = self.length, np.random.default_rng(_SEED)
    cut = rng.integers(n // 4, n // 2 + 1, size=(self.batch, 1))
    return seen * (1 + (np.arange(n) >= cut))

  def tokens(self) -> npt.NDArray[np.int64]:
    """Returns [batch, length]: encoder tokens, 0 at padding."""
    ids, rng = self.sequence_id(), np.random.default_rng(_SEED)
    return ids * rng.integers(2, _VOCABULARY, ids.shape)


Step = Callable[[], object]


def layer(name: str, shape: Shape) -> Step:
  """One encoder layer, forward and backward, with dropout and padding.

  The relative position bias is omitted, as it costs all layers the same. All
  results are fetched, so that none is pruned.
  """
  bindings = [
    f'{kind}.relative_attention_type = None'
    for kind in ('SelfAttention', 'Synthesizer')
  ]
  bindings.append(f'Unitransformer.max_length = {max(512, shape.length)}')
  with _configured(name, shape, bindings), tf.Graph().as_default():
    tf.set_random_seed(_SEED)
    graph = mtf.Graph()
    mesh = mtf.Mesh(graph, 'mesh')
    context, x, y = _call_layer(mesh, shape)
    cotangent = _normal('cotangent', mesh, x.shape, context.nonpadding)
    loss = mtf.reduce_sum(y * cotangent)
    sources = [v.outputs[0] for v in graph.trainable_variables] + [x]
    gradients = mtf.gradients([loss], sources)
    placement = placement_mesh_impl.PlacementMeshImpl([], [], [''])
    lowering = mtf.Lowering(graph, {mesh: placement})
    copy = lowering.copy_masters_to_slices()
    results = [lowering.export_to_tf_tensor(t) for t in [y, *gradients]]
    fetches = [tf.reduce_sum(t) for t in results]
    return _step(lambda session: session.run(copy), fetches)


def model(name: str, shape: Shape) -> Step:
  """A full training step of a T5 model: loss, gradients and Adafactor."""
  targets = dataclasses.replace(shape, length=shape.targets)
  features = {'inputs': shape.tokens(), 'targets': targets.tokens()}
  return _model_step(name, shape, features, tf.estimator.ModeKeys.TRAIN)


def decode(name: str, shape: Shape) -> Step:
  """Decoding, including the encoder; no example ends before `targets`."""
  bindings = [
    f'Bitransformer.decode.beam_size = {shape.beams}',
    'Bitransformer.decode.temperature = 0.0',
    f'Bitransformer.decode.max_decode_length = {shape.targets}',
    'Unitransformer.sample_autoregressive.never_end = True',
  ]
  mode, features = tf.estimator.ModeKeys.PREDICT, {'inputs': shape.tokens()}
  return _model_step(name, shape, features, mode, bindings)


@contextlib.contextmanager
def _configured(name: str, shape: Shape, bindings: list[str]) -> Iterator[None]:
  """Configures T5 with the layer under test; clears gin on exit."""
  variant, *beside = name.split(', ')
  files = [f'sizes/{shape.size}.gin']
  if variant != 'SelfAttention':
    variant = variant.replace('mtf ', 'original_')
    files.append(f'variants/{variant}.gin')
  files += [f'common/{file}.gin' for file in beside if file != _DEVICES]
  gin_files.parse(
    files,
    [
      # One microbatch per batch, as in runs/cpu.gin.
      'utils.serialize_num_microbatches.tokens_per_microbatch_per_replica '
      '= None',
      "utils.get_variable_dtype.slice_dtype = 'float32'",
      "utils.get_variable_dtype.activation_dtype = 'float32'",
      'utils.run.optimizer = @optimize.AdafactorOptimizer',
      # In a run, the data pipeline determines this.
      f'SyntheticAttention.packed = {shape.packed}',
      *([f'num_layers = {shape.layers}'] if shape.layers else []),
      *bindings,
    ],
  )
  try:
    yield
  finally:
    gin.clear_config()


def _call_layer(
  mesh: mtf.Mesh, shape: Shape
) -> tuple[transformer.Context, mtf.Tensor, mtf.Tensor]:
  """Applies the configured encoder layer to random inputs."""
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
  # A variable, because TensorFlow would fold the masks of a constant.
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
  """Draws normal noise at tokens; a variable, since graphs copy constants."""
  numbers = tf.get_variable(
    name,
    shape.to_integer_list,
    initializer=tf.random_normal_initializer(seed=_SEED),
    trainable=False,
  )
  return mtf.import_tf_tensor(mesh, numbers, shape) * nonpadding


def _model_step(
  name: str,
  shape: Shape,
  features: Mapping[str, npt.NDArray[Any]],
  mode: str,
  bindings: list[str] = [],  # noqa: B006 (it is only read)
) -> Step:
  """Makes a step of the host's own model function on constant features."""
  with _configured(name, shape, bindings), tf.Graph().as_default():
    tf.set_random_seed(_SEED)
    tf.train.create_global_step()
    mesh_shape, layout = mtf.Shape([]), mtf.LayoutRules([])
    model = utils.build_model(
      input_vocab_size=_VOCABULARY,
      output_vocab_size=_VOCABULARY,
      layout_rules=layout,
      mesh_shape=mesh_shape,
    )
    optimizer = gin.query_parameter('utils.run.optimizer')
    make, programs = utils.tpu_estimator_model_fn, None
    if name.endswith(f', {_DEVICES}'):
      from synth_mtf.pjrt import devices, estimator  # older checkouts lack it
      from synth_mtf.pjrt.placement import Devices

      programs = estimator.Programs(Devices(devices.find('cpu')[:1]))
      make = functools.partial(estimator.model_fn, make, programs)
      mesh_shape = mtf.convert_to_shape('batch:1')
    with tempfile.TemporaryDirectory() as folder:
      spec = make(
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
        optimizer=optimizer.scoped_configurable_fn,
      )({n: tf.constant(x) for n, x in features.items()}, None, mode)
    if mode == tf.estimator.ModeKeys.TRAIN:
      restore, fetches = spec.training_chief_hooks[0], spec.train_op
    else:
      restore, fetches = spec.prediction_hooks[0], spec.predictions['outputs']
    restore.begin()
    step = _step(lambda s: restore.after_create_session(s, None), fetches)
    return _waiting(step, programs) if programs else step


def _waiting(step: Step, programs: Any) -> Step:
  """Makes a step wait for its own results, as a run's last step does."""
  numbers = itertools.count(1)

  def wait() -> object:
    programs.last_step = next(numbers)
    return step()

  return wait


def _step(load: Callable[[tf.Session], None], fetches: Any) -> Step:
  """Makes a step that runs `fetches` in a session of the current graph."""
  session = tf.Session()
  session.run(tf.global_variables_initializer())
  load(session)
  return functools.partial(session.run, fetches)


if __name__ == '__main__':
  logging.disable(logging.CRITICAL)  # gin logs each folder that it searches
  section, sizes, *names = sys.argv[1:]
  make = {'layer': layer, 'model': model, 'decode': decode}[section]
  serve({name: make(name, Shape(**json.loads(sizes))) for name in names})
