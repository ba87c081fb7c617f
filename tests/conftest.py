"""What every test shares: a graph-mode TensorFlow and the real data folder."""

import os
import pathlib

import pytest

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')

from synth_mtf.host import shims

shims.prepare_host()

import gin
import tensorflow.compat.v1 as tf

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent

tf.disable_v2_behavior()
tf.enable_resource_variables()
tf.logging.set_verbosity(tf.logging.ERROR)


@pytest.fixture(scope='session')
def real_data() -> pathlib.Path:
  """The folder of real benchmark files; skips the test where it is absent."""
  folder = os.environ.get('SYNTH_MTF_TEST_DATA')
  path = pathlib.Path(folder) if folder else CHECKOUT.parent / 'shared' / 'data'
  if not path.is_dir():
    pytest.skip(
      f'no real data in {path}; set SYNTH_MTF_TEST_DATA to its folder'
    )
  return path


@pytest.fixture(scope='module', autouse=True)
def _fresh_host():
  """No gin bindings or TensorFlow switches of one test file reach the next."""
  gin.clear_config()
  tf.enable_resource_variables()
  yield
  gin.clear_config()
