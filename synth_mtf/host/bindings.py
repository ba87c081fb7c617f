"""The bindings that gin holds, and the macros that they read."""

import copy
import inspect
from collections.abc import Iterator
from typing import Any, NamedTuple

import gin


class Binding(NamedTuple):
  """A gin binding: a parameter and its value.

  Attributes:
    scope: `encoder` in `encoder/Random.max_length`, or ''.
    selector: full name of the function or class.
    parameter: name of its parameter.
    raw: the value before macros and references are resolved.
  """

  scope: str
  selector: str
  parameter: str
  raw: Any

  @property
  def value(self) -> Any:
    """The value that a call receives."""
    with gin.config_scope(self.scope or None):
      return copy.deepcopy(self.raw)

  @property
  def is_call(self) -> bool:
    """Whether the value is the result of a call, such as `@function()`."""
    return (
      isinstance(self.raw, gin.config.ConfigurableReference)
      and self.raw.evaluate
      and not macro_of(self.raw)
    )

  @property
  def declaration(self) -> inspect.Parameter | None:
    """How the function, class or base class declares the parameter."""
    owner = gin.get_configurable(self.selector)
    owners = inspect.getmro(owner)[:-1] if inspect.isclass(owner) else [owner]
    for declaring in owners:
      declared = inspect.signature(declaring).parameters
      if self.parameter in declared:
        return declared[self.parameter]
    return None

  def __str__(self) -> str:
    scope = f'{self.scope}/' if self.scope else ''
    owner = '.'.join(self.selector.split('.')[-2:])
    macro = macro_of(self.raw)
    # gin's own form of a reference, `@name`, is the one that users write.
    value = self.value if macro else self.raw
    text = f'{scope}{owner}.{self.parameter} = {value!r}'
    return f'{text} (through {macro} = {value!r})' if macro else text


def bindings() -> Iterator[Binding]:
  """Yields all bindings except the definitions of macros."""
  for (scope, selector), parameters in gin.config._CONFIG.items():
    if selector != 'gin.macro':
      for parameter, raw in parameters.items():
        yield Binding(scope, selector, parameter, raw)


def macro_of(raw: Any) -> str:
  """Returns the name of the macro that a value refers to, or ''."""
  name, _, selector = getattr(raw, 'scoped_selector', '').rpartition('/')
  return name if selector in ('gin.macro', 'macro') else ''


def macros_read() -> set[str]:
  """Returns the names of macros that a binding or another macro refers to."""
  references = gin.config.iterate_references(gin.config._CONFIG)
  return {macro_of(reference) for reference in references} - {''}
