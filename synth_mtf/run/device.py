"""The devices of JAX that a run computes on: those of `--device`, or of gin.

T5's own command knows no `--device`. `gin/runs/devices.gin` stands in for it.
"""

import contextlib
import os
from collections.abc import Iterator
from typing import Any, Literal, get_args

import gin
import tensorflow.compat.v1 as tf
from absl import flags

from synth_mtf.errors import UserError
from synth_mtf.host import gin_files, xla_flags
from synth_mtf.pjrt import devices, hosts
from synth_mtf.run import checks

Kind = Literal['cpu', 'gpu', 'tpu']
_GIN_NAME = 'synth_mtf.run_on_devices.kind'


@gin.configurable(module='synth_mtf')
@contextlib.contextmanager
def run_on_devices(kind: Kind) -> Iterator[None]:
  """Makes T5's runs inside this context compute on devices that JAX finds.

  Bound in gin, `kind` does for `t5_mesh_transformer` what `--device` does for
  `synth-mtf transformer`; docs/scaling.md describes both. It belongs to a run,
  not to the model, so that operative_config.gin does not keep it.

  Args:
    kind: 'cpu', 'gpu' or 'tpu', all devices of which are used.

  Raises:
    UserError: JAX finds no such devices, or gin names another kind.
  """
  if kind not in get_args(Kind):
    raise UserError(
      f'{_GIN_NAME} = {kind!r}: expected one of '
      f'{", ".join(map(repr, get_args(Kind)))}'
    )
  # It needs inner parts of JAX and TensorFlow, which no other run imports.
  from synth_mtf.pjrt import estimator

  # A program reads variables by handles, which ref variables lack.
  tf.enable_resource_variables()
  with estimator.used(devices.find(kind)):
    yield


@contextlib.contextmanager
def joined(kind: str, model_dir: str, *of_hosts: Any) -> Iterator[str]:
  """Joins the hosts of a run; yields the folder in which this one may write.

  Args:
    kind: of the devices.
    model_dir: as in --model_dir.
    *of_hosts: the flags that `hosts.address` takes.
  """
  if os.environ.get('TF_CONFIG'):
    raise UserError(
      f'a run on each {kind.upper()} that JAX finds has no cluster: run it '
      'without `synth-mtf cluster`, and without TF_CONFIG in the environment.'
    )
  devices.check_tensorflow(f'a run on each {kind.upper()} that JAX finds')
  xla_flags.check()
  with (
    hosts.joined(kind, hosts.address(*of_hosts)),
    hosts.folder(model_dir) as folder,
  ):
    yield folder


def check_not_on_tpu(setting: str, tpu: str | None) -> None:
  """Refuses two ways to compute.

  Args:
    setting: which chooses JAX's devices.
    tpu: as in --tpu.
  """
  if tpu:
    raise UserError(
      f'{setting} and --tpu={tpu} exclude each other. Both reach TPUs: '
      "--device through JAX, --tpu through TensorFlow's own runtime."
    )


@contextlib.contextmanager
def checked_run(model_dir: str, tpu: str | None) -> Iterator[str]:
  """Checks a run of T5's main, on the devices that gin names, if any.

  Yields:
    The folder in which the run may write.
  """
  kind = _of_gin()
  if devices.chosen() or kind is None:
    _check_same(kind)
    checks.check_run(model_dir, tpu)
    yield model_dir
    return
  check_not_on_tpu(f'{_GIN_NAME} = {kind!r}', tpu)
  of_hosts = None, None, None  # the environment may name them
  with joined(kind, model_dir, *of_hosts) as folder, run_on_devices(kind=kind):
    checks.check_run(folder, tpu)
    yield folder


def takes_types_of_gin() -> bool:
  """Whether gin decides in which type a run computes.

  T5's main decides it for all runs without --tpu: in float32, which is not what
  GPUs and TPUs are for. On CPUs only the command line may decide otherwise, as
  T5's gin files for decoding bind a type that a session ignores.
  """
  chosen = devices.chosen()
  kind = chosen[0].platform if chosen else _of_gin()
  if kind != 'cpu':
    return kind is not None
  names = gin_files.bindings('\n'.join(flags.FLAGS.gin_param or []))
  return any(n.endswith('get_variable_dtype.activation_dtype') for n in names)


def _of_gin() -> Any:
  """Returns the kind of devices that gin names, or None."""
  bound = gin.get_bindings('synth_mtf.run_on_devices', resolve_references=False)
  return bound.get('kind')


def _check_same(kind: str | None) -> None:
  """Refuses a kind in gin beside another one in --device."""
  chosen = devices.chosen()
  if kind is not None and chosen and chosen[0].platform != kind:
    raise UserError(
      f'--device={chosen[0].platform}, but {_GIN_NAME} = {kind!r} in gin: '
      'leave one of them out.'
    )
