"""Takes steps of lowered programs in JAX and in TensorFlow's session.

    python -m tests.accelerator.steps FOLDER NAME [NAME ...]

lowers each name, tiny, and prints a line of JSON: the losses of three steps of
Adafactor, in float32 without dropout, by both.
"""

import json
import pathlib
import sys

import jax
import numpy as np
import tensorflow.compat.v1 as tf

from benchmarks.accelerator import lower, programs
from tests.pjrt import losses

STEPS = 3


def main(folder: str, *names: str) -> None:
  """Prints a line for each name."""
  tf.logging.set_verbosity(tf.logging.ERROR)
  device = jax.devices()[0]
  for name in names:
    size = lower.SIZES['tiny']
    settings = lower.describe(name, size, 1, 0.0, 'float32')
    lower.write(pathlib.Path(folder), name, size, 1, settings)
    program = programs.Program.read(pathlib.Path(folder), name)
    step, state = program.compile(device), program.initial(device)
    # Before the steps: they reuse this memory.
    values = {
      f'{variable["name"]}:0': np.array(value)
      for variable, value in zip(
        program.description['state'], state, strict=True
      )
    }
    configured = losses.setting(name.replace('mtf ', 'original_'), 'batch:1')
    configured.parse()
    features = program.features(configured.features(), device)
    of_jax = []
    for _ in range(STEPS):
      loss, state = step(features, state)
      of_jax.append(float(loss))
    of_session, _ = losses.train(configured, start=values, steps=STEPS)
    print(json.dumps({'jax': of_jax, 'session': of_session}), flush=True)


if __name__ == '__main__':
  main(*sys.argv[1:])
