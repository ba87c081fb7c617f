"""Changes to the host."""

import contextlib
import importlib.util
import json
import sys
import types

import gin
import pytest
import seqio
import tensorflow as tf
import tensorflow.compat.v1 as tf1
from mesh_tensorflow.transformer import utils
from t5.models import mesh_transformer_main

import synth_mtf.tasks  # noqa: F401  registers them
from synth_mtf.host import patches
from tests.checkout import run


@pytest.mark.skipif(
  importlib.util.find_spec('torch') is not None, reason='torch is installed'
)
def test_t5_models_import_without_torch():
  import t5.models

  before = sys.modules['t5.models.hf_model']
  patches.prepare_host()
  assert sys.modules['t5.models.hf_model'] is before
  assert t5.models.HfPyTorchModel is None
  assert callable(t5.models.MtfModel)
  assert 'torch' not in sys.modules


def test_mesh_tensorflow_finds_what_newer_tensorflow_moved():
  from mesh_tensorflow import tpu_variables
  from tensorflow.python.framework import ops

  assert callable(ops.register_tensor_conversion_function)
  assert tpu_variables.ReplicatedVariable


def test_t5s_main_runs_inside_a_context_and_nobody_else_does(monkeypatch):
  @contextlib.contextmanager
  def elsewhere(model_dir, tpu):
    yield {'model_dir': f'{model_dir} of {tpu}'}

  monkeypatch.setattr(mesh_transformer_main, 'utils', utils)
  patches.each_run_inside(elsewhere)
  assert gin.get_bindings(utils.run) == {}, 'it stays the key to its bindings'
  ran = []
  monkeypatch.setattr(utils, 'run', lambda **given: ran.append(given))
  mesh_transformer_main.utils.run(model_dir='folder', tpu=None, tpu_zone=1)
  assert ran == [{'model_dir': 'folder of None', 'tpu': None, 'tpu_zone': 1}]
  assert mesh_transformer_main.utils is not utils


def test_a_run_leaves_no_folder_of_caches(tmp_path):
  task = seqio.TaskRegistry.get('synth_glue_rte_v002')
  (tmp_path / task.name).mkdir()
  (tmp_path / task.name / 'COMPLETED').touch()
  before = [*seqio.get_global_cache_dirs()]
  with patches.separate_caches():
    seqio.add_global_cache_dirs([str(tmp_path)])
    assert task.cache_dir == str(tmp_path / task.name)
  assert seqio.get_global_cache_dirs() == before
  assert task.cache_dir is None


without_estimator = pytest.mark.skipif(
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


@without_estimator
def test_what_is_restored_is_what_the_package_misses():
  """Otherwise a stand-in is no longer needed, or one more is."""
  misses = json.loads(run(sys.executable, '-c', LOOK).stdout)
  restored = {name: sorted(names) for name, names in patches.MISSING.items()}
  assert restored == misses


@without_estimator
def test_mesh_tensorflow_gets_the_package():
  assert utils.tf_estimator.Estimator is tf1.estimator.Estimator
  assert utils.tpu_estimator.TPUEstimator.__module__.startswith(
    'tensorflow_estimator.'
  )


def test_methods_of_one_estimator_are_replaced():
  def model(features):
    del features

  config = tf1.estimator.RunConfig(tf_random_seed=1)
  first, second = (
    tf1.estimator.Estimator(model, config=config) for _ in range(2)
  )
  patches.replace_methods(first, train=lambda: 'ours')
  patches.set_seed(first, 7)
  assert first.train() == 'ours'
  assert first.config.tf_random_seed == 7
  assert second.train.__func__ is type(second).train
  assert second.config.tf_random_seed == 1


def test_what_prepares_a_training_comes_in_order():
  trained = []
  estimator = types.SimpleNamespace(
    train=lambda max_steps, hooks: trained.append((max_steps, hooks))
  )
  patches.before_training(estimator, lambda last: [f'first {last}'])
  patches.before_training(estimator, lambda last: [f'second {last}'])
  estimator.train(max_steps=7, hooks=['of T5'])
  assert trained == [(7, ['of T5', 'first 7', 'second 7'])]


def test_each_estimator_is_changed_in_order(monkeypatch):
  monkeypatch.setattr(utils, 'get_estimator', lambda name: [name])
  with patches.each_estimator_changed_by(lambda made: [*made, 'first']):
    with patches.each_estimator_changed_by(lambda made: [*made, 'second']):
      assert utils.get_estimator('made') == ['made', 'first', 'second']
    assert utils.get_estimator('made') == ['made', 'first']
  assert utils.get_estimator('made') == ['made']


def test_layers_of_a_class_are_computed_by_their_equivalents():
  class Layer:
    def call(self, x):
      return 'host', x

  class Special(Layer):
    pass

  equivalent = types.SimpleNamespace(call=lambda x: ('ours', x))
  with patches.calls_computed_by(lambda layer: equivalent, Layer):
    assert Layer().call(1) == ('ours', 1)
    assert Special().call(1) == ('host', 1)
  assert Layer().call(1) == ('host', 1)


def test_rates_are_computed_from_our_counts():
  task = seqio.TaskRegistry.get('synth_glue_rte_v002')
  counted = seqio.Task.num_input_examples
  with patches.examples_counted_by(lambda task: {task.name: 5}[task.name]):
    assert seqio.mixing_rate_num_examples(task) == 5
  assert seqio.Task.num_input_examples is counted


def test_a_hook_writes_values_without_the_graph(tmp_path):
  for name in ('plain', 'spared'):
    folder = str(tmp_path / name)
    if name == 'spared':
      patches.keep_graph_from_events(folder)
      patches.keep_graph_from_events(folder)  # a second run in this process
    with tf1.Graph().as_default():
      step = tf1.train.get_or_create_global_step()
      counted = tf1.assign_add(step, 1)
      hook = tf1.estimator.StepCounterHook(every_n_steps=1, output_dir=folder)
      with tf1.train.MonitoredSession(hooks=[hook]) as session:
        for _ in range(3):
          session.run(counted)
    tf1.summary.FileWriterCache.clear()
    (path,) = (tmp_path / name).iterdir()
    found = list(tf1.train.summary_iterator(str(path)))
    graphs = [e for e in found if e.graph_def or e.meta_graph_def]
    assert bool(graphs) == (name == 'plain')
    assert any(
      v.tag == 'global_step/sec' for e in found for v in e.summary.value
    )
