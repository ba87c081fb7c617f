"""Imports the host in two thirds of the time, by importing some modules late.

A module in `PUT_OFF` is loaded when one of its names is first read, or when a
module inside it is imported that is not listed itself. List modules whose
import only defines names, and which few runs use. Python's own LazyLoader is
not thread-safe in the versions supported here.
"""

import contextlib
import functools
import gc
import importlib.abc
import importlib.machinery
import sys
import threading
import types
from collections.abc import Iterator, Sequence
from typing import Any, Optional

# With functions that T5 reads while it is imported, without calling them.
PUT_OFF: dict[str, Sequence[str]] = {
  'pandas': (),  # for Keras's data frames, and T5's tables of scores
  'pyglove': (),  # for seqio's search of mixtures
  'rouge_score.rouge_scorer': (),  # for a metric of T5; needs NLTK
  'scipy.ndimage': (),  # for Keras's pictures
  'scipy.stats': (),  # for two metrics of T5
  'sklearn': (),
  # For others; needs much of SciPy.
  'sklearn.metrics': ('matthews_corrcoef', 'fbeta_score'),
}


@contextlib.contextmanager
def quick() -> Iterator[None]:
  """Imports the modules of `PUT_OFF` late, and collects no garbage meanwhile.

  What is imported inside stays late afterwards.
  """
  if _FINDER not in sys.meta_path:
    sys.meta_path.insert(0, _FINDER)
  collects = gc.isenabled()
  gc.disable()
  _FINDER.imports += 1
  try:
    yield
  finally:
    _FINDER.imports -= 1
    if collects:
      gc.enable()


class _PutOff(types.ModuleType):
  """A module that runs its code when a name is first read."""

  def __getattr__(self, name: str) -> Any:
    if _FINDER.imports and name in PUT_OFF[self.__name__]:
      return functools.partial(_call, self, name)
    return _loaded(self, name)


def _call(
  module: types.ModuleType, function: str, *args: Any, **kwargs: Any
) -> Any:
  return _loaded(module, function)(*args, **kwargs)


def _loaded(module: types.ModuleType, name: str) -> Any:
  _load(module)
  return types.ModuleType.__getattribute__(module, name)  # as it now is one


def _load(module: types.ModuleType) -> None:
  """Runs the module's code, once; other threads wait for its end."""
  _load_package(module.__name__)
  state = _spec(module).loader_state
  with state.lock:
    if state.is_loaded:  # or is being loaded, by this thread
      return
    state.is_loaded = True
    try:
      state.loader.exec_module(module)
    except BaseException:
      state.is_loaded = False
      raise
    module.__class__ = types.ModuleType


def _load_package(name: str) -> None:
  """Runs the code of a module's package, if that has not been run."""
  package = sys.modules.get(name.rpartition('.')[0])
  if isinstance(package, _PutOff):
    _load(package)


def _spec(module: types.ModuleType) -> importlib.machinery.ModuleSpec:
  assert module.__spec__ is not None  # it was found by one
  return module.__spec__


class _Loader(importlib.abc.Loader):
  """Creates a module as its own loader would, and runs its code later."""

  def __init__(self, loader: importlib.abc.Loader) -> None:
    self.loader = loader
    self.lock = threading.RLock()
    self.is_loaded = False

  def create_module(
    self, spec: importlib.machinery.ModuleSpec
  ) -> Optional[types.ModuleType]:
    return self.loader.create_module(spec)

  def exec_module(self, module: types.ModuleType) -> None:
    module.__loader__ = _spec(module).loader = self.loader
    module.__class__ = _PutOff


class _Finder(importlib.abc.MetaPathFinder):
  """Finds the modules of `PUT_OFF`, before the finders of Python do.

  Attributes:
    imports: how many `quick()` there are around this.
  """

  imports = 0

  def find_spec(
    self,
    name: str,
    path: Optional[Sequence[str]],
    target: Optional[types.ModuleType] = None,
  ) -> Optional[importlib.machinery.ModuleSpec]:
    if name not in PUT_OFF:
      _load_package(name)
      return None
    spec = importlib.machinery.PathFinder.find_spec(name, path, target)
    if spec is not None and spec.loader is not None:
      spec.loader = spec.loader_state = _Loader(spec.loader)
    return spec


_FINDER = _Finder()
