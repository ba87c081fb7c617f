"""Setuptools' build backend, which first checks the version of Python.

pip reads `python_requires` only after building the metadata, which fails on a
newer Python with a traceback from the pinned setuptools.
"""

import sys
from typing import Any

_OLDEST, _NEWEST = (3, 9), (3, 11)

if not _OLDEST <= sys.version_info[:2] <= _NEWEST:
  sys.exit(
    'synth_mtf needs Python 3.9, 3.10 or 3.11 (TensorFlow 2.12 and 2.15 have '
    f'no release for others), but this is Python {sys.version.split()[0]}. '
    'Create an environment with one of those: python3.11 -m venv .venv'
  )


def __getattr__(name: str) -> Any:
  from setuptools import build_meta

  return getattr(build_meta, name)
