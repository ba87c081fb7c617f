"""Slices of variables on devices."""

import jax
import numpy as np
import tensorflow as tf

from synth_mtf.pjrt.placement import Devices, Slicing, Variables

VALUE = np.arange(24, dtype=np.float32).reshape(4, 6)


def test_slices_are_those_of_the_layout_and_make_the_whole_again():
  # The mesh [2, 2] splits the second dimension over its second axis.
  begins = ((0, 0), (0, 3), (0, 0), (0, 3))
  slicing = Slicing(begins, slice_shape=(4, 3), shape=(4, 6))
  slices = slicing.split(VALUE)
  np.testing.assert_array_equal(slices[1], VALUE[:, 3:])
  np.testing.assert_array_equal(slices[0], slices[2])
  np.testing.assert_array_equal(slicing.join(dict(enumerate(slices))), VALUE)


def test_what_a_device_holds_is_a_copy():
  variables = Variables(Devices(jax.devices('cpu')[:1]))
  variables.add('w', [(0, 0)], VALUE.shape, VALUE.shape)
  given = VALUE.copy()
  variables.put('w', given)
  given[:] = 0
  variables.send()
  read = variables.get('w')
  np.testing.assert_array_equal(read, VALUE)
  read[:] = 0
  np.testing.assert_array_equal(variables.get('w'), VALUE)


def test_bfloat16_of_tensorflow_is_jaxs_on_the_devices():
  """Programs that do not train keep variables in it; TensorFlow has its own."""
  like = np.dtype(tf.bfloat16.as_numpy_dtype)
  variables = Variables(Devices(jax.devices('cpu')[:1]))
  variables.add('w', [(0, 0)], VALUE.shape, VALUE.shape)
  variables.put('w', VALUE.astype(like))
  assert variables.get('w').dtype == like
  variables.send()
  assert variables.arrays['w'].dtype == jax.numpy.bfloat16
  read = variables.get('w')
  assert read.dtype == like
  np.testing.assert_array_equal(read.astype(np.float32), VALUE)


def test_slices_of_one_shape_are_fetched_by_one_program():
  devices = Devices(jax.devices('cpu')[:1])
  arrays = [devices.scatter([VALUE + i]) for i in range(4)]
  compiled = []

  def note(event, _seconds, **_):
    if event.endswith('backend_compile_duration'):
      compiled.append(event)

  jax.monitoring.register_event_duration_secs_listener(note)
  for i, array in enumerate(arrays):
    (found,) = devices.fetch(array, [0])
    np.testing.assert_array_equal(found, VALUE + i)
  assert len(compiled) == 1
  devices.fetch(devices.scatter([VALUE[:2]]), [0])
  assert len(compiled) == 2


def test_a_scalar_is_on_every_device():
  devices = Devices(jax.devices('cpu')[:1])
  (step,) = devices.replicate([np.array(3, np.int32)])
  assert step.shape == () and int(step) == 3
