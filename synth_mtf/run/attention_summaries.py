"""Shows attention in TensorBoard while a model trains.

Every so many steps, for each layer and from the batch that is trained on: a
histogram of its weights, the entropy of each head, and each head's alpha. They
are part of the graph but computed only at these steps.

A TPU's summaries go through the host: scalars only, at every step. There the
share of weights above some sizes replaces the histogram.
"""

import collections
import contextlib
import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any, Callable, Optional

import gin
import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer, utils
from tensorflow.compat.v1 import estimator as tf_estimator

from synth_mtf.attention import recording
from synth_mtf.errors import ConfigurationError
from synth_mtf.layer.recording import Alignment
from synth_mtf.run.hooks import CountingHook

_TAG = 'attention/{}/layer_{:02d}'  # of a stack, and of a layer from 1 on
_COLLECTION = 'synth_mtf_attention_summaries'
_SIZES = (0.001, 0.01, 0.1, 0.5)
_TINY = 1e-30  # avoids log 0
_NO_TAG = r'[^\w.-]'


@contextlib.contextmanager
def watched(
  model_dir: str, every: int
) -> Iterator[tf_estimator.SessionRunHook]:
  """Yields a hook that summarizes the attention of the model built meanwhile.

  Args:
    model_dir: where the event files go.
    every: steps between two summaries.

  Raises:
    ConfigurationError: `every` is not a positive integer.
  """
  if type(every) is not int or every < 1:
    raise ConfigurationError(
      f'train_with_progress.attention_every = {every!r}: expected a number of '
      'steps, or None'
    )
  with recording.recorded_by(_Recorder(_to_collection)):
    yield _Hook(model_dir, every)


@gin.configurable(module='synth_mtf')
def train_with_attention_summaries(*args: Any, **kwargs: Any) -> None:
  """The host's `train_model` with attention summaries, for a TPU.

  gin/common/watch_attention.gin binds it as `utils.run.train_model_fn`.
  """
  with recording.recorded_by(_Recorder(_as_scalars)):
    utils.train_model(*args, **kwargs)


# Writes a layer's weights, and tensors of [heads] by name, under a tag.
Write = Callable[[str, mtf.Tensor, Mapping[str, mtf.Tensor]], None]


class _Recorder:
  """Numbers layers, and has the measures of each one written."""

  def __init__(self, write: Write) -> None:
    self._write = write
    self._graph: Optional[mtf.Graph] = None
    self._layers: collections.Counter[str] = collections.Counter()

  def __call__(self, call: Alignment) -> None:
    if not call.context.train:
      return
    _check(call.context)
    if call.weights.graph is not self._graph:
      self._graph = call.weights.graph
      self._layers.clear()
    self._layers[call.stack] += 1
    tag = _TAG.format(call.stack, self._layers[call.stack])
    weights = mtf.stop_gradient(call.weights)
    rows = call.context.nonpadding
    if isinstance(rows, mtf.Tensor):
      weights *= mtf.cast(rows, weights.dtype)
    per_head = {'entropy': _entropy(weights, call.context)}
    for letter, alpha in zip(call.letters, call.alphas):
      if alpha is not None:
        # A tag must not have just any character.
        per_head[f'alpha/{re.sub(_NO_TAG, "_", letter)}'] = alpha
    self._write(tag, weights, per_head)


def _check(context: transformer.Context) -> None:
  """Refuses layers that are called in a loop or recomputed for gradients."""
  if (context.num_microbatches or 1) > 1:
    raise ConfigurationError(
      'attention summaries need the batch in one piece: set '
      'utils.serialize_num_microbatches.tokens_per_microbatch_per_replica = '
      'None'
    )
  stack = context.model.layer_stack
  if isinstance(stack, transformer.ReversibleLayerStack) or getattr(
    stack, '_recompute_grads', False
  ):
    raise ConfigurationError(
      'attention summaries do not work with layers that are recomputed for '
      'their gradients (recompute_grads, ReversibleLayerStack)'
    )


