"""Setuptools' build backend, which first checks the version of Python.

pip reads `python_requires` only after building the metadata, which fails on a
newer Python with a traceback from the pinned setuptools.
"""

import sys
from typing import Any

if not (3, 10) <= sys.version_info[:2] <= (3, 13):
  sys.exit(
    'synth_mtf needs Python 3.10 to 3.13 (TensorFlow 2.12 and 2.20 have no '
    f'release for others), but this is Python {sys.version.split()[0]}. '
    'Create an environment with one of those: python3.13 -m venv .venv'
  )


def __getattr__(name: str) -> Any:
  from setuptools import build_meta

  return getattr(build_meta, name)
