"""Estimator in releases of TensorFlow that dropped it."""

import json
import sys

import pytest
import tensorflow as tf
from mesh_tensorflow.transformer import utils

from synth_mtf.host import patches
from tests.checkout import run

pytestmark = pytest.mark.skipif(
  tf.__version__.startswith('2.12'), reason='this TensorFlow has Estimator'
)

# In a process without our stand-ins: what the package imports of TensorFlow
# and does not find.
LOOK = """
import ast, collections, importlib, importlib.util, json, pathlib

import tensorflow

(folder,) = importlib.util.find_spec(
  'tensorflow_estimator').submodule_search_locations
misses = collections.defaultdict(set)


def is_module(name):
  try:
    return importlib.import_module(name)
  except ModuleNotFoundError:
    return None


for path in pathlib.Path(folder).rglob('*.py'):
  for node in ast.walk(ast.parse(path.read_text())):
    module = getattr(node, 'module', None) or ''
    if module.startswith('tensorflow.'):
      found = is_module(module)
      for name in (alias.name for alias in node.names):
        if not found:
          misses[module].add(name)
        elif not hasattr(found, name) and not is_module(f'{module}.{name}'):
          misses[f'{module}.{name}']
print(json.dumps({name: sorted(names) for name, names in misses.items()}))
"""


def test_what_is_restored_is_what_the_package_misses():
  """Otherwise a stand-in is no longer needed, or one more is."""
  misses = json.loads(run(sys.executable, '-c', LOOK).stdout)
  restored = {name: sorted(names) for name, names in patches.MISSING.items()}
  assert restored == misses


def test_mesh_tensorflow_gets_the_package():
  assert utils.tf_estimator.Estimator is tf.compat.v1.estimator.Estimator
  assert utils.tpu_estimator.TPUEstimator.__module__.startswith(
    'tensorflow_estimator.'
  )
