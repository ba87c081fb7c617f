"""What the base class passes on: types, table index, dropout, z loss."""

import mesh_tensorflow as mtf
import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.layer.base import AttentionLayer
from tests import harness

IDS = np.array([[1, 1, 2, 2], [1, 1, 1, 0]])
X = harness.draw('x', [2, 4, 7])


class Sum(AttentionLayer):
  """Y is the values; keeps the call."""

  label = 'Sum'

  def attend(self, call):
    self.seen = call
    return mtf.replace_dimensions(
      call.values, call.memory_length, call.context.length_dim
    )


def layer(**settings):
  return Sum(**{'num_heads': 3, 'key_value_size': 5, **settings})


@pytest.mark.parametrize(
  'activations, settings, expected',
  [
    ('float32', {}, tf.float32),
    ('bfloat16', {}, tf.float32),
    ('bfloat16', {'float32_logits': True}, tf.float32),
    ('bfloat16', {'float32_logits': False}, tf.bfloat16),
  ],
)
def test_type_of_the_logits(activations, settings, expected):
  made = layer(attention_kwargs=settings)
  harness.parallel(lambda: made, X, IDS, dtype=activations)
  assert made.seen.logits_dtype == expected


@pytest.mark.parametrize(
  'coefficient, mode, microbatches, factor',
  [
    (0.5, 'train', 0, 0.5),
    (0.5, 'train', 4, 0.125),
    (0.5, 'eval', 0, None),
    (None, 'train', 0, None),
  ],
)
def test_z_loss_is_a_mean_square_over_tokens(
  coefficient, mode, microbatches, factor
):
  log_z = harness.draw('log z', [2, 4])

  def build(mesh):
    context = harness.host_context(mesh, X.shape, IDS, mode=mode)
    context.num_microbatches = microbatches
    add = layer(z_loss_coeff=coefficient).z_loss(context)
    assert (add is None) == (factor is None)
    if add is not None:
      add(harness.constant(mesh, log_z, 'batch length'))
    return [*context.losses, mtf.zeros(mesh, [])]

  *losses, _ = harness.evaluate(build)
  expected = [factor * (log_z**2 * (IDS > 0)).mean()] if factor else []
  np.testing.assert_allclose(losses, expected, rtol=1e-6)
