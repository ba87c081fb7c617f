"""Trains by JAX's devices and by TensorFlow's session, from the same weights.

    python -m tests.pjrt.losses [--nudges 4] [VARIANT MESH PLATFORM ...]

prints a line of JSON for each: the losses of steps of Adafactor on 8 CPU
devices, or on one for the mesh `batch:1`, and those of a session. A variant
`SelfAttention` is T5 itself. The program of each platform, `cpu` or `gpu`, runs
on the CPU. Rounding may grow without a fault: nudges are further sessions, in
which each initial weight is a neighbouring float32.
"""

import argparse
import functools
import json
import os
from collections.abc import Mapping
from typing import Any

if __name__ == '__main__':
  os.environ['XLA_FLAGS'] = '--xla_force_host_platform_device_count=8'
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')

from synth_mtf.host import patches

patches.prepare_host()

import mesh_tensorflow as mtf
import numpy as np
import numpy.typing as npt
import tensorflow.compat.v1 as tf
from absl import flags

from synth_mtf.pjrt import devices, estimator
from synth_mtf.pjrt.placement import Devices
from tests.pjrt.setting import Setting

Values = Mapping[str, npt.NDArray[Any]]


def setting(variant: str, mesh: str) -> Setting:
  """Returns steps without dropout, which differs between meshes."""
  return Setting(
    None if variant == 'SelfAttention' else variant,
    mesh=mesh,
    bindings=[
      'dropout_rate = 0.0',
      "utils.get_variable_dtype.activation_dtype = 'float32'",
    ],
  )


def train(
  configured: Setting,
  steps: int,
  programs: Any = None,
  start: Values | None = None,
  seed: int = 2,
) -> tuple[list[float], Values]:
  """Returns the loss of each step and the initial values of the variables.

  Args:
    configured: the model, its mesh and the batch of all steps.
    steps: how many.
    programs: compiles for devices; None trains in the session.
    start: the initial values, if they are given.
    seed: of the initial values otherwise.
  """
  configured.parse()
  with tf.Graph().as_default(), tf.variable_scope('', use_resource=True):
    tf.set_random_seed(seed)
    tf.train.create_global_step()
    features = {
      name: tf.constant(value) for name, value in configured.features().items()
    }
    if programs:
      build = estimator.model_fn(
        lambda **_: configured.model_fn(), programs, learning_rate=None
      )
      spec = build(features, None, 'train')
      hooks = spec.training_chief_hooks
    else:
      with patches.step_counted_last():
        spec = configured.model_fn()(features, None, 'train', {})
      hooks = spec.training_hooks
    (restore,) = [h for h in hooks if isinstance(h, mtf.MtfRestoreHook)]
    restore.begin()
    options = tf.GraphOptions(place_pruned_graph=True)
    with tf.Session(config=tf.ConfigProto(graph_options=options)) as session:
      session.run(tf.global_variables_initializer())
      variables = {v.name: v for v in tf.global_variables()}
      for name, value in (start or {}).items():
        variables[name].load(value, session)
      begun = session.run(variables)
      restore.after_create_session(session, None)
      losses = []
      for step in range(1, steps + 1):
        if programs:
          programs.last_step = step  # others return the loss of the step before
        losses.append(float(session.run([spec.loss, spec.train_op])[0]))
  return losses, begun


def nudged(start: Values, draw: int) -> Values:
  """Moves each weight to one of the two neighbouring numbers."""
  rng = np.random.RandomState(draw)

  def move(value: npt.NDArray[Any]) -> npt.NDArray[Any]:
    to = np.where(rng.rand(*value.shape) < 0.5, -np.inf, np.inf)
    return np.nextafter(value, to.astype(value.dtype))

  return {
    name: move(value)
    if value.dtype == np.float32 and '_slot_' not in name
    else value
    for name, value in start.items()
  }


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.split('\n', 1)[0])
  parser.add_argument('words', nargs='+', metavar='VARIANT MESH PLATFORM')
  parser.add_argument('--steps', type=int, default=20)
  parser.add_argument('--nudges', type=int, default=0)
  parser.add_argument('--seed', type=int, default=2)
  arguments = parser.parse_args()
  flags.FLAGS.mark_as_parsed()
  tf.logging.set_verbosity(tf.logging.ERROR)
  found = devices.find('cpu')
  steps = arguments.steps

  @functools.cache
  def session(variant: str) -> tuple[list[float], Values]:
    return train(setting(variant, 'batch:1'), steps, seed=arguments.seed)

  words = iter(arguments.words)
  for variant, mesh, platform in zip(words, words, words, strict=True):
    cores = mtf.convert_to_shape(mesh).size
    programs = estimator.Programs(Devices(found[:cores]))
    programs.devices.platform = platform
    of_session, start = session(variant)
    of_devices, _ = train(setting(variant, mesh), steps, programs, start)
    proof = {
      'where': f'{variant} on {mesh}, {platform}',
      'devices': of_devices,
      'session': of_session,
      'nudged': [
        train(setting(variant, 'batch:1'), steps, start=nudged(start, draw))[0]
        for draw in range(arguments.nudges)
      ],
    }
    print(json.dumps(proof), flush=True)


if __name__ == '__main__':
  main()
