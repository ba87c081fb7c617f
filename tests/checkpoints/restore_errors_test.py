"""Errors that occur while a run restores a checkpoint."""

import gin
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import utils

from synth_mtf.checkpoints import restore_errors
from synth_mtf.checkpoints.files import write

READING = tf.errors.DataLossError(None, None, 'Checksum does not match')


def checkpoint(folder, step=3, size=4):
  return write(str(folder), step, {'a/x': np.zeros(size, np.float32)}.items())


def damage(folder, step):
  (data,) = folder.glob(f'model.ckpt-{step}.data*')
  data.write_bytes(data.read_bytes()[:3])


@pytest.mark.parametrize(
  'error', [READING, IndexError('x'), ValueError('x is not a valid checkpoint')]
)
def test_a_damaged_checkpoint_is_named(tmp_path, error):
  checkpoint(tmp_path)
  assert restore_errors.explainer(str(tmp_path))(error) is None
  damage(tmp_path, 3)
  message = str(restore_errors.explainer(str(tmp_path))(error))
  assert 'model.ckpt-3 (truncated or altered)' in message


def test_other_errors_are_not_explained(tmp_path):
  checkpoint(tmp_path)
  damage(tmp_path, 3)
  explain = restore_errors.explainer(str(tmp_path))
  assert explain(ValueError('a size')) is None
  assert explain(KeyError('a')) is None


def test_a_damaged_start_is_named(tmp_path):
  path = checkpoint(tmp_path / 'start')
  gin.bind_parameter('utils.run.init_checkpoint', path)
  assert gin.get_bindings(utils.run)['init_checkpoint'] == path
  explain = restore_errors.explainer(str(tmp_path / 'run'))
  assert explain(READING) is None
  damage(tmp_path / 'start', 3)
  assert f'init_checkpoint = {path} is damaged' in str(explain(READING))


@pytest.mark.parametrize('size, fits', [(4, True), (5, False)])
def test_another_shape_shows_in_the_graph(tmp_path, size, fits):
  """Resource variables fail where they are first read."""
  checkpoint(tmp_path, size=4)
  with tf.Graph().as_default():
    with tf.variable_scope('a'):
      read = tf.get_variable('x', [size]).read_value()
    error = tf.errors.InvalidArgumentError(None, read.op, 'shapes')
  message = restore_errors.explainer(str(tmp_path))(error)
  if fits:
    assert message is None
  else:
    assert 'made by another model: a/x is float32[4]' in str(message)


def test_without_a_checkpoint_nothing_is_explained(tmp_path):
  with tf.Graph().as_default():
    error = tf.errors.InvalidArgumentError(None, tf.no_op(), 'shapes')
  assert restore_errors.explainer(str(tmp_path))(error) is None
