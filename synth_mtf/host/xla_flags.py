"""Whether TensorFlow and JAX take the flags in the environment.

Each of them has an XLA, which reads XLA_FLAGS. TensorFlow also has flags of its
own for XLA, in TF_XLA_FLAGS, which every session reads. They differ between
releases, and a flag that is not known aborts the process, which no program can
catch. Separate processes find out.
"""

import importlib.metadata
import os
import re
import subprocess
import sys

from synth_mtf.errors import UserError
from synth_mtf.storage import remembered

OF_XLA = 'XLA_FLAGS'
OF_TENSORFLOW = 'TF_XLA_FLAGS'
_SECONDS = 300  # for TensorFlow to be imported
# What makes a package read the flags of a variable.
_READERS = {
  OF_XLA: {
    'jax': "import jax; jax.devices('cpu')",
    'tensorflow': """
import tensorflow as tf
double = tf.function(lambda x: x + x, jit_compile=True)
double.experimental_get_compiler_ir(tf.constant(1.0))(stage='hlo')
""",
  },
  OF_TENSORFLOW: {
    'tensorflow': """
import tensorflow.compat.v1 as tf
with tf.Graph().as_default(), tf.Session() as session:
  session.run(tf.constant(1.0))
""",
  },
}
_ADVICE = {
  OF_XLA: (
    'The flags of XLA differ between releases, and a run with --device needs '
    'flags that both JAX and TensorFlow know: leave the others out.'
  ),
  OF_TENSORFLOW: (
    'The flags of TensorFlow differ between releases: leave out what it does '
    'not know.'
  ),
}
_TITLES = {'jax': 'JAX', 'tensorflow': 'TensorFlow'}
# What XLA says about flags, which follows a time stamp.
_REASON = re.compile(
  r'(?:parse_flags_from_env|command_line_flags)\.cc:\d+\] (.*)'
)


def check(name: str) -> None:
  """Raises a UserError if a variable's flags would abort the process.

  Args:
    name: `OF_XLA` or `OF_TENSORFLOW`.
  """
  message = fault(name)
  if message:
    raise UserError(message)


def fault(name: str) -> str | None:
  """Returns what is wrong with a variable and what to do; None if it is right.

  It is also None if that cannot be found out, such as without JAX.
  """
  flags = os.environ.get(name, '').strip()
  if not flags:
    return None
  readers = _READERS[name]
  question = [name, flags, *map(_version, readers)]
  if remembered.get(question):
    return None
  for package, program in readers.items():
    reason = _refusal(program)
    if reason:
      title = f'{_TITLES[package]} {_version(package)}'
      return (
        f'{title} does not take the environment variable {name}: {reason}\n'
        f'It is {flags!r}. {_ADVICE[name]}'
      )
  if flags.startswith('--'):  # and not a file of flags, which may change
    remembered.put(question, True)
  return None


def _refusal(program: str) -> str | None:
  """Returns why XLA aborts a Python program, or None if it does not."""
  quiet = {'JAX_PLATFORMS': 'cpu', 'TPU_LOAD_LIBRARY': '0'}
  try:
    done = subprocess.run(
      [sys.executable, '-c', program],
      capture_output=True,
      text=True,
      errors='replace',
      env={**os.environ, **quiet},
      timeout=_SECONDS,
      check=False,
    )
  except subprocess.TimeoutExpired:
    return None
  reason = _REASON.search(done.stderr)
  return reason[1].strip() if done.returncode and reason else None


def _version(package: str) -> str:
  try:
    return importlib.metadata.version(package)
  except importlib.metadata.PackageNotFoundError:
    return ''
