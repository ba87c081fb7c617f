"""The synthesizing functions S(X), one file each.

They make alignment logits from a layer's input, or from nothing. `base` is the
interface, `local` the base class of functions with a hidden layer. Every
function class defined in this folder becomes a public name of `synth_mtf` and
of gin. The layer mixes, masks and uses the logits.
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
