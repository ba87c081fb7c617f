"""Random numbers that follow from the step, not from how it was reached."""

import random

import mesh_tensorflow as mtf
import numpy as np
import tensorflow.compat.v1 as tf

from synth_mtf.run import repeatable


def draws(first_step, steps, devices=('', '')):
  """What each step draws, in a run that starts at a step."""
  with tf.Graph().as_default(), repeatable.drawn_by_step():
    tf.set_random_seed(1)
    random.seed(1)
    step = tf.train.get_or_create_global_step()
    graph = mtf.Graph()
    mesh = mtf.Mesh(graph, 'mesh')
    shape = mtf.Shape([mtf.Dimension('batch', 4), mtf.Dimension('length', 3)])
    drawn = mtf.random_uniform(mesh, shape, dtype=tf.float32)
    mesh_impl = mtf.placement_mesh_impl.PlacementMeshImpl(
      f'batch:{len(devices)}', 'batch:batch', list(devices)
    )
    lowering = mtf.Lowering(graph, {mesh: mesh_impl})
    value = lowering.export_to_tf_tensor(drawn)
    with tf.control_dependencies([value]):
      train = tf.assign_add(step, 1)
    scaffold = tf.train.Scaffold(
      init_fn=lambda _, session: step.load(first_step, session)
    )
    hooks = [repeatable.StepHook()]
    with tf.train.SingularMonitoredSession(hooks, scaffold) as session:
      return [session.run([value, train])[0] for _ in range(steps)]


def test_a_resumed_run_draws_what_a_straight_one_draws():
  straight, resumed = draws(0, 4), draws(2, 2)
  np.testing.assert_array_equal(straight[2:], resumed)


def test_no_two_steps_and_no_two_parts_draw_the_same():
  everything = np.concatenate([x.ravel() for x in draws(0, 4)])
  assert len(np.unique(everything)) == len(everything)
  assert 0 <= everything.min() < 0.5 < everything.max() < 1
