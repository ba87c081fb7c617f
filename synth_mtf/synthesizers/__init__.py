"""The synthesizing functions S(X), one file each.

They compute alignment logits, with or without a layer's input; the layer mixes
and masks them. `base` defines the interface, `local` the base class of
functions with a hidden layer. Every function class in this folder becomes a
public name of `synth_mtf` and of gin.
"""

import importlib
import inspect
import pkgutil

from synth_mtf.synthesizers.base import SynthesizingFunction

_MODULES = [
  importlib.import_module(f'{__name__}.{found.name}')
  for found in pkgutil.iter_modules(__path__)
]
FUNCTIONS: dict[str, type[SynthesizingFunction]] = {
  name: value
  for module in _MODULES
  for name, value in sorted(vars(module).items())
  if inspect.isclass(value)
  and issubclass(value, SynthesizingFunction)
  and value.__module__ == module.__name__
  and not inspect.isabstract(value)
}
globals().update(FUNCTIONS)

__all__ = ['FUNCTIONS', 'SynthesizingFunction', *FUNCTIONS]  # noqa: PLE0604
