"""A step as T5's model function builds it for a core, and lowers it to XLA.

`build` takes a model function, such as that of an estimator; `step_of_run`
makes one for the run that gin describes.
"""

import dataclasses
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import utils

from synth_mtf.host import patches
from synth_mtf.host.run_config import RunConfig
from synth_mtf.pjrt import mesh
from synth_mtf.pjrt.placement import Variables
from synth_mtf.pjrt.program import Lowered, lower

ModelFn = Callable[..., Any]
Features = Mapping[str, tf.Tensor]
TRAIN = tf.estimator.ModeKeys.TRAIN
EVAL = tf.estimator.ModeKeys.EVAL


@dataclasses.dataclass(frozen=True)
class Step:
  """What a core computes in a step, in TensorFlow's graph.

  Attributes:
    graph: the graph.
    spec: the result of T5's model function.
    seed: the name of the input that random numbers follow from.
  """

  graph: tf.Graph
  spec: Any
  seed: str

  def lower(self) -> Lowered:
    return lower(self.graph, results(self.spec), updates(self.spec))


def results(spec: Any) -> list[tf.Tensor]:
  """Returns what a step computes; `spec` is the model function's result.

  That is the loss in training, the loss and the values of the metrics in an
  evaluation, and the predictions, sorted by name, otherwise.
  """
  if spec.mode == TRAIN:
    return [spec.loss]
  if spec.mode == EVAL:
    _, values = spec.eval_metrics
    return [spec.loss, *values]
  return [spec.predictions[name] for name in sorted(spec.predictions)]


def updates(spec: Any) -> list[tf.Operation]:
  """Returns the operations that a step runs for their effect."""
  return [spec.train_op] if spec.mode == TRAIN else []


def host_lowering(spec: Any) -> mtf.Lowering:
  """Returns Mesh-TensorFlow's lowering, which the host hides in a hook."""
  kinds = spec.training_hooks, spec.evaluation_hooks, spec.prediction_hooks
  hooks = [hook for hooks in kinds for hook in hooks or ()]
  (restore,) = [h for h in hooks if isinstance(h, mtf.MtfRestoreHook)]
  return restore._lowering  # noqa: SLF001


def build(
  model_fn: ModelFn,
  features: Features,
  mode: str,
  variables: Variables,
  cores: int,
  platform: str,
) -> Step:
  """Adds a step to the current graph.

  Args:
    model_fn: T5's.
    features: the program's inputs.
    mode: a key of `tf.estimator.ModeKeys`.
    variables: learns how the program's variables are divided.
    cores: their number.
    platform: their kind, as JAX names it.
  """
  inputs = mesh.Inputs.placeholders()
  with (
    mesh.used(inputs, variables, cores, platform) as params,
    patches.step_counted_last(),
  ):
    spec = model_fn(dict(features), None, mode, params)
  return Step(tf.get_default_graph(), spec, inputs.seed.op.name)


def model_fn_of_run(
  batch: int, lengths: Mapping[str, int], vocab_size: int
) -> ModelFn:
  """Returns T5's model function for the run that gin describes.

  The learning rate is constant.

  Args:
    batch: sequences on all cores together.
    lengths: lengths of `inputs` and `targets`.
    vocab_size: the number of embeddings.
  """
  run = RunConfig()
  model = utils.build_model(
    run.model_type, vocab_size, vocab_size, run.layout, run.mesh
  )
  return utils.tpu_estimator_model_fn(
    run.model_type,
    model,
    None,  # the vocabulary, which TensorFlow would decode with on CPUs
    tempfile.gettempdir(),
    use_tpu=True,
    mesh_shape=run.mesh,
    layout_rules=run.layout,
    batch_size=batch,
    sequence_length=dict(lengths),
    autostack=run.autostack,
    keep_checkpoint_max=1,
    save_checkpoints_steps=1,
    learning_rate_schedule=0.01,
    optimizer=run.optimizer,
    variable_filter=run.variable_filter,
  )


def microbatches(batch: int, lengths: Mapping[str, int]) -> int:
  """Returns into how many parts a training step of the run divides a batch."""
  run = RunConfig()
  dim = mtf.Dimension('batch', batch)
  return utils.serialize_num_microbatches(dim, lengths, run.mesh, run.layout)


def feature_shapes(
  batch: int, lengths: Mapping[str, int], mode: str, packed: bool = False
) -> dict[str, list[int]]:
  """Returns the shapes of a batch of the run that gin describes, by name.

  Args:
    batch: sequences on all cores together.
    lengths: lengths of `inputs` and `targets`.
    mode: a key of `tf.estimator.ModeKeys`.
    packed: whether a row holds several sequences.
  """
  names = list(lengths)
  if mode not in (TRAIN, EVAL):
    names = ['inputs']
  elif RunConfig().model_type == 'lm':
    names = ['targets']
  suffixes = ['', '_segmentation', '_position'] if packed else ['']
  return {
    f'{name}{suffix}': [batch, lengths[name]]
    for name in names
    for suffix in suffixes
  }


def step_of_run(
  batch: int,
  lengths: Mapping[str, int],
  vocab_size: int = 32128,
  mode: str = TRAIN,
  packed: bool = False,
  platform: str = 'tpu',
) -> Step:
  """Builds a step of the run that gin describes, in a new graph.

  Args:
    batch: sequences on all cores together.
    lengths: lengths of `inputs` and `targets`.
    vocab_size: the number of embeddings.
    mode: a key of `tf.estimator.ModeKeys`.
    packed: whether a row holds several sequences.
    platform: the kind of devices, as JAX names it.
  """
  model_fn = model_fn_of_run(batch, lengths, vocab_size)
  shapes = feature_shapes(batch, lengths, mode, packed)
  with tf.Graph().as_default(), tf.variable_scope('', use_resource=True):
    tf.train.create_global_step()
    features = {
      name: tf.placeholder(tf.int32, shape, name=f'feature_{name}')
      for name, shape in shapes.items()
    }
    variables = Variables(None)
    cores = RunConfig().mesh.size
    return build(model_fn, features, mode, variables, cores, platform)
