"""What a step costs the process that starts it, next to JAX's own call.

    python -m benchmarks.accelerator.dispatch --devices 8 --variables 645

A program adds 1 to each of its variables, which are small, so that little is
computed. It is started as a run with --device starts its steps
(`pjrt.program.Executable`), and the same function by `jax.jit`, in turns.
Printed are medians of the processor time of the calling thread. The devices are
parts of a CPU. 645 variables are those of R+V with `sizes/base.gin`.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any


def compared(count: int, variables: int, calls: int) -> tuple[float, float]:
  """Returns the seconds of a call by us and by `jax.jit`."""
  os.environ['XLA_FLAGS'] = f'--xla_force_host_platform_device_count={count}'
  import jax  # after the flag is set
  import numpy as np
  import tensorflow.compat.v1 as tf

  from synth_mtf.pjrt import program
  from synth_mtf.pjrt.placement import Devices

  devices = Devices(jax.devices('cpu')[:count])
  with tf.Graph().as_default() as graph:
    made = [
      tf.get_variable(f'v{i}', [2, 4], use_resource=True)
      for i in range(variables)
    ]
    updates = [v.assign_add(tf.ones([2, 4])).op for v in made]
    loss = tf.zeros([])
    lowered = program.lower(graph, [loss], updates)
  executable = program.Executable(lowered, devices)
  value = np.zeros([2, 4], np.float32)
  arrays = {name: devices.scatter([value] * count) for name in lowered.assigned}
  others = [devices.scatter([value] * count) for _ in made]
  jitted = jax.jit(
    lambda *values: [x + 1 for x in values],
    donate_argnums=tuple(range(variables)),
  )

  def ours() -> Any:
    executable({}, arrays)
    return arrays

  def by_jit() -> Any:
    others[:] = jitted(*others)
    return others

  steps: list[Callable[[], Any]] = [ours, by_jit]
  seconds: list[list[float]] = [[], []]
  for step in steps * 2:  # compiles
    jax.block_until_ready(step())
  for _ in range(calls):
    for step, times in zip(steps, seconds, strict=True):
      start = time.thread_time()
      new = step()
      times.append(time.thread_time() - start)
      jax.block_until_ready(new)
  mine, theirs = map(statistics.median, seconds)
  return mine, theirs


def main() -> None:
  """Prints the comparison."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--devices', type=int, default=8)
  parser.add_argument('--variables', type=int, default=645)
  parser.add_argument('--calls', type=int, default=30)
  args = parser.parse_args()
  ours, jit = compared(args.devices, args.variables, args.calls)
  print(
    f'{args.variables} variables on {args.devices} devices: {1e3 * ours:.2f} '
    f'ms a step; jax.jit {1e3 * jit:.2f} ms; ratio {ours / jit:.2f}'
  )


if __name__ == '__main__':
  main()
