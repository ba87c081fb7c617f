"""Setuptools' build backend, which first checks the version of Python.

pip reads `python_requires` only after building the metadata, which fails on a
newer Python with a traceback from the pinned setuptools. A file of constraints
for another Python ends in a list of TensorFlow's releases.
"""

import os
import subprocess
import sys
from typing import Any

_NEWER = 'constraints-tf2.21.txt'
_FOUND = f'but this is Python {sys.version.split()[0]}.'

if not (3, 10) <= sys.version_info[:2] <= (3, 13):
  sys.exit(
    'synth_mtf needs Python 3.10 to 3.13 (TensorFlow 2.12 and 2.21 have no '
    f'release for others), {_FOUND} '
    'Create an environment with one of those: python3.13 -m venv .venv'
  )


def _installer() -> str:
  """Returns pip's command line, since pip does not pass its constraints on."""
  try:
    with open(f'/proc/{os.getppid()}/cmdline') as line:
      return line.read()
  except OSError:  # not Linux
    words = ['ps', '-o', 'args=', '-p', str(os.getppid())]
    return subprocess.run(words, capture_output=True, text=True).stdout


if sys.version_info < (3, 11) and _NEWER in _installer():
  sys.exit(
    f'{_NEWER} is for Python 3.11 to 3.13, {_FOUND} '
    'Install with the other file: pip install -c constraints.txt .'
  )


def __getattr__(name: str) -> Any:
  from setuptools import build_meta

  return getattr(build_meta, name)
