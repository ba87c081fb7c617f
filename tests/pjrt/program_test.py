"""Programs that XLA translates, or refuses."""

import contextlib
import types
from typing import Any

import jax
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from jax.experimental.compilation_cache import compilation_cache

from synth_mtf.errors import UserError
from synth_mtf.host import gin_files
from synth_mtf.pjrt import estimator, program
from synth_mtf.pjrt.placement import Devices

LAYER = 'encoder/block_000/layer_000/SyntheticAttention'


@pytest.mark.xla
def test_a_program_updates_its_variables():
  devices = Devices(jax.devices('cpu')[:1])
  with tf.Graph().as_default() as graph:
    x = tf.placeholder(tf.float32, [3], name='x')
    v = tf.get_variable('v', [3], use_resource=True)
    y = x + v
    with tf.control_dependencies([y]):
      update = v.assign_add(x)
    lowered = program.lower(graph, [y], [update.op])
  executable = program.Executable(lowered, devices)
  assert executable.memory().needed >= 3 * 4 * 4  # x, v, y and the new v
  variables = dict.fromkeys(
    lowered.variables, devices.scatter([np.ones(3, np.float32)])
  )
  (given,) = devices.replicate([np.arange(3, dtype=np.float32)])
  for expected in ([1, 2, 3], [1, 3, 5]):
    ((found,),) = executable({'x': given}, variables)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.xla
def test_a_folder_keeps_what_was_compiled(tmp_path):
  hits = []

  def listen(event, **_):
    if event == '/jax/compilation_cache/cache_hits':
      hits.append(event)

  jax.monitoring.register_event_listener(listen)
  devices = Devices(jax.devices('cpu')[:1])
  with tf.Graph().as_default() as graph:
    x = tf.placeholder(tf.float32, [3], name='x')
    lowered = program.lower(graph, [x * 2], [])
  (given,) = devices.replicate([np.arange(3, dtype=np.float32)])
  with _kept_in(tmp_path):
    for taken in (0, 1):
      executable = program.Executable(lowered, devices)
      assert len(hits) == taken
      ((found,),) = executable({'x': given}, {})
      np.testing.assert_array_equal(found, [0, 2, 4])
      assert executable.memory().needed >= 2 * 3 * 4
  assert list(tmp_path.iterdir())


@contextlib.contextmanager
def _kept_in(folder):
  """Sets what JAX reads from environment variables when it is imported."""
  options = {
    'jax_compilation_cache_dir': str(folder),
    'jax_persistent_cache_min_compile_time_secs': 0.0,
  }
  before = {name: getattr(jax.config, name) for name in options}
  _set(options)
  try:
    yield
  finally:
    _set(before)


def _set(options):
  for name, value in options.items():
    jax.config.update(name, value)
  compilation_cache.reset_cache()


@pytest.mark.xla
def test_only_the_last_programs_are_kept():
  programs = estimator.Programs(Devices(jax.devices('cpu')[:1]))
  with tf.Graph().as_default():
    ours: list[Any] = []
    for length in range(1, 7):
      x = tf.placeholder(tf.float32, [length], name=f'x_{length}')
      ours.append(({x.op.name: x}, [x + 1.0], []))
    made = [programs.get(*given) for given in ours]
    for given, kept in zip(ours[-4:], made[-4:], strict=True):
      assert programs.get(*given) is kept
    assert programs.get(*ours[0]) is not made[0], 'compiled again'
    assert programs.get(*ours[-1]) is made[-1]
    assert programs.get(*ours[2]) is not made[2], 'the oldest went'
    kept = programs.get(*ours[2])
    estimator.model_fn(lambda **_: None, programs)  # of another estimator
    assert programs.get(*ours[2]) is not kept


@pytest.mark.xla
def test_a_program_is_that_of_a_batch_and_its_results():
  programs = estimator.Programs(Devices(jax.devices('cpu')[:1]))
  with tf.Graph().as_default():
    x = tf.placeholder(tf.float32, [2], name='x')
    y, z = x + 1.0, x * 2.0
    kept = programs.get({'x': x}, [y], [])
    assert programs.get({'x': tf.ones([2])}, [y], []) is kept
    for batch, results in (
      ({'another name': x}, [y]),
      ({'x': tf.ones([3])}, [y]),
      ({'x': tf.ones([2], tf.int32)}, [y]),
      ({'x': x}, [z]),
    ):
      assert programs.get(batch, results, []) is not kept


@pytest.mark.xla
def test_the_memory_counts_what_a_program_needs_between():
  size = 256
  with tf.Graph().as_default() as graph:
    x = tf.placeholder(tf.float32, [size, size], name='x')
    y = tf.sort(x, axis=0)[0]
    lowered = program.lower(graph, [y], [])
  executable = program.Executable(lowered, Devices(jax.devices('cpu')[:1]))
  assert executable.memory().needed >= 2 * 4 * size**2  # x and it sorted


@pytest.mark.xla
def test_an_operation_without_a_form_in_xla_is_named():
  """With what gin sets for its layer."""
  gin_files.parse(['sizes/tiny.gin', 'variants/random_vanilla.gin'])
  with tf.Graph().as_default() as graph:
    with tf.name_scope(LAYER):
      y = tf.py_func(np.sin, [tf.zeros([2])], tf.float32)
    message = f'(?s)an operation of {LAYER}.*SyntheticAttention.synthesizers = '
    with pytest.raises(UserError, match=message):
      program.lower(graph, [y], [])


@pytest.mark.parametrize('stats', [None, {'bytes_limit': 4_000_000_000}])
def test_a_program_that_fits_passes(stats):
  device = types.SimpleNamespace(memory_stats=lambda: stats, device_kind='v5e')
  program.check_memory(3_000_000_000, device)


def test_a_program_that_does_not_fit_is_refused():
  device = types.SimpleNamespace(
    memory_stats=lambda: {'bytes_limit': 2_000_000_000}, device_kind='v5e'
  )
  with pytest.raises(UserError, match=r'takes 3\.0 GB.*v5e.*has 2\.0 GB'):
    program.check_memory(3_000_000_000, device)
