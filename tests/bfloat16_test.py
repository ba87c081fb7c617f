"""Whole models in bfloat16 activations compute what they compute in float32."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests import model

pytestmark = pytest.mark.slow  # builds whole models


def error(folder, variant) -> float:
  """Root mean square of the error by bfloat16, relative to the logits'."""
  path = model.write(folder, variant)
  exact = model.logits(path, variant)
  rounded = model.logits(path, variant, activations=tf.bfloat16)
  return np.sqrt(np.mean((rounded - exact) ** 2) / np.mean(exact**2))


@pytest.fixture(scope='module')
def t5_error(tmp_path_factory) -> float:
  return error(tmp_path_factory.mktemp('t5'), None)


@pytest.mark.parametrize(
  'variant',
  [
    *('random', 'factorized_random_vanilla'),
    *('factorized_dense', 'random_dense_vanilla'),
  ],
)
def test_loses_no_more_than_t5_does(variant, t5_error, tmp_path):
  assert 0 < t5_error < 0.1, 'each layer rounds to 8 bits'
  assert 0 < error(tmp_path, variant) < 1.2 * t5_error
