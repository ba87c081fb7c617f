"""The devices that JAX finds, and whether a run fits them."""

import re
from collections.abc import Sequence

import gin
import jax
import mesh_tensorflow as mtf
from absl import logging

from synth_mtf.errors import UserError
from synth_mtf.host import jax_support, tpu_runtime
from synth_mtf.pjrt.hosts import Hosts

# What JAX adds to its errors, which is advice for programs of other kinds.
_ADVICE_OF_JAX = re.compile(r' \((?:set JAX_PLATFORMS|you may need).*?\)')


def check_tensorflow(setting: str) -> None:
  """Refuses a TensorFlow that cannot translate programs for JAX.

  Args:
    setting: what asked for devices of JAX, in words.
  """
  if tpu_runtime.has_runtime():
    raise UserError(
      f'{setting}: this TensorFlow was built for TPUs (--tpu=local) and cannot '
      'translate programs for JAX. Use an environment with the usual one '
      '(package tensorflow; `make env` without TPU=1).'
    )


def find(kind: str) -> list[jax.Device]:
  """Returns all devices of a kind; call it before JAX runs anything."""
  jax.config.update('jax_enable_x64', True)  # steps are counted in int64
  errors = []
  for platform in jax_support.platforms(kind):
    try:
      jax.config.update('jax_platforms', platform)
      devices = jax.devices(platform)
    except (RuntimeError, AssertionError) as error:  # by its release
      errors.append(error)
    else:
      return devices
  raise _not_found(kind, str(errors[0])) from errors[0]


def _not_found(kind: str, reason: str) -> UserError:
  """Returns the error for devices that JAX does not find.

  Args:
    kind: of the devices.
    reason: what JAX says, which may be nothing.
  """
  reason = _ADVICE_OF_JAX.sub('', reason).rstrip(' :')
  if re.search('in use|busy|held by', reason):
    return UserError(
      f'--device={kind}: another process has the devices: {reason}\n'
      'A device serves one process: wait for the other one, or end it.'
    )
  message = f'--device={kind}: JAX {jax.__version__} finds none'
  if reason:
    message += f': {reason}'
  return UserError(f'{message}\n{jax_support.advice(kind)}')


def check_run(
  devices: Sequence[jax.Device], hosts: Hosts, mesh: mtf.Shape, mode: str
) -> None:
  """Refuses a run that does not fit the devices.

  Args:
    devices: those of all hosts.
    hosts: of the run.
    mesh: of the run.
    mode: as in `utils.run.mode`.
  """
  platform = devices[0].platform
  _say_what_has_no_effect(platform)
  if not hosts.is_alone and mode != 'train':
    raise UserError(
      f'mode {mode!r} runs on one host: give the command on one, without '
      '--coordinator_address. Checkpoints fit any mesh.'
    )
  count = len(devices)
  if mesh.size == count:
    return
  message = (
    f'the mesh {mesh.to_string} has {mesh.size} cores, but JAX finds {count} '
    f'devices ({platform}) and a run uses all of them: change '
    'utils.run.mesh_shape or utils.tpu_mesh_shape.'
  )
  if platform == 'tpu' and mesh.size == 2 * count:
    message += (
      ' On v4 and v5p, the two cores of a chip are one device: give '
      '--logical_cores_per_chip=1.'
    )
  if platform == 'cpu':
    message += (
      f' To divide the CPU into {mesh.size}, set the environment variable '
      f'XLA_FLAGS=--xla_force_host_platform_device_count={mesh.size}.'
    )
  raise UserError(message)


def _say_what_has_no_effect(platform: str) -> None:
  """Warns of settings for CPUs in a run on other devices."""
  function = 'get_vocab_embedding_cls'  # of the embedding
  bound = gin.get_bindings(function, resolve_references=False).get('cls')
  if platform != 'cpu' and 'EmbeddingByIndex' in repr(bound):
    logging.warning(
      'common/fast_cpu.gin has no effect on a %s: layers are those for TPUs.',
      platform.upper(),
    )
