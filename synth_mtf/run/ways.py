"""The ways in which a run computes: in a session, on a TPU, on JAX's devices.

Nothing else asks which way it is. A `Way` is chosen once, by the flags of
`synth-mtf transformer` or by gin, and answers what depends on it.
"""

import abc
import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, get_args

import gin
import tensorflow.compat.v1 as tf
from absl import flags

from synth_mtf.errors import UserError
from synth_mtf.host import (
  explanations,
  gin_files,
  patches,
  tpu_checks,
  xla_flags,
)
from synth_mtf.host.run_config import RunConfig
from synth_mtf.pjrt import devices, hosts
from synth_mtf.pjrt.placement import Devices
from synth_mtf.run.writing import Writing, WritingBehind

Kind = Literal['cpu', 'gpu', 'tpu']
_GIN_NAME = 'synth_mtf.run_on_devices.kind'
_SECONDS = 60  # to reach another process


class Way(abc.ABC):
  """Where a run computes, and what follows from that.

  Attributes:
    hosts: the processes of the run.
    kind: of JAX's devices, or None.
    tpu: as in --tpu, or None.
    can_export: whether TensorFlow can use the programs elsewhere.
    shows_progress: whether training is `train_with_progress` by default.
    is_compiled: whether XLA compiles the steps, so that the layers are those
      for a TPU's mesh (`countable` of `host.model.build`).
    default_mesh: of a run that names none, or '' if it must name one.
  """

  kind: str | None = None
  tpu: str | None = None
  can_export = True
  shows_progress = True
  is_compiled = False
  default_mesh = ''

  def __init__(self) -> None:
    self.hosts = hosts.Hosts()

  @contextlib.contextmanager
  def joined(self, model_dir: str) -> Iterator[str]:
    """Joins the hosts; yields the folder in which this one may write."""
    yield model_dir

  def entered(self) -> AbstractContextManager[None]:
    """Makes T5's runs compute in this way."""
    return contextlib.nullcontext()

  def check_mode(self, mode: str) -> None:
    """Refuses an export that is not possible, by gin or by T5's Model API."""
    if mode.startswith('export') and not self.can_export:
      raise UserError(
        f'mode {mode!r} writes a model for TensorFlow: run it without --device.'
      )

  @abc.abstractmethod
  def check(self, run: RunConfig) -> None:
    """Refuses a run that cannot compute in this way."""

  @abc.abstractmethod
  def takes_types_of_gin(self) -> bool:
    """Whether gin decides in which type the run computes.

    T5's main decides it for all runs without --tpu: in float32, which is not
    what GPUs and TPUs are for.
    """

  @abc.abstractmethod
  def other_reader(self) -> str:
    """Returns which other process reads the data; '' if this one does."""

  @property
  @abc.abstractmethod
  def memory_is_here(self) -> bool:
    """Whether the model's tensors are in the memory of this machine."""

  def writing(self) -> Writing:
    """Returns what writes the checkpoints of a training."""
    return Writing()

  @contextlib.contextmanager
  def repeatable(self, step: Callable[[], Any]) -> Iterator[None]:
    """Makes random numbers depend only on the seed and the step.

    Args:
      step: returns the step's number, a tensor.
    """
    with patches.random_by_step(step), patches.step_counted_last():
      yield


class InSession(Way):
  """A session of TensorFlow, of this process or of a master in TF_CONFIG."""

  def check(self, run: RunConfig) -> None:
    check_devices(run.mesh_devices or ())

  def takes_types_of_gin(self) -> bool:
    return False

  def other_reader(self) -> str:
    config = os.environ.get('TF_CONFIG') or '{}'
    try:
      master = json.loads(config).get('session_master')
    except (ValueError, AttributeError) as error:
      raise UserError(
        f'TF_CONFIG is {config!r}: {error}; expected JSON such as '
        '{"session_master": "grpc://HOST:PORT"}'
      ) from error
    if master and not _is_this_process(master):
      return f'the session master {master} (TF_CONFIG)'
    return ''

  @property
  def memory_is_here(self) -> bool:
    return not self.other_reader()


