"""What a session gets from steps on a device: a small model function's."""

import gin
import jax
import pytest
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import utils

from synth_mtf.host import losses, patches
from synth_mtf.pjrt import estimator
from synth_mtf.pjrt.hosts import Hosts
from synth_mtf.pjrt.placement import Devices

TRAIN, EVAL, PREDICT = (
  tf.estimator.ModeKeys.TRAIN,
  tf.estimator.ModeKeys.EVAL,
  tf.estimator.ModeKeys.PREDICT,
)
HOOK = tf.estimator.SessionRunHook()
ORDER_OF_DATA = 't5.models.mesh_transformer.mesh_train_dataset_fn'


@pytest.fixture(autouse=True)
def steps_in_int64():
  """As `devices.find` does, but not for other tests."""
  before = jax.config.jax_enable_x64
  jax.config.update('jax_enable_x64', True)
  yield
  jax.config.update('jax_enable_x64', before)


def metrics(doubled):
  return {'doubled': doubled}


def host_model_fn(use_tpu):
  """Makes a model function whose loss is x and a hundred for each step."""
  assert use_tpu

  def build(features, labels, mode, params):
    del labels, params
    x = features['x']
    step = tf.train.get_global_step()
    loss = x + 100 * tf.cast(step, tf.float32)
    seed = tf.get_default_graph().get_tensor_by_name('seed:0')
    if mode == TRAIN:
      return utils.tpu_estimator.TPUEstimatorSpec(
        mode,
        loss=loss,
        train_op=tf.assign_add(step, 1).op,
        training_hooks=[HOOK],
      )
    if mode == EVAL:
      return utils.tpu_estimator.TPUEstimatorSpec(
        mode,
        loss=loss,
        eval_metrics=(metrics, [2 * x]),
        evaluation_hooks=[HOOK],
      )
    return utils.tpu_estimator.TPUEstimatorSpec(
      mode,
      predictions={'seed': tf.identity(seed), 'half': x / 2},
      prediction_hooks=[HOOK],
    )

  return build


class Run:
  """A session with a step on a device, which takes a number for x."""

  def __init__(self, mode, seed=None):
    self.programs = estimator.Programs(Devices(jax.devices('cpu')[:1]))
    build = estimator.model_fn(host_model_fn, self.programs)
    config = tf.estimator.RunConfig(tf_random_seed=seed)
    with tf.Graph().as_default():
      self._x = tf.placeholder(tf.float32, [])
      self.step = tf.train.create_global_step()
      self.spec = build({'x': self._x}, None, mode, config=config)
      self.is_late = losses.is_late()
      options = tf.GraphOptions(place_pruned_graph=True)
      self.session = tf.Session(config=tf.ConfigProto(graph_options=options))
      self.session.run(tf.global_variables_initializer())

  def __call__(self, fetches, x):
    return self.session.run(fetches, {self._x: x})


@pytest.mark.xla
def test_a_step_returns_the_loss_of_the_step_before():
  """But for the first and the last step."""
  run = Run(TRAIN)
  run.programs.end_at(4)
  step = run.spec.loss, run.spec.train_op
  assert [run(step, x)[0] for x in range(4)] == [0, 0, 101, 303]
  assert run(run.step, 0) == 4
  assert run.is_late
  assert run.spec.training_chief_hooks == (HOOK,)


@pytest.mark.xla
def test_an_evaluation_returns_its_own_loss_and_metrics():
  run = Run(EVAL)
  metric_fn, values = run.spec.eval_metrics
  wanted = [run.spec.loss, metric_fn(*values)]
  for x in (1, 2):
    assert run(wanted, x) == [x, {'doubled': 2 * x}]
  assert not run.is_late
  assert run.spec.evaluation_hooks == (HOOK,)


@pytest.mark.xla
@pytest.mark.parametrize('seed', [0, 7, None])
def test_predictions_and_their_random_numbers(seed):
  """They follow from the step, or without a seed from the run and the call."""
  first, again = Run(PREDICT, seed), Run(PREDICT, seed)
  assert first.spec.prediction_hooks == (HOOK,)
  assert first.spec.predictions['seed'].shape == [2]
  found = [run(run.spec.predictions, 3) for run in (first, first, again)]
  assert [one['half'] for one in found] == [1.5, 1.5, 1.5]
  seeds = [tuple(one['seed']) for one in found]
  if seed is None:
    assert len({*seeds}) == 3
    assert seeds[0][0] == seeds[1][0] != seeds[2][0]
  else:
    assert seeds == [(seed, 0)] * 3
    first.step.load(5, first.session)
    assert tuple(first(first.spec.predictions, 3)['seed']) == (seed, 5)


def test_t5s_estimator_leaves_devices_to_jax(monkeypatch):
  made = tf.estimator.Estimator(lambda features: None)
  patches.replace_methods(made, train=lambda max_steps, hooks: None)
  monkeypatch.setattr(utils, 'get_estimator', lambda: made)
  before = utils.tpu_estimator_model_fn
  with estimator.used(Devices(jax.devices('cpu')[:1])):
    utils.get_estimator().train(max_steps=7, hooks=[])
    _, programs = utils.tpu_estimator_model_fn.args
  assert programs.last_step == 7
  assert utils.tpu_estimator_model_fn is before
  config = made._session_config  # noqa: SLF001  the session's
  assert config.graph_options.place_pruned_graph
  assert dict(config.device_count) == {'GPU': 0}
  assert not gin.get_bindings(ORDER_OF_DATA), 'only hosts share their order'


def test_hosts_share_an_order_of_data_that_no_seed_makes():
  for given in (None, 0):
    gin.clear_config()
    if given is not None:
      gin.bind_parameter(f'{ORDER_OF_DATA}.seed', given)
    gin.finalize()
    estimator._share_order_of_data(Hosts())  # noqa: SLF001
    seed = gin.query_parameter(f'{ORDER_OF_DATA}.seed')
    assert isinstance(seed, int)
    assert given in (None, seed)
