"""Takes steps of lowered programs in JAX and in TensorFlow's session.

    python -m tests.accelerator.steps FOLDER NAME [NAME ...]

lowers each name, tiny, and prints a line of JSON: the losses of three steps of
Adafactor, in float32 without dropout, by both. The session has T5's own loss,
and the lowered step `lower.float32_loss`.
"""

import json
import pathlib
import sys

import jax
import numpy as np
import tensorflow.compat.v1 as tf

from benchmarks.accelerator import lower, programs
from tests.tpu import replicas

STEPS = replicas.STEPS


def main(folder: str, *names: str) -> None:
  """Prints a line for each name."""
  tf.logging.set_verbosity(tf.logging.ERROR)
  device = jax.devices()[0]
  for name in names:
    size = lower.SIZES['tiny']
    setting = lower.setting(name, size, 1, 0.0, 'float32', loss='@float32_loss')
    lower.write(pathlib.Path(folder), name, setting, 1)
    program = programs.Program.read(pathlib.Path(folder), name)
    step, state = program.compile(device), program.initial(device)
    # Before the steps: they reuse this memory.
    values = {
      f'{variable["name"]}:0': np.array(value)
      for variable, value in zip(
        program.description['state'], state, strict=True
      )
    }
    features = program.features(setting.features(), device)
    losses = []
    for _ in range(STEPS):
      loss, state = step(features, state)
      losses.append(float(loss))
    of_t5 = lower.setting(name, size, 1, 0.0, 'float32')
    expected = replicas.on_one_device(of_t5, values)
    print(json.dumps({'jax': losses, 'session': expected}), flush=True)


if __name__ == '__main__':
  main(*sys.argv[1:])
