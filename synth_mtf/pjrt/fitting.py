"""Whether the training step of a model fits the memory of a device.

The compiler counts the bytes: JAX's for devices of this machine, and libtpu's,
which needs no TPU, for those of a slice.
"""

import gc
import json
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import utils

from synth_mtf.errors import UserError
from synth_mtf.host import patches
from synth_mtf.host.run_config import RunConfig
from synth_mtf.pjrt import devices, mesh, tpu_compiler
from synth_mtf.pjrt.placement import Devices, Variables
from synth_mtf.pjrt.program import (
  Lowered,
  Memory,
  compile_hlo,
  lower,
  memory_of,
)

# Where libtpu is, beside JAX of its own (`make tpu-compile` makes it, too).
COMPILER = os.path.join('.venv-tpu-compiler', 'bin', 'python')
INSTALL = (
  'python3 -m venv .venv-tpu-compiler && .venv-tpu-compiler/bin/pip install '
  'jax==0.10.2 jaxlib==0.10.2 libtpu==0.0.52'
)
# Of XLA's message 'the total memory required for HLO temporaries (23.84G)
# exceeds available HBM (15.75G)'.
_USED = re.compile(
  r'\(([\d.]+)([KMGT])\) exceeds available HBM \(([\d.]+)([KMGT])\)'
)
_UNITS = {'K': 2**10, 'M': 2**20, 'G': 2**30, 'T': 2**40}


class Fit(NamedTuple):
  """Bytes of one device.

  Attributes:
    memory: what the program takes; None if the compiler only says that it does
      not fit.
    needed: all of it.
    there: what the device has; None if it does not tell.
  """

  memory: Memory | None
  needed: float
  there: float | None

  @property
  def fits(self) -> bool:
    return self.there is None or self.needed <= self.there


def lower_step(
  batch: int,
  lengths: Mapping[str, int],
  vocab_size: int = 32128,
  platform: str = 'tpu',
) -> Lowered:
  """Returns the training step of the run that gin describes, for one core.

  Args:
    batch: sequences on all cores together.
    lengths: lengths of `inputs` and `targets`.
    vocab_size: the number of embeddings.
    platform: the kind of devices, as JAX names it.
  """
  run = RunConfig()
  model = utils.build_model(
    run.model_type, vocab_size, vocab_size, run.layout, run.mesh
  )
  build = utils.tpu_estimator_model_fn(
    run.model_type,
    model,
    None,
    tempfile.gettempdir(),
    use_tpu='a mesh of cores',
    mesh_shape=run.mesh,
    layout_rules=run.layout,
    batch_size=batch,
    sequence_length=dict(lengths),
    autostack=run.autostack,
    keep_checkpoint_max=1,
    save_checkpoints_steps=1,
    learning_rate_schedule=0.01,
    optimizer=run.optimizer,
    variable_filter=run.variable_filter,
  )
  with (
    tf.Graph().as_default() as graph,
    tf.variable_scope('', use_resource=True),
  ):
    tf.train.create_global_step()
    features = {
      name: tf.placeholder(tf.int32, [batch, length], name=f'feature_{name}')
      for name, length in lengths.items()
      if run.model_type != 'lm' or name == 'targets'
    }
    inputs = mesh.Inputs.placeholders()
    # No device will hold them.
    variables = Variables(Devices(devices.find('cpu')))
    with (
      mesh.used(inputs, variables, run.mesh.size, platform) as params,
      patches.step_counted_last(),
    ):
      spec = build(features, None, 'train', params)
    return lower(graph, [spec.loss], [spec.train_op])


def on_devices(lowered: Lowered, found: Sequence[jax.Device]) -> Fit:
  """Compiles a step for devices of this machine."""
  memory = memory_of(compile_hlo(lowered.hlo, found))
  stats = found[0].memory_stats() or {}
  return Fit(memory, memory.needed, stats.get('bytes_limit'))


def on_slice(lowered: Lowered, name: str, python: str = COMPILER) -> Fit:
  """Compiles a step for a TPU slice that is not there.

  Args:
    lowered: the step.
    name: of the slice, a key of `tpu_compiler.SLICES`.
    python: of an environment with libtpu.
  """
  (found,) = figures([lowered.hlo], name, python)
  if 'error' not in found:
    memory = Memory(found['kept'], found['temporary'])
    there = tpu_compiler.SLICES[name].gigabytes * 2**30
    return Fit(memory, memory.needed, there)
  used = _USED.search(found['error'])
  if not used:
    raise UserError(f'the step does not compile for {name}: {found["error"]}')
  needed, unit, limit, unit_of_limit = used.groups()
  return Fit(
    None, float(needed) * _UNITS[unit], float(limit) * _UNITS[unit_of_limit]
  )


def figures(
  programs: Sequence[bytes], name: str, python: str = COMPILER
) -> list[dict[str, Any]]:
  """Returns what `tpu_compiler.figures` finds about serialized HloModules.

  Args:
    programs: the modules.
    name: of the slice, a key of `tpu_compiler.SLICES`.
    python: of an environment with libtpu.

  Raises:
    UserError: the environment is not there, lacks what is needed, or runs
      out of memory.
  """
  check_compiler(python)
  with tempfile.TemporaryDirectory() as folder:
    paths = []
    for number, hlo in enumerate(programs):
      paths.append(os.path.join(folder, f'{number}.hlo'))
      with open(paths[-1], 'wb') as file:
        file.write(hlo)
    gc.collect()  # a graph of T5 (Base) has 2 GB, and the compiler needs 11
    done = subprocess.run(
      [python, '-I', tpu_compiler.__file__, name, *paths],
      capture_output=True,
      text=True,
    )
  if done.returncode == -signal.SIGKILL:
    raise UserError(
      f"XLA's compiler for TPUs was killed ({python}), as the system does when "
      'memory runs out. T5 (Base) takes 13 GB: compile it on a machine that '
      "has them, or fewer blocks (--gin_param='num_layers = 3')."
    )
  if done.returncode:
    reason = (done.stderr.strip().splitlines() or ['no message'])[-1]
    raise UserError(
      f"XLA's compiler for TPUs failed in {python}: {reason}\n"
      f'It has run with {INSTALL.partition("install ")[2]}, on Python 3.11.'
    )
  lines = [line for line in done.stdout.splitlines() if line.startswith('{')]
  return [json.loads(line) for line in lines]


def check_compiler(python: str = COMPILER) -> None:
  """Refuses a compiler that is not installed."""
  if not os.path.exists(python):
    raise UserError(
      f"XLA's compiler for TPUs is not in {python}. It is in the package "
      'libtpu, which needs an environment of its own and Python 3.11 or newer:'
      f'\n{INSTALL}'
    )
