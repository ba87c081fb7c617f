"""The flags of XLA in the environment variable XLA_FLAGS.

TensorFlow and JAX each have an XLA, whose flags differ between releases. Either
one aborts the process at a flag that it does not know, which no program can
catch. Separate processes find out.
"""

import importlib.metadata
import os
import re
import subprocess
import sys

from synth_mtf.errors import UserError
from synth_mtf.storage import remembered

_NAME = 'XLA_FLAGS'
_DISABLED = '--xla_disable_hlo_passes'
_SECONDS = 300  # for TensorFlow to be imported
# What makes the XLA of a package read its flags.
_READERS = {
  'jax': "import jax; jax.devices('cpu')",
  'tensorflow': """
import tensorflow as tf
double = tf.function(lambda x: x + x, jit_compile=True)
double.experimental_get_compiler_ir(tf.constant(1.0))(stage='hlo')
""",
}
_TITLES = {'jax': 'JAX', 'tensorflow': 'TensorFlow'}
# What XLA says about flags, which follows a time stamp.
_REASON = re.compile(
  r'(?:parse_flags_from_env|command_line_flags)\.cc:\d+\] (.*)'
)


def check() -> None:
  """Raises a UserError if XLA would abort a run because of XLA_FLAGS."""
  message = fault()
  if message:
    raise UserError(message)


def fault() -> str | None:
  """Returns what is wrong with XLA_FLAGS and what to do; None if it is right.

  It is also None if that cannot be found out, such as without JAX.
  """
  flags = os.environ.get(_NAME, '').strip()
  if not flags:
    return None
  question = [_NAME, flags, *map(_version, _READERS)]
  if remembered.get(question):
    return None
  for package, program in _READERS.items():
    reason = _refusal(program)
    if reason:
      title = f'{_TITLES[package]} {_version(package)}'
      return (
        f'{title} does not take the environment variable {_NAME}: {reason}\n'
        f'It is {flags!r}. The flags of XLA differ between releases, and a run '
        'with --device needs flags that both JAX and TensorFlow know: leave '
        'the others out.'
      )
  if flags.startswith('--'):  # and not a file of flags, which may change
    remembered.put(question, True)
  return None


def disable_pass(name: str) -> None:
  """Makes XLA leave out a pass, in addition to what the user's flags say.

  Call it before XLA reads its flags. A file of flags stays as it is.

  Args:
    name: of a pass of XLA's compiler.
  """
  flags = os.environ.get(_NAME, '').strip()
  if flags and not flags.startswith('--'):
    return
  merged, count = re.subn(rf'{_DISABLED}=[^\s\'"]+', rf'\g<0>,{name}', flags)
  if not count:
    merged = f'{flags} {_DISABLED}={name}'.strip()
  os.environ[_NAME] = merged


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
