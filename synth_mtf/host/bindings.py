"""What gin holds, binding by binding."""

import copy
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import gin

_MACRO = 'gin.macro'
_DEFINITION = re.compile(r'\s*([A-Za-z_]\w*)\s*=(?!=)')


class Binding(NamedTuple):
  """A parameter that gin has a value for.

  Attributes:
    scope: `encoder` in `encoder/Random.max_length`, or ''.
    owner: name of the function or class.
    parameter: its parameter.
    shown: the binding as a person writes it.
    raw: the value before macros and references are looked up.
  """

  scope: str
  owner: str
  parameter: str
  shown: str
  raw: Any

  @property
  def value(self) -> Any:
    """The value that a call would get."""
    with gin.config_scope(self.scope or None):
      return copy.deepcopy(self.raw)


def bindings() -> Iterator[Binding]:
  """Yields all bindings but the definitions of macros."""
  for (scope, selector), parameters in gin.config._CONFIG.items():
    if selector == _MACRO:
      continue
    owner = '.'.join(selector.split('.')[-2:])
    for parameter, raw in parameters.items():
      shown = f'{scope}/{owner}' if scope else owner
      yield Binding(
        scope, owner.split('.')[-1], parameter, f'{shown}.{parameter}', raw
      )


def macro_of(raw: Any) -> str:
  """The name of the macro that a value is, or ''."""
  if not isinstance(raw, gin.config.ConfigurableReference):
    return ''
  name, _, selector = raw.scoped_selector.rpartition('/')
  return name if selector in (_MACRO, 'macro') else ''


def macros_read() -> set[str]:
  """The names of all macros that a binding or another macro refers to."""
  references = gin.config.iterate_references(gin.config._CONFIG)
  return {macro_of(reference) for reference in references} - {''}


def macros_defined(params: Sequence[str]) -> list[str]:
  """The names of the macros that bindings on a command line define."""
  matches = map(_DEFINITION.match, params)
  return [match[1] for match in matches if match]
