"""Whether the devices that a mesh names are there.

TensorFlow would place what belongs on a missing device on another one, and the
run would go on, slowly.
"""

import json
import os
from collections.abc import Sequence
from typing import Optional

import tensorflow.compat.v1 as tf

from synth_mtf.errors import UserError


def check(names: Optional[Sequence[str]]) -> None:
  """Checks `utils.run.mesh_devices`.

  Args:
    names: of the devices; '' leaves the choice to TensorFlow.

  Raises:
    UserError: a name is no device's, or this machine has no such device.
  """
  faults = [fault for name in names or () for fault in _faults(name)]
  if faults and names:
    raise UserError(
      f'utils.run.mesh_devices = {list(names)!r}: {"; ".join(faults)}. This '
      f'machine has {", ".join(_present())}; `synth-mtf doctor` says why a GPU '
      'may not be seen.'
    )


def _faults(name: str) -> Sequence[str]:
  if not name:
    return []
  try:
    # The host's own short form is without a slash.
    device = tf.DeviceSpec.from_string(name if '/' in name else f'/{name}')
  except ValueError:
    return [f'{name!r} is no name of a device']
  if device.job is not None or device.task is not None:
    return [] if _is_cluster() else [f'{name!r} needs `synth-mtf cluster`']
  if device.device_type is None:
    return [f'{name!r} is no name of a device']
  wanted = f'{device.device_type.lower()}:{device.device_index or 0}'
  return [] if wanted in _present() else [f'there is no {name!r}']


def _is_cluster() -> bool:
  config = json.loads(os.environ.get('TF_CONFIG') or '{}')
  return 'session_master' in config or 'cluster' in config


def _present() -> list[str]:
  counts: dict[str, int] = {}
  found = []
  for device in tf.config.list_physical_devices():
    kind = device.device_type.lower()
    if kind in ('cpu', 'gpu'):
      found.append(f'{kind}:{counts.get(kind, 0)}')
      counts[kind] = counts.get(kind, 0) + 1
  return found
