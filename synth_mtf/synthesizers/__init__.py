"""The synthesizing functions S(X), one file each.

They compute alignment logits, with or without a layer's input; the layer mixes
and masks them. `base` defines the interface, `local` the base class of
functions with a hidden layer. Every function class in this folder becomes a
public name of `synth_mtf` and of gin.
"""

import importlib
import inspect
import pkgutil
import types

from synth_mtf.synthesizers.base import SynthesizingFunction


def _functions_of(module: types.ModuleType) -> list[type[SynthesizingFunction]]:
  """Returns the functions that a module defines, by name."""
  return [
    value
    for _, value in inspect.getmembers(module, inspect.isclass)
    if issubclass(value, SynthesizingFunction)
    and value.__module__ == module.__name__
    and not inspect.isabstract(value)
  ]


FUNCTIONS: dict[str, type[SynthesizingFunction]] = {}
for _file in pkgutil.iter_modules(__path__):
  _module = importlib.import_module(f'{__name__}.{_file.name}')
  for _function in _functions_of(_module):
    FUNCTIONS[_function.__name__] = _function
globals().update(FUNCTIONS)

__all__ = ['FUNCTIONS', 'SynthesizingFunction', *FUNCTIONS]  # noqa: PLE0604
