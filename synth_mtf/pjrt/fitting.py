"""Whether a step of a model fits the memory of a device.

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
from collections.abc import Sequence
from typing import NamedTuple

import jax

from synth_mtf.errors import UserError
from synth_mtf.pjrt import compiler
from synth_mtf.pjrt.program import Lowered

# Where libtpu is, with a JAX that it fits, and how to install them.
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
  """What a program does and takes on one device.

  Attributes:
    cost: what it does; None if the compiler does not count it.
    memory: what it takes; None if the compiler only says that it does not fit.
    needed: the bytes of all memory that it takes.
    there: those that the device has; None if it does not tell.
  """

  cost: compiler.Cost | None
  memory: compiler.Memory | None
  needed: float
  there: float | None

  @property
  def fits(self) -> bool:
    return self.there is None or self.needed <= self.there


def on_devices(lowered: Lowered, found: Sequence[jax.Device]) -> Fit:
  """Compiles a step for devices of this machine."""
  executable = compiler.compile_hlo(lowered.hlo, found)
  cost = None
  if found[0].platform != 'cpu':  # whose compiler counts no library's products
    cost = compiler.cost_of(executable)
  memory = compiler.memory_of(executable)
  stats = found[0].memory_stats() or {}
  return Fit(cost, memory, memory.needed, stats.get('bytes_limit'))


def on_slice(lowered: Lowered, name: str, python: str = COMPILER) -> Fit:
  """Compiles a step for a TPU slice that need not exist.

  Args:
    lowered: the step.
    name: of the slice, a key of `compiler.SLICES`.
    python: of an environment with libtpu.

  Raises:
    UserError: the environment is not there, lacks what is needed, or runs
      out of memory.
  """
  check_compiler(python)
  printed = json.loads(_printed(lowered, name, python))
  if 'error' not in printed:
    memory = compiler.Memory(**printed['memory'])
    limit = compiler.SLICES[name].gigabytes * 2**30
    return Fit(compiler.Cost(**printed['cost']), memory, memory.needed, limit)
  used = _USED.search(printed['error'])
  if not used:
    raise UserError(f'the step does not compile for {name}: {printed["error"]}')
  needed, unit, limit_text, unit_of_limit = used.groups()
  return Fit(
    None,
    None,
    float(needed) * _UNITS[unit],
    float(limit_text) * _UNITS[unit_of_limit],
  )


def _printed(lowered: Lowered, name: str, python: str) -> str:
  """Returns what `compiler.main` prints about a step."""
  with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, 'step.hlo')
    with open(path, 'wb') as file:
      file.write(lowered.hlo)
    gc.collect()  # a graph of T5 (Base) has 2 GB, and the compiler needs 11
    done = subprocess.run(
      [python, '-I', compiler.__file__, name, path],
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
  lines = done.stdout.splitlines()
  return next(line for line in lines if line.startswith('{'))


def check_compiler(python: str = COMPILER) -> None:
  """Refuses a compiler that is not installed."""
  if not os.path.exists(python):
    raise UserError(
      f"XLA's compiler for TPUs is not in {python}. It is in the package "
      'libtpu, which needs a separate environment and Python 3.11 or newer:'
      f'\n{INSTALL}'
    )
