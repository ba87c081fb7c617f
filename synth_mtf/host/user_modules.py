"""Imports modules of the user, which register tasks, layers and functions."""

import importlib.util
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
    # A module may raise anything, and end the process.
    except (Exception, SystemExit) as error:
      raise UserError(
        f'--module_import {module}: {type(error).__name__}: {error}. '
        f'{_advice_on(error, module)}'
      ) from error
    _imported.add(module)


def is_trusted(module: str) -> bool:
  """Whether a module, or a package that it is in, was named by the user."""
  return any(f'{module}.'.startswith(f'{name}.') for name in _imported)


def _advice_on(error: BaseException, module: str) -> str:
  if isinstance(error, SystemExit):
    return (
      'The module ends the program: move what it does as a program below '
      "`if __name__ == '__main__':`."
    )
  if _is_found(module):
    return 'Python finds the module, which fails: fix it, or what it imports.'
  return advice(module)


def _is_found(module: str) -> bool:
  """Whether Python finds a module, which need not have been imported."""
  try:
    return importlib.util.find_spec(module) is not None
  except (ImportError, TypeError, ValueError):  # what it raises of a wrong name
    return False


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
