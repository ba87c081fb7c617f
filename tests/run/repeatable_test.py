"""Random numbers that follow from the step, not from how it was reached."""

import random

import mesh_tensorflow as mtf
import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.errors import UserError
from synth_mtf.host import patches
from synth_mtf.run import repeatable, training


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


def test_a_step_is_counted_when_all_have_read_its_number():
  with tf.Graph().as_default() as graph, patches.step_counted_last():
    step = tf.train.get_or_create_global_step()
    decay = mtf.optimize.adafactor_decay_rate_pow()
    rate = tf.cast(step, tf.float32)  # a schedule of the learning rate
    tf.assign_add(tf.get_variable('w', []), 1.0)
    tf.assign_add(step, 1)
    reads = {
      operation
      for operation in _behind(decay.op) | _behind(rate.op)
      if operation.type == 'ReadVariableOp'
    }
    counted, other = (
      _behind(operation)
      for handle in (step.handle, tf.trainable_variables()[0].handle)
      for operation in graph.get_operations()
      if operation.type == 'AssignAddVariableOp'
      and operation.inputs[0] is handle
    )
  assert len(reads) == 2
  assert reads <= counted
  assert reads.isdisjoint(other)


def test_every_reader_sees_the_number_of_its_own_step():
  """As Adafactor's decay rate does, beside work that takes all threads."""
  with tf.Graph().as_default(), patches.step_counted_last():
    step = tf.train.get_or_create_global_step()
    work = [tf.random.normal([64, 64]) @ tf.ones([64, 64]) for _ in range(6)]
    decays = [mtf.optimize.adafactor_decay_rate_pow() for _ in range(8)]
    train = tf.group(*work, tf.assign_add(step, 1))
    with tf.Session() as session:
      session.run(tf.global_variables_initializer())
      seen = [session.run([decays, train])[0] for _ in range(300)]
  expected = 1 - np.arange(1.0, 301.0) ** -0.8
  np.testing.assert_allclose(seen, np.stack([expected] * 8, axis=1), rtol=1e-5)


def test_a_seed_needs_the_hash_seed(monkeypatch):
  monkeypatch.delenv('PYTHONHASHSEED', raising=False)
  with pytest.raises(UserError, match='PYTHONHASHSEED=0'):
    training.train_with_progress(None, None, None, 1, None, 1, None, seed=3)


def _behind(operation):
  """All operations that one waits for."""
  todo, found = [operation], set()
  while todo:
    one = todo.pop()
    if one not in found:
      found.add(one)
      todo += [tensor.op for tensor in one.inputs]
      todo += one.control_inputs
  return found
