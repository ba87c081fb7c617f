"""Imports modules of the user, which register tasks, layers and functions."""

import importlib
import os
from collections.abc import Sequence

from synth_mtf.errors import UserError

_imported: set[str] = set()  # a fact of the process, as `sys.modules` is


def import_all(modules: Sequence[str]) -> None:
  """Imports the modules that the user names.

  Raises:
    UserError: a module is not found, or fails.
  """
  for module in modules:
    try:
      importlib.import_module(module)
    except Exception as error:  # a module may raise anything
      raise UserError(
        f'--module_import {module}: {type(error).__name__}: {error}. '
        f'{advice(module)}'
      ) from error
    _imported.add(module)


def is_trusted(module: str) -> bool:
  """Whether a module, or a package that it is in, was named by the user."""
  return any(f'{module}.'.startswith(f'{name}.') for name in _imported)


def advice(module: str) -> str:
  """Says what a module's name has to be, and how Python finds the module."""
  path = module.removesuffix('.py').replace('.', '/')
  folder, name = os.path.split(path)
  if module.endswith('.py') or '/' in module:
    return (
      'Expected the name of a module, not a file: with PYTHONPATH='
      f'{folder or "."}, give --module_import={name}.'
    )
  if os.path.isfile(f'{path}.py') or os.path.isdir(path):
    return f'To import {path} from the working folder, set PYTHONPATH=.'
  return (
    'Expected the name of a module that Python finds, such as one in a folder '
    'of PYTHONPATH.'
  )
