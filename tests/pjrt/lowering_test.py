"""What a run's step takes, as gin describes the run, and in which order."""

import types

import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.host import gin_files
from synth_mtf.pjrt import lowering
from synth_mtf.pjrt.placement import Variables

LENGTHS = {'inputs': 16, 'targets': 8}
TRAIN, EVAL, PREDICT = (
  tf.estimator.ModeKeys.TRAIN,
  tf.estimator.ModeKeys.EVAL,
  tf.estimator.ModeKeys.PREDICT,
)


@pytest.mark.parametrize(
  'model_type, mode, packed, expected',
  [
    ('bitransformer', TRAIN, False, {'inputs': 16, 'targets': 8}),
    ('bitransformer', EVAL, False, {'inputs': 16, 'targets': 8}),
    ('bitransformer', PREDICT, False, {'inputs': 16}),
    ('lm', EVAL, False, {'targets': 8}),
    ('lm', PREDICT, False, {'inputs': 16}),
    (
      'lm',
      TRAIN,
      True,
      {'targets': 8, 'targets_segmentation': 8, 'targets_position': 8},
    ),
  ],
)
def test_features(model_type, mode, packed, expected):
  gin_files.parse(
    ['sizes/tiny.gin'], [f'utils.run.model_type = {model_type!r}']
  )
  shapes = lowering.feature_shapes(4, LENGTHS, mode, packed)
  assert shapes == {name: [4, length] for name, length in expected.items()}


def test_microbatches():
  """Two cores take four sequences each, two in a microbatch."""
  gin_files.parse(['sizes/tiny.gin'], ["utils.run.mesh_shape = 'batch:2'"])
  assert lowering.microbatches(8, LENGTHS) == 1
  name = 'utils.serialize_num_microbatches.tokens_per_microbatch_per_replica'
  gin_files.parse(
    ['sizes/tiny.gin'],
    ["utils.run.mesh_shape = 'batch:2'", f'{name} = 32'],
  )
  assert lowering.microbatches(8, LENGTHS) == 2


@pytest.mark.xla
def test_a_step_is_counted_after_all_have_read_its_number():
  def model_fn(features, labels, mode, params):
    del features, labels, params
    step = tf.train.get_global_step()
    loss = tf.cast(step, tf.float32)
    counted = tf.assign_add(step, 1)
    return types.SimpleNamespace(mode=mode, loss=loss, train_op=counted.op)

  with tf.Graph().as_default():
    tf.train.create_global_step()
    step = lowering.build(model_fn, {}, TRAIN, Variables(None), 1, 'cpu')
    read = step.spec.loss.op.inputs[0].op
    (count,) = [
      op
      for op in step.graph.get_operations()
      if op.type == 'AssignAddVariableOp'
    ]
    _, one = count.inputs
    # What an operation reads may wait in its place.
    assert read in (*count.control_inputs, *one.op.control_inputs)
    assert step.lower().assigned == ['global_step']
