"""T5's estimator, with each step computed by JAX's devices.

The session and its hooks stay TensorFlow's: they read the data, keep the master
of each variable, save and restore checkpoints, and write events. T5's model
function builds the program of a core into the session's graph. The session
never runs it, but one operation that hands a batch to the devices.
"""

import contextlib
import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import gin
import jax
import numpy as np
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import utils

from synth_mtf.host import losses, patches
from synth_mtf.pjrt import lowering
from synth_mtf.pjrt.agreement import Agreement
from synth_mtf.pjrt.hosts import Hosts
from synth_mtf.pjrt.placement import Array, Devices, Variables, for_tensorflow
from synth_mtf.pjrt.program import Executable, Lowered, lower

_KEPT = 4  # compiled programs, such as one for each length of the inputs
_STEP = 'global_step'
Features = Mapping[str, tf.Tensor]


@contextlib.contextmanager
def used(devices: Devices) -> Iterator[None]:
  """Makes T5's runs compute on these devices."""
  programs = Programs(devices)

  def prepare(made: Any) -> Any:
    if not devices.hosts.is_alone:
      _share_order_of_data(devices.hosts)
    config = made._session_config  # noqa: SLF001
    # The default places all operations, but the devices alone run the program.
    config.graph_options.place_pruned_graph = True
    config.device_count['GPU'] = 0  # its memory is JAX's
    patches.before_training(made, programs.end_at)
    return made

  make = functools.partial(model_fn, utils.tpu_estimator_model_fn, programs)
  with (
    patches.model_functions_made_by(make),
    patches.each_estimator_changed_by(prepare),
  ):
    yield


def _share_order_of_data(hosts: Hosts) -> None:
  """Lets all hosts read the same batches if no seed makes them."""
  name = 't5.models.mesh_transformer.mesh_train_dataset_fn'
  if gin.get_bindings(name).get('seed') is None:
    with gin.unlock_config():
      gin.bind_parameter(f'{name}.seed', hosts.shared_number('order_of_data'))


def model_fn(
  host_model_fn: Callable[..., Any], programs: 'Programs', **settings: Any
) -> Callable[..., Any]:
  """Returns the model function of an estimator whose steps run on devices.

  Args:
    host_model_fn: T5's `tpu_estimator_model_fn`.
    programs: compiles for as many devices as the mesh has cores.
    **settings: the arguments of `host_model_fn`.
  """
  settings['use_tpu'] = True  # or T5 builds for a session
  build_program = host_model_fn(**settings)
  # What another estimator compiled may have other settings.
  programs.clear()

  def build(
    features: dict[str, tf.Tensor],
    labels: None,
    mode: str,
    params: Any = None,
    config: Any = None,
  ) -> Any:
    del labels, params
    variables = Variables(programs.devices)
    placeholders = {
      name: tf.placeholder(x.dtype, x.shape, name=f'feature_{name}')
      for name, x in features.items()
    }
    step = lowering.build(
      build_program,
      placeholders,
      mode,
      variables,
      len(programs.devices),
      programs.devices.platform,
    )
    batch = {placeholders[name].op.name: x for name, x in features.items()}
    seed = config and config.tf_random_seed
    runner = Runner(programs, variables, step.seed, seed)
    return _SPECS[mode](step.spec, batch, runner)

  return build


class Programs:
  """Compiles programs, and keeps the last few.

  Attributes:
    last_step: the step at which training ends, or None.
  """

  def __init__(self, devices: Devices) -> None:
    self.devices = devices
    self.last_step: int | None = None
    self._kept: dict[Any, tuple[Lowered, Executable]] = {}
    self._compiled = 0

  def end_at(self, step: int) -> list[Any]:
    """Notes the step at which training ends; it takes no hooks for that."""
    self.last_step = step
    return []

  def clear(self) -> None:
    self._kept.clear()

  def get(
    self,
    batch: Features,
    results: Sequence[tf.Tensor],
    updates: Sequence[tf.Operation],
  ) -> tuple[Lowered, Executable]:
    """Returns the program that computes results and runs updates.

    A model function gives the same names to the same results, so that the names
    and the batch's shapes identify its programs.
    """
    key = (
      *((name, x.dtype, *x.shape.as_list()) for name, x in batch.items()),
      *(x.name for x in results),
    )
    if key not in self._kept:
      lowered = lower(tf.get_default_graph(), results, updates)
      self._check_same_on_all_hosts(lowered)
      self._kept[key] = lowered, Executable(lowered, self.devices)
    for oldest in list(self._kept)[:-_KEPT]:
      del self._kept[oldest]
    return self._kept[key]

  def _check_same_on_all_hosts(self, lowered: Lowered) -> None:
    self._compiled += 1
    self.devices.hosts.check_equal(
      f'program/{self._compiled}',
      hashlib.sha256(lowered.hlo).hexdigest(),
      'this host has built another program than process 0. Give the same '
      'command and gin files on every host, with the same versions of '
      'synth_mtf, TensorFlow and Python.',
    )


