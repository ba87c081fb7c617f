"""Writes summaries of attention to TensorBoard during training.

At regular steps, each layer records the attention weights of the training batch
as a histogram, and the entropy and alpha of each head. The operations are part
of the graph but run only at these steps.

A TPU writes summaries through its host call: only scalars, and at every step.
There, the share of weights above several thresholds replaces the histogram.
"""

import collections
import re
from collections.abc import Callable
from typing import Any

import gin
import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer, utils
from tensorflow.compat.v1 import estimator as tf_estimator

from synth_mtf.errors import ConfigurationError
from synth_mtf.layer.recording import Alignment, recorded_by
from synth_mtf.run.hooks import CountingHook

_ROOT = 'attention/'
_HISTOGRAMS = 'synth_mtf_attention_histograms'


@gin.configurable(module='synth_mtf')
def train_with_attention_summaries(*args: Any, **kwargs: Any) -> None:
  """Runs the host's `train_model` with attention summaries, for TPUs.

  gin/common/watch_attention.gin binds it as `utils.run.train_model_fn`.
  """
  with recorded_by(summarizer(add_shares)):
    utils.train_model(*args, **kwargs)


def summarizer(
  add_weights: Callable[[str, mtf.Tensor], Any],
) -> Callable[[Alignment], None]:
  """Returns a recorder that adds the summaries of each layer to the graph.

  Scalars use the host's `scalar_summary`; a TPU's host call or `SummaryHook`
  writes them. `add_weights(tag, weights)` summarizes the weights of a layer.
  """
  layers: collections.Counter[Any] = collections.Counter()

  def summarize(call: Alignment) -> None:
    if not call.context.train:
      return
    _check(call.context)
    weights = mtf.stop_gradient(call.weights)
    layers[weights.graph, call.stack] += 1
    tag = f'{_ROOT}{call.stack}/layer_{layers[weights.graph, call.stack]:02d}'
    rows = call.context.nonpadding
    if isinstance(rows, mtf.Tensor):
      weights *= mtf.cast(rows, weights.dtype)
    per_head = {'entropy': _entropy(weights, call.context)}
    for letter, alpha in zip(call.letters, call.alphas):
      if alpha is not None:
        per_head['alpha/' + re.sub(r'[^\w.-]', '_', letter)] = alpha
    # A scalar's tag is the name of its operation, including the scope.
    root = tf.VariableScope(reuse=None, name='')
    with tf.variable_scope(root, auxiliary_name_scope=False):
      add_weights(f'{tag}/weights', weights)
      for name, values in per_head.items():
        # No layout splits a dimension of this name.
        heads = mtf.Dimension('all_heads', values.shape.size)
        values = mtf.reshape(values, [heads])
        for number, value in enumerate(mtf.unstack(values, heads), 1):
          mtf.scalar_summary(f'{tag}/{name}/head_{number:02d}', value)

  return summarize


def _check(context: transformer.Context) -> None:
  """Rejects layers called in a loop or recomputed in the backward pass."""
  stack = context.model.layer_stack
  if (
    (context.num_microbatches or 1) > 1
    or isinstance(stack, transformer.ReversibleLayerStack)
    or getattr(stack, '_recompute_grads', False)
  ):
    raise ConfigurationError(
      'attention summaries need each layer to be called once in a step: set '
      'utils.serialize_num_microbatches.tokens_per_microbatch_per_replica = '
      'None, and use neither recompute_grads nor ReversibleLayerStack'
    )


def _entropy(weights: mtf.Tensor, context: transformer.Context) -> mtf.Tensor:
  """Returns the mean entropy of non-padding queries in nats, [heads...]."""
  queries = [*context.batch_dims, context.length_dim]
  heads = [d for d in weights.shape.dims[:-1] if d not in queries]
  logs = mtf.log(mtf.maximum(weights, 1e-30))  # avoids log 0
  # Each row of weights sums to 1, or to 0 if its query is padding.
  count = mtf.reduce_sum(weights, output_shape=heads)
  total = -mtf.reduce_sum(weights * logs, output_shape=heads)
  return total / mtf.maximum(count, 1.0)


def add_shares(tag: str, weights: mtf.Tensor) -> None:
  """Adds the share of nonzero weights above each threshold."""
  seen = mtf.reduce_sum(mtf.cast(mtf.greater(weights, 0.0), tf.float32))
  for size in (0.001, 0.01, 0.1, 0.5):
    above = mtf.cast(mtf.greater(weights, size), tf.float32)
    mtf.scalar_summary(f'{tag}_above_{size}', mtf.reduce_sum(above) / seen)


class Histogram(mtf.Operation):
  """Adds a histogram of nonzero weights when it is lowered."""

  def __init__(self, tag: str, weights: mtf.Tensor) -> None:
    super().__init__([weights], name='histogram')
    self._tag = tag

  def lower(self, lowering: mtf.Lowering) -> None:
    weights = lowering.export_to_tf_tensor(self.inputs[0])
    seen = tf.boolean_mask(weights, weights > 0)
    with tf.name_scope(None):  # keeps the scope out of the tag
      tf.summary.histogram(self._tag, seen, collections=[_HISTOGRAMS])


class SummaryHook(CountingHook):
  """Writes summaries at steps divisible by `every`, including step 0."""

  def __init__(self, model_dir: str, every: int) -> None:
    self._model_dir = model_dir
    self._every = every

  def begin(self) -> None:
    super().begin()
    self._summaries = tf.get_collection(_HISTOGRAMS) + [
      tf.raw_ops.ScalarSummary(tags=tag, values=value)
      for tag, value in tf.get_collection(
        mtf.utils.SCALAR_SUMMARIES_COLLECTION_KEY
      )
      if tag.startswith(_ROOT)
    ]

  def before_run(self, _: Any) -> tf_estimator.SessionRunArgs:
    is_due = self.step % self._every == 0
    return tf_estimator.SessionRunArgs(self._summaries if is_due else [])

  def after_run(self, run_context: Any, run_values: Any) -> None:
    writer = tf.summary.FileWriterCache.get(self._model_dir)
    for summary in run_values.results:
      writer.add_summary(summary, self.step)
    super().after_run(run_context, run_values)
