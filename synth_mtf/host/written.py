"""Checks the names in a configuration as it is written, without TensorFlow.

gin itself checks them once all modules are imported, which takes seconds. What
it knows then is an answer that the package has (`known_to_gin`); with another
host, or a module that is not known, nothing is refused here.
"""

import inspect
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypedDict

import gin

from synth_mtf.errors import UserError
from synth_mtf.host import explanations, gin_files
from synth_mtf.storage import filesystem, remembered

QUESTION = 'gin'  # of `remembered`
_MODULES = ('gin', 'mesh_tensorflow', 'synth_mtf', 't5')


class Known(TypedDict):
  """What gin knows once T5's main and our modules are imported.

  Attributes:
    modules: those of the host and ours that are imported.
    functions: the parameters of each function and class; None is any.
    ignored: names of old configurations, which T5's main leaves out.
  """

  modules: list[str]
  functions: dict[str, list[str] | None]
  ignored: list[str]


def known_to_gin(modules: Iterable[str], ignored: Iterable[str]) -> Known:
  """Returns what gin knows now; `modules` are all that are imported."""
  functions = {}
  # gin has no public list of its configurables.
  for selector, configurable in gin.config._REGISTRY.items():
    parameters = inspect.signature(configurable.wrapped).parameters
    takes_any = any(x.kind is x.VAR_KEYWORD for x in parameters.values())
    functions[selector] = None if takes_any else [*parameters]
  return {
    'modules': sorted(x for x in modules if x.partition('.')[0] in _MODULES),
    'functions': dict(sorted(functions.items())),
    'ignored': sorted(ignored),
  }


class Statements:
  """The statements of gin files and bindings, and of the files they include."""

  def __init__(self, folders: Sequence[str]) -> None:
    """Initializes it without a statement.

    Args:
      folders: in which files are searched, in this order.
    """
    self._folders = folders
    self._files: set[str] = set()
    self._statements: list[Any] = []

  def add_file(self, name: str) -> None:
    """Adds a file, unless it is in a bucket or missing: the run reports it."""
    for folder in self._folders:
      path = os.path.join(folder, name)
      if not filesystem.is_bucket(path) and os.path.isfile(path):
        if path not in self._files:
          self._files.add(path)
          data = filesystem.read(path)
          self._add(data.decode('utf-8-sig', errors='replace'), path)
        return

  def add_bindings(self, bindings: Sequence[str]) -> None:
    """Adds bindings as in --gin_param."""
    self._add('\n'.join(bindings), '')

  def _add(self, text: str, file: str) -> None:
    for statement in gin_files.statements(text, file):
      if isinstance(statement, gin.config_parser.IncludeStatement):
        self.add_file(statement.filename)
      elif file:
        location = statement.location._replace(filename=file)
        self._statements.append(statement._replace(location=location))
      else:
        self._statements.append(statement)

  @property
  def macros_read(self) -> set[str]:
    """The names of the macros that values refer to."""
    return {
      name[1:]
      for binding in self._bindings
      for name in _names(binding.value)
      if name.startswith('%')
    }

  def value(self, name: str) -> Any:
    """Returns the value of a binding, or of the macro that it is.

    Args:
      name: the end of its name, such as 'run.mode'. A binding with a scope is
        another one.

    Returns:
      None without such a binding; a reference as `Written`.
    """
    values = [
      binding.value
      for binding in self._bindings
      if f'.{gin_files.name_of(binding)}'.endswith(f'.{name}')
    ]
    value = values[-1] if values else None
    if isinstance(value, gin_files.Written) and value.startswith('%'):
      return self.value(value[1:])
    return value

  def check_names(self) -> None:
    """Refuses functions and parameters that gin does not know.

    Raises:
      UserError: the first one; the message says where it is.
    """
    known: Known | None = remembered.get(QUESTION)
    if known is None or not self._imports <= {*known['modules']}:
      return
    for binding in self._bindings:
      where = _place(binding.location)
      for name in _names(binding.value):
        if name.startswith('@'):
          selector = name[1:].partition('(')[0].rpartition('/')[2]
          if not _matching(selector, known):
            functions = known['functions']
            raise UserError(
              explanations.unknown_function(selector, functions) + where
            )
      if binding.arg_name and binding.selector not in known['ignored']:
        _check_binding(binding, known, where)

  @property
  def _bindings(self) -> Iterator[gin.config_parser.BindingStatement]:
    for statement in self._statements:
      if isinstance(statement, gin.config_parser.BindingStatement):
        yield statement

  @property
  def _imports(self) -> set[str]:
    return {
      statement.module
      for statement in self._statements
      if isinstance(statement, gin.config_parser.ImportStatement)
    }


def _check_binding(
  binding: gin.config_parser.BindingStatement, known: Known, where: str
) -> None:
  selector, parameter = binding.selector, binding.arg_name
  matching = _matching(selector, known)
  if not matching:
    functions = known['functions']
    raise UserError(explanations.unknown_function(selector, functions) + where)
  parameters: list[str] = []
  for function in matching:
    declared = known['functions'][function]
    if declared is None or parameter in declared:
      return
    parameters += declared
  raise UserError(
    explanations.unknown_parameter(selector, parameter, parameters) + where
  )


def _matching(selector: str, known: Known) -> list[str]:
  """Returns the full names that a selector can stand for."""
  end = f'.{selector}'
  return [name for name in known['functions'] if f'.{name}'.endswith(end)]


def _names(value: Any) -> Iterator[str]:
  """Yields the references and macros in a value, such as '@Dense()'."""
  if isinstance(value, gin_files.Written):
    yield value
  elif isinstance(value, dict):
    for part in (*value.keys(), *value.values()):
      yield from _names(part)
  elif isinstance(value, (list, tuple)):
    for part in value:
      yield from _names(part)


def _place(location: gin.config_parser.Location) -> str:
  """Returns where a statement is, in gin's words."""
  file = f'file "{location.filename}",'
  line = re.sub(r'\s+', ' ', location.line_content).strip()
  where = file if location.filename else 'bindings string'
  return f'\n  In {where} line {location.line_num}\n    {line}'
