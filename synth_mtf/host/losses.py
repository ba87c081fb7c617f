"""The share of tokens in what T5's training loss is divided by.

T5's loss is the sum over target tokens, divided by `loss_denominator`: by
default the number of positions of the batch, padding included. Divided by the
share of tokens in the denominator, it is in nats per token.
"""

from typing import Any

import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer

from synth_mtf.host import patches

_SHARE, _IS_LATE = 'synth_mtf_token_share', 'synth_mtf_late_loss'
_END = 1  # the id that ends a sequence


def count_tokens(estimator: Any) -> None:
  """Makes an estimator add the share to the graphs of its training steps."""
  call_model_fn = estimator._call_model_fn

  def call(features: Any, labels: Any, mode: str, config: Any) -> Any:
    with patches.loss_denominators_recorded() as recorded:
      spec = call_model_fn(features, labels, mode, config)
    # Two models, a teacher and its student, have no common loss per token. The
    # operations come last, so that the model has the same without them.
    if mode == tf.estimator.ModeKeys.TRAIN and len(recorded) == 1:
      ((model, denominator),) = recorded.items()
      tokens = tokens_of_loss(features['targets'], model)
      tf.add_to_collection(_SHARE, tokens / denominator)
    return spec

  patches.replace_methods(estimator, _call_model_fn=call)


def token_share() -> tf.Tensor | None:
  """Returns the share of a step, a float; None if it is unknown."""
  shares = tf.get_collection(_SHARE)
  return shares[-1] if shares else None


def mark_late() -> None:
  """Marks the graph as one whose steps return the loss of the step before.

  Only the first and the last step of a session return their own.
  """
  tf.add_to_collection(_IS_LATE, True)


def is_late() -> bool:
  """Whether the graph is marked by `mark_late`."""
  return bool(tf.get_collection(_IS_LATE))


def tokens_of_loss(
  ids: tf.Tensor, model: transformer.Unitransformer
) -> tf.Tensor:
  """Counts the tokens whose loss a model sums, as a float."""
  counted = ids > 0
  if model.loss_on_targets_only:
    # Inputs and targets alternate, and each ends with the end token.
    is_end = tf.cast(tf.equal(ids, _END), tf.int32)
    ends_before = tf.cumsum(is_end, axis=-1, exclusive=True)
    counted &= tf.equal(ends_before % 2, 1)
  members = model.ensemble_dim.size if model.ensemble_dim else 1
  return tf.reduce_sum(tf.cast(counted, tf.float32)) * members