def _entropy(weights: mtf.Tensor, context: transformer.Context) -> mtf.Tensor:
  """In nats, [heads...]; the mean over queries without padding."""
  memory = weights.shape.dims[-1]
  queries = [*context.batch_dims, context.length_dim]
  heads = mtf.Shape([d for d in weights.shape.dims[:-1] if d not in queries])
  of_row = -mtf.reduce_sum(
    weights * mtf.log(mtf.maximum(weights, _TINY)), reduced_dim=memory
  )
  # A row of weights sums to 1, or to 0 for padding.
  count = mtf.reduce_sum(weights, output_shape=heads)
  total = mtf.reduce_sum(of_row, output_shape=heads)
  return total / mtf.maximum(count, 1.0)


def _to_collection(
  tag: str, weights: mtf.Tensor, per_head: Mapping[str, mtf.Tensor]
) -> None:
  """Adds a histogram, and a scalar per head."""

  def add_weights(values: tf.Tensor) -> None:
    seen = tf.boolean_mask(values, values > 0)
    add(tf.summary.histogram, 'weights', seen)

  def add_heads(name: str, values: tf.Tensor) -> None:
    for number, value in enumerate(tf.unstack(tf.reshape(values, [-1])), 1):
      add(tf.summary.scalar, f'{name}/head_{number:02d}', value)

  def add(summary: Any, name: str, value: tf.Tensor) -> None:
    with tf.name_scope(None):  # else the tag would begin with the scope
      summary(f'{tag}/{name}', value, collections=[_COLLECTION])

  _Exported(weights, add_weights)
  for name, values in per_head.items():
    _Exported(values, functools.partial(add_heads, name))


class _Exported(mtf.Operation):
  """Passes a lowered tensor to a function."""

  def __init__(self, x: mtf.Tensor, use: Callable[[tf.Tensor], None]) -> None:
    super().__init__([x], name='exported')
    self._use = use

  def lower(self, lowering: mtf.Lowering) -> None:
    """Exports the tensor as a whole."""
    self._use(lowering.export_to_tf_tensor(self.inputs[0]))


def _as_scalars(
  tag: str, weights: mtf.Tensor, per_head: Mapping[str, mtf.Tensor]
) -> None:
  """Adds a scalar per head, and the shares of weights above some sizes."""
  # A scalar's tag is the name of its operation, scope and all.
  root = tf.VariableScope(reuse=None, name='')
  with tf.variable_scope(root, auxiliary_name_scope=False):
    for name, values in per_head.items():
      # One-hot products work even if the mesh splits the heads.
      heads = mtf.Dimension('all_heads', values.shape.size)
      values = mtf.reshape(values, mtf.Shape([heads]))
      for number in range(heads.size):
        index = mtf.constant(values.mesh, number, dtype=tf.int32)
        value = mtf.reduce_sum(values * mtf.one_hot(index, heads))
        mtf.scalar_summary(f'{tag}/{name}/head_{number + 1:02d}', value)
    seen = mtf.reduce_sum(mtf.cast(mtf.greater(weights, 0.0), tf.float32))
    for size in _SIZES:
      above = mtf.cast(mtf.greater(weights, size), tf.float32)
      share = mtf.reduce_sum(above) / seen
      mtf.scalar_summary(f'{tag}/weights_above_{size}', share)


class _Hook(CountingHook):
  """Writes summaries, the first of them before the first step."""

  def __init__(self, model_dir: str, every: int) -> None:
    self._model_dir = model_dir
    self._every = every

  def begin(self) -> None:
    """Merges the summaries that the model has added."""
    super().begin()
    found = tf.get_collection(_COLLECTION)
    self._summary = tf.summary.merge(found, collections=[]) if found else None

  def before_run(
    self, run_context: Any
  ) -> Optional[tf_estimator.SessionRunArgs]:
    """Fetches the summaries at a step that is due."""
    del run_context
    self._due = self._summary is not None and self.step % self._every == 0
    return tf_estimator.SessionRunArgs(self._summary) if self._due else None

  def after_run(self, run_context: Any, run_values: Any) -> None:
    """Writes them."""
    if self._due:
      writer = tf.summary.FileWriterCache.get(self._model_dir)
      writer.add_summary(run_values.results, self.step)
    super().after_run(run_context, run_values)
