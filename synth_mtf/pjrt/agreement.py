"""What the hosts of a run find out about each other in each step.

Each core takes the largest of what all hosts know. That is part of the step's
own program: programs that run at the same time could exchange their numbers in
another order on another host.
"""

import zlib
from collections.abc import Mapping

import numpy as np
import tensorflow.compat.v1 as tf

from synth_mtf.errors import UserError
from synth_mtf.pjrt import collectives
from synth_mtf.pjrt.placement import Array, Devices

_NUMBERS = 4  # the step, a checksum of the batch, and two wishes


class Agreement:
  """The numbers that a program takes from each host, and the largest of all.

  Attributes:
    known: the program's input: numbers of this host, and their negatives.
    largest: the program's result.
  """

  def __init__(self, devices: Devices) -> None:
    self._wishes = devices.hosts.stop, devices.hosts.save
    self.known = tf.placeholder(tf.int32, [2 * _NUMBERS], name='known')
    self.largest = collectives.cross_replica_max(
      self.known, [range(len(devices))]
    )

  def here(self, step: int, batch: Mapping[str, Array]) -> Array:
    """Returns what this host knows before a step."""
    checksum = 0
    for name in sorted(batch):
      data = np.ascontiguousarray(batch[name])
      checksum = zlib.crc32(data.tobytes(), checksum)
    wishes = [wish.send() for wish in self._wishes]
    known = np.array([step, checksum % 2**31, *wishes], np.int32)
    return np.concatenate([known, -known])

  def require(self, largest: Array) -> None:
    """Grants wishes; raises a UserError if the hosts do different things."""
    (step, checksum, *wishes), negative = np.split(largest, 2)
    smallest = -negative
    if step != smallest[0]:
      raise UserError(
        f'the hosts are at different steps, {smallest[0]} to {step}: '
        '--model_dir must be the same folder on every host, such as a bucket '
        'or a network drive.'
      )
    if checksum != smallest[1]:
      raise UserError(
        f'the hosts read different batches for step {step + 1}: every host '
        'must read the same files with the same vocabulary, in an order that '
        'mesh_train_dataset_fn.seed determines.'
      )
    for wish, is_asked in zip(self._wishes, wishes, strict=True):
      if is_asked:
        wish.grant()
