"""Puts Estimator, which Mesh-TensorFlow trains with, back into TensorFlow.

TensorFlow 2.16 dropped it. The last release of the package
tensorflow-estimator, 2.15, still works if it finds the names below, none of
which Mesh-TensorFlow uses.
"""

import importlib
import importlib.util
import os
import sys
import types

# What tensorflow-estimator imports and newer releases of TensorFlow lack:
# modules, and the names that it needs in them while it is imported.
MISSING: dict[str, tuple[str, ...]] = {
  # Estimators under a distribution strategy; Mesh-TensorFlow has meshes.
  'tensorflow.python.distribute.estimator_training': (),
  # Embedding tables in a TPU's memory, for recommender models.
  'tensorflow.python.tpu.tpu_embedding': (
    'AdagradParameters',
    'AdamParameters',
    'FtrlParameters',
    'MomentumParameters',
    'ProximalAdagradParameters',
    'RMSPropParameters',
    'StochasticGradientDescentParameters',
  ),
  'tensorflow.python.tpu.tpu_embedding_gradient': (),
  # What saves a checkpoint when a TPU is about to go; switched off below.
  'tensorflow.python.tpu.session_support': (),
}


def restore() -> None:
  """Makes `tf.estimator` and its TPU modules available if they are not."""
  import tensorflow as tf
  import tensorflow.compat.v1 as tf1
  from tensorflow.python.util import tf_export

  if hasattr(tf1, 'estimator'):
    return
  # The decorator of Estimator's public names looks for this.
  api = tf_export.TENSORFLOW_API_NAME
  vars(tf_export).setdefault('ESTIMATOR_API_NAME', api)
  for name, classes in MISSING.items():
    if not importlib.util.find_spec(name):
      stand_in = types.ModuleType(
        name, 'Stands in for what TensorFlow dropped.'
      )
      vars(stand_in).update({c: type(c, (), {}) for c in classes})
      _put(name, stand_in)
  os.environ.setdefault('TF_TPU_GRACEFUL_SHUTDOWN_MODE', '')
  estimator = importlib.import_module('tensorflow_estimator._api.v1.estimator')
  vars(tf)['estimator'] = vars(tf1)['estimator'] = estimator
  for name in ('tpu_config', 'tpu_estimator'):  # imported by Mesh-TensorFlow
    _put(
      f'tensorflow.python.tpu.{name}',
      importlib.import_module(
        f'tensorflow_estimator.python.estimator.tpu.{name}'
      ),
    )


def _put(name: str, module: types.ModuleType) -> None:
  sys.modules[name] = module
  package, _, last = name.rpartition('.')
  setattr(importlib.import_module(package), last, module)