class OnTpu(Way):
  """A TPU that TensorFlow itself reaches (--tpu)."""

  tpu: str
  shows_progress = False

  def __init__(self, tpu: str) -> None:
    super().__init__()
    self.tpu = tpu

  def check(self, run: RunConfig) -> None:
    tpu_checks.check_address(self.tpu)
    tpu_checks.check_run(run)

  def takes_types_of_gin(self) -> bool:
    return True

  def other_reader(self) -> str:
    return '' if self.tpu == 'local' else f'--tpu={self.tpu}'

  @property
  def memory_is_here(self) -> bool:
    return False


class OnDevices(Way):
  """All devices of a kind that JAX finds, on one host or on several."""

  kind: str
  can_export = False
  is_compiled = True

  def __init__(self, kind: str, *of_hosts: Any) -> None:
    """Takes what names the devices, and does not look for them yet.

    Args:
      kind: 'cpu', 'gpu' or 'tpu'.
      *of_hosts: the flags that `hosts.address` takes, if there are any.
    """
    super().__init__()
    self.kind = kind
    self._of_hosts = of_hosts or (None, None, None)
    self._devices: list[Any] = []

  @contextlib.contextmanager
  def joined(self, model_dir: str) -> Iterator[str]:
    asked = f'a run on each {self.kind.upper()} that JAX finds'
    if os.environ.get('TF_CONFIG'):
      raise UserError(
        f'{asked} does not use servers of TensorFlow: unset TF_CONFIG in the '
        'environment. For several hosts, give --coordinator_address.'
      )
    devices.check_tensorflow(asked)
    xla_flags.check(xla_flags.OF_XLA)
    address = hosts.address(*self._of_hosts)
    with (
      hosts.joined(self.kind, address) as self.hosts,
      self.hosts.folder(model_dir) as folder,
    ):
      yield folder

  @contextlib.contextmanager
  def entered(self) -> Iterator[None]:
    # It needs inner parts of JAX and TensorFlow, which no other run imports.
    from synth_mtf.pjrt import estimator

    # A program reads variables by handles, which ref variables lack.
    tf.enable_resource_variables()
    self._devices = devices.find(self.kind)
    self.hosts.check_devices(self._devices)
    self.default_mesh = f'batch:{len(self._devices)}'
    with estimator.used(Devices(self._devices, self.hosts)):
      yield

  def check(self, run: RunConfig) -> None:
    self.check_mode(run.mode)
    devices.check_run(self._devices, self.hosts, run.mesh, run.mode)

  def takes_types_of_gin(self) -> bool:
    if self.kind != 'cpu':
      return True
    # On CPUs only the command line may decide, as T5's gin files for decoding
    # bind a type that a session ignores.
    names = gin_files.bindings('\n'.join(flags.FLAGS.gin_param or []))
    return any(n.endswith('get_variable_dtype.activation_dtype') for n in names)

  def other_reader(self) -> str:
    return ''

  @property
  def memory_is_here(self) -> bool:
    return True

  def writing(self) -> Writing:
    return WritingBehind(self.hosts)

  @contextlib.contextmanager
  def repeatable(self, step: Callable[[], Any]) -> Iterator[None]:
    yield  # its programs always are


def of_flags(values: Any) -> Way:
  """Returns the way that the flags of `synth-mtf transformer` name.

  Args:
    values: the values of all flags.
  """
  of_hosts = values.coordinator_address, values.num_processes, values.process_id
  if values.device:
    _check_not_on_tpu(f'--device={values.device}', values.tpu)
    return OnDevices(values.device, *of_hosts)
  if any(value is not None for value in of_hosts):
    raise UserError(
      '--coordinator_address, --num_processes and --process_id belong to '
      '--device: give it as well (cpu, gpu or tpu).'
    )
  return OnTpu(values.tpu) if values.tpu else InSession()