class Runner:
  """Runs programs of one graph, which share its variables.

  Random numbers follow from the seed and the step, so that a resumed run draws
  what an uninterrupted one does. Without a seed, each run draws its own.
  """

  def __init__(
    self,
    programs: Programs,
    variables: Variables,
    seed_name: str,
    seed: int | None,
  ) -> None:
    self._programs = programs
    self._variables = variables
    self._seed_name = seed_name  # of the program's input
    self._seed = seed
    hosts = programs.devices.hosts
    self._seed_of_run = hosts.shared_number('seed')
    self._calls = 0
    self._agreement: Agreement | None = None
    if not hosts.is_alone:
      self._agreement = Agreement(programs.devices)

  def add(
    self,
    batch: Features,
    results: Sequence[tf.Tensor],
    updates: Sequence[tf.Operation] = (),
    delayed: bool = False,
  ) -> list[tf.Tensor]:
    """Adds an operation to the session's graph; returns what it computes.

    Args:
      batch: values, by the names of the placeholders that they replace.
      results: what to compute, in terms of the placeholders.
      updates: operations of the program to run as well.
      delayed: whether a step returns the previous step's results, so that the
        session prepares the next batch while the devices compute. The first
        and the last step return their own.
    """
    of_program = [*results]
    if self._agreement:
      of_program.append(self._agreement.largest)
    lowered, executable = self._programs.get(batch, of_program, updates)
    names = [name for name in batch if name in lowered.inputs]
    waiting: list[list[jax.Array]] = []

    def run(step: Array, *values: Array) -> list[Array]:
      started = self._start(
        executable, dict(zip(names, values, strict=True)), int(step)
      )
      is_last = step + 1 == self._programs.last_step
      ready = waiting.pop() if waiting and not is_last else started
      if delayed:
        waiting.append(started)
      computed = [for_tensorflow(np.array(x)) for x in ready]
      if self._agreement:
        self._agreement.require(computed.pop())
      return computed

    computed = tf.numpy_function(
      run,
      [tf.train.get_global_step(), *(batch[name] for name in names)],
      [x.dtype for x in results],
    )
    for x, like in zip(computed, results, strict=True):
      x.set_shape(like.shape)
    return computed

  def _start(
    self, executable: Executable, values: Mapping[str, Array], step: int
  ) -> list[jax.Array]:
    self._calls += 1
    self._variables.send()
    seed = [self._seed, step]
    if self._seed is None:
      seed = [self._seed_of_run, self._calls]
    sent: dict[str, Array] = {
      **values,
      self._seed_name: np.array(seed, np.int32),
      _STEP: np.array(step, np.int64),
    }
    if self._agreement:
      known = self._agreement.here(step, values)
      sent[self._agreement.known.op.name] = known
    arrays = self._programs.devices.replicate(list(sent.values()))
    inputs = dict(zip(sent, arrays, strict=True))
    # The session counts steps; the program only reads their number.
    self._variables.arrays[_STEP] = inputs.pop(_STEP)
    results = executable(inputs, self._variables.arrays)
    return [on_each_device[0] for on_each_device in results]


def _train(spec: Any, batch: Features, runner: Runner) -> Any:
  results, updates = lowering.results(spec), lowering.updates(spec)
  (loss,) = runner.add(batch, results, updates, delayed=True)
  losses.mark_late()
  with tf.control_dependencies([loss]):
    count = tf.train.get_global_step().assign_add(1, read_value=False)
  return tf.estimator.EstimatorSpec(
    tf.estimator.ModeKeys.TRAIN,
    loss=loss,
    train_op=count,
    training_chief_hooks=spec.training_hooks,
  )


def _evaluate(spec: Any, batch: Features, runner: Runner) -> Any:
  metric_fn, _ = spec.eval_metrics
  loss, *values = runner.add(batch, lowering.results(spec))
  return type(spec)(  # `_replace` would keep the old metrics
    tf.estimator.ModeKeys.EVAL,
    loss=loss,
    eval_metrics=(metric_fn, values),
    evaluation_hooks=spec.evaluation_hooks,
  )


def _predict(spec: Any, batch: Features, runner: Runner) -> Any:
  values = runner.add(batch, lowering.results(spec))
  return tf.estimator.EstimatorSpec(
    tf.estimator.ModeKeys.PREDICT,
    predictions=dict(zip(sorted(spec.predictions), values, strict=True)),
    prediction_hooks=spec.prediction_hooks,
  )


_SPECS = {
  tf.estimator.ModeKeys.TRAIN: _train,
  tf.estimator.ModeKeys.EVAL: _evaluate,
  tf.estimator.ModeKeys.PREDICT: _predict,
}
