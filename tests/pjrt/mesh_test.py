"""A core's random numbers, its loops, and its slices of variables."""

import jax
import mesh_tensorflow as mtf
import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.pjrt import mesh, placement, program

SHAPE = mtf.Shape([mtf.Dimension('batch', 4), mtf.Dimension('length', 3)])
THIRD = float(np.array(1 / 3).astype(jax.numpy.bfloat16))
SCALAR = mtf.Shape([])


def device_mesh(
  core=0, seed=(3, 5), shape='batch:2,model:2', variables=None, loops=None
):
  """The mesh as one of its cores sees it."""
  return mesh.DeviceMesh(
    mtf.convert_to_shape(shape),
    mtf.convert_to_layout_rules('batch:batch'),
    mesh.Inputs(tf.constant(core), tf.constant(seed, tf.int32)),
    variables or placement.Variables(None),
    loops or mesh.Loops(),
  )


def draw(cores, shape=SHAPE):
  return cores.random(shape, tf.random.uniform, {}).one_slice


def drawn(**core):
  """Two draws, [2, 2, 3]: of four rows, a core has two."""
  with tf.Graph().as_default(), tf.Session() as session:
    cores = device_mesh(**core)
    return np.array(session.run([draw(cores), draw(cores)]))


def test_random_numbers_differ_by_draw_slice_and_seed():
  first, second = drawn()
  assert first.shape == (2, 3)
  assert (first != second).all()
  # The cores 0 and 1 hold the first two rows, and 2 and 3 the others.
  np.testing.assert_array_equal(drawn(core=1), [first, second])
  for other in (drawn(core=2), drawn(seed=(4, 5)), drawn(seed=(3, 6))):
    assert (other != [first, second]).all()


def test_iterations_draw_their_own_numbers():
  with tf.Graph().as_default(), tf.Session() as session:
    loops = mesh.Loops()
    cores = device_mesh(loops=loops)

    def body(i, found):
      return i + 1, found + tf.one_hot(i, 3) * draw(cores, SCALAR)

    count, in_loop = loops.while_loop(
      lambda i, _: i < 3, body, [tf.constant(0), tf.zeros([3])]
    )
    assert loops.counters == []
    found = session.run([count, in_loop, draw(cores, SCALAR)])
  assert found[0] == 3
  assert len({*found[1], found[2]}) == 4


@pytest.mark.xla
def test_a_variable_is_kept_in_the_slices_type_and_saved_in_the_masters():
  devices = placement.Devices(jax.devices('cpu')[:1])
  variables = placement.Variables(devices)
  with tf.Graph().as_default() as tf_graph:
    cores = device_mesh(shape='', variables=variables)
    graph = mtf.Graph()
    one_core = mtf.Mesh(graph, 'mesh')
    v = mtf.get_variable(
      one_core,
      'v',
      SHAPE,
      master_dtype=tf.float32,
      slice_dtype=tf.bfloat16,
      activation_dtype=tf.float32,
      initializer=tf.constant_initializer(1 / 3),
    )
    update = mtf.assign(v.operation, mtf.cast(2 * v, tf.bfloat16))
    lowering = mtf.Lowering(graph, {one_core: cores})
    before = lowering.export_to_tf_tensor(v)
    assignment = lowering.lowered_operation(update)
    lowered = program.lower(tf_graph, [before], [assignment])
    with tf.Session() as session:
      session.run(tf.global_variables_initializer())
      session.run(lowering.copy_masters_to_slices())
      variables.send()
      executable = program.Executable(lowered, devices)
      ((found,),) = executable({}, variables.arrays)
      (name,) = variables.arrays
      assert variables.arrays[name].dtype == jax.numpy.bfloat16
      session.run(lowering.copy_slices_to_masters())
      (saved,) = session.run(tf.global_variables())
  np.testing.assert_array_equal(found, np.full([4, 3], THIRD))
  assert saved.dtype == np.float32
  np.testing.assert_array_equal(saved, np.full([4, 3], 2 * THIRD))
  handle = tf_graph.get_operation_by_name(name)
  users = handle.outputs[0].consumers()
  *_, write = [op for op in users if op.type == 'AssignVariableOp']
  assert before.op.inputs[0].op in write.control_inputs, 'it reads first'
