"""Steps of preprocessing, whether or not AutoGraph rewrites them."""

import functools
from collections.abc import Callable
from typing import Any


def function(step: Any) -> Callable[..., Any]:
  """Returns the function of a step, which may be partially applied."""
  return step.func if isinstance(step, functools.partial) else step


def is_traced_as_it_is(step: Any) -> bool:
  return hasattr(function(step), 'autograph_info__')


def original(step: Any) -> Any:
  """Returns a step as its author wrote it, which AutoGraph rewrites."""
  if isinstance(step, functools.partial):
    return functools.partial(original(step.func), *step.args, **step.keywords)
  return step.__wrapped__ if is_traced_as_it_is(step) else step


def compared(step: Any) -> Any:
  """Returns what two equal steps have in common."""
  own = original(step)
  if isinstance(own, functools.partial):
    return own.func, own.args, own.keywords
  return own