@gin.configurable(module='synth_mtf')
def run_on_devices(kind: Kind) -> Way:
  """Returns the way to compute on devices that JAX finds.

  Bound in gin, `kind` does for `t5_mesh_transformer` what `--device` does for
  `synth-mtf transformer`; docs/scaling.md describes both. It belongs to a run,
  not to the model, so that operative_config.gin does not keep it.

  Args:
    kind: 'cpu', 'gpu' or 'tpu', all devices of which are used. The environment
      may name several hosts.

  Raises:
    UserError: gin names another kind.
  """
  if kind not in get_args(Kind):
    raise UserError(
      f'{_GIN_NAME} = {kind!r}: expected one of '
      f'{", ".join(map(repr, get_args(Kind)))}'
    )
  return OnDevices(kind)


def chosen(given: Way, tpu: str | None) -> Way:
  """Returns the way that gin names, or else the one that is given.

  T5's own command knows no --device; `gin/runs/devices.gin` stands in for it.

  Args:
    given: by the flags of `synth-mtf transformer`, or `InSession`.
    tpu: as in --tpu.
  """
  bound = gin.get_bindings('synth_mtf.run_on_devices', resolve_references=False)
  kind = bound.get('kind')
  if kind in (None, given.kind):
    return OnTpu(tpu) if tpu and not given.tpu else given
  if given.kind:
    raise UserError(
      f'--device={given.kind}, but {_GIN_NAME} = {kind!r} in gin: leave one of '
      'them out.'
    )
  _check_not_on_tpu(f'{_GIN_NAME} = {kind!r}', tpu)
  return run_on_devices(kind=kind)


def _check_not_on_tpu(setting: str, tpu: str | None) -> None:
  """Refuses two ways to compute.

  Args:
    setting: what chooses JAX's devices.
    tpu: as in --tpu.
  """
  if tpu:
    raise UserError(
      f'{setting} and --tpu={tpu} exclude each other. Both reach TPUs: '
      "--device through JAX, --tpu through TensorFlow's own runtime."
    )


def check_devices(names: Sequence[str]) -> None:
  """Checks that the devices of a mesh exist; '' lets TensorFlow choose.

  TensorFlow would run the work of a missing device on another one.
  """
  counts = {
    kind: len(tf.config.list_physical_devices(kind)) for kind in ('CPU', 'GPU')
  }
  for name in names:
    if not name:
      continue
    if name.startswith('/job:'):
      raise UserError(
        f'utils.run.mesh_devices: {name!r} is a device of another process. For '
        'the devices of several machines, leave utils.run.mesh_devices out and '
        'give --device with --coordinator_address (docs/scaling.md).'
      )
    match = re.fullmatch(r'(?:/|/device:)?(cpu|gpu)(?::(\d+))?', name, re.I)
    if not match or int(match[2] or 0) >= counts[match[1].upper()]:
      raise UserError(
        f'utils.run.mesh_devices: there is no {name!r}. This machine has '
        f'{counts["CPU"]} CPU and {counts["GPU"]} GPUs, numbered from 0; '
        '`synth-mtf doctor` says why a GPU may be missing.'
      )


def _is_this_process(master: str) -> bool:
  """Whether a session can call a Python function of this process."""
  timeout = tf.ConfigProto(operation_timeout_in_ms=1000 * _SECONDS)
  with tf.Graph().as_default():
    called = tf.numpy_function(lambda: True, [], tf.bool)
    try:
      with tf.Session(master, config=timeout) as session:
        return bool(session.run(called))
    except (
      tf.errors.UnavailableError,
      tf.errors.DeadlineExceededError,
    ) as error:
      raise UserError(
        f'the session master {master} of TF_CONFIG does not answer: '
        f'{explanations.cause(error)}. Start it, or unset TF_CONFIG.'
      ) from error
    except tf.errors.OpError:  # it knows no such function
      return False
