"""What the host's exceptions mean to a person.

gin, seqio, Mesh-TensorFlow and TensorFlow report many mistakes of a user as a
traceback through their internals. `explained` recognises the ones that are
known by their text and raises a `UserError` in their place. An exception that
nothing here knows keeps its type and its traceback.
"""

import contextlib
import difflib
import inspect
import os
import pathlib
import re
from collections.abc import Iterable, Iterator
from typing import Callable, Optional

import gin
import seqio

from synth_mtf.errors import UserError

# gin appends where it was to a message: the first kind helps, the second names
# Python objects and repeats itself once for each level of the call.
_GIN_LOCATION = re.compile(r'\n  In (?:file ".*",|bindings string).*', re.S)
_GIN_CALL = re.compile(r'\n\s+In call to configurable [^\n]*')


@contextlib.contextmanager
def explained() -> Iterator[None]:
  """Raises a `UserError` in place of an exception whose cause is known."""
  try:
    yield
  except Exception as error:
    message = explain(error)
    if message is None:
      raise
    raise UserError(message) from error


def explain(error: BaseException) -> Optional[str]:
  """Returns the message for a person, or None if the cause is not known."""
  text = _GIN_CALL.sub('', str(error))
  if isinstance(error, UserError):
    return text
  for pattern, meaning in _MEANINGS:
    match = re.search(pattern, text, re.S)
    if match:
      return meaning(match)
  return None


def nearest(name: str, known: Iterable[str]) -> str:
  """Returns ' Nearest: ...' with the known names like `name`, or nothing."""
  close = difflib.get_close_matches(name, sorted(set(known)), cutoff=0.5)
  return f' Nearest: {", ".join(close)}.' if close else ''


def _gin_file(match: 're.Match') -> str:
  name, searched = match.groups()
  folders = re.findall(r"'(.*?)'", searched)
  if os.path.isabs(name):
    folders = [os.path.dirname(name)]
  known = [path for folder in folders for path in _gin_files(folder, name)]
  shown = ', '.join(folder or os.getcwd() for folder in folders)
  return (
    f'gin file {name!r} does not exist.{nearest(name, known)} Searched: {shown}'
  )


def _gin_files(folder: str, name: str) -> Iterator[str]:
  """Yields the gin files of a search folder as one would name them."""
  root = pathlib.Path(folder)
  # '' is the working folder, which may be the root of anything: only the
  # sub-folder that was asked for is looked at there.
  if folder and not os.path.isabs(name):
    searched = root.rglob('*.gin')
  else:
    searched = root.joinpath(os.path.dirname(name)).glob('*.gin')
  for path in searched:
    yield str(path if os.path.isabs(name) else path.relative_to(root))


def _location(text: str) -> str:
  found = _GIN_LOCATION.search(text)
  return found.group() if found else ''


def _configurable(match: 're.Match') -> str:
  selector = match['selector']
  known = _gin_names()
  last = selector.split('.')[-1]
  known |= {name.split('.')[-1] for name in known}
  return (
    f'gin knows nothing named {selector!r}.'
    f'{nearest(selector, known) or nearest(last, known)} A name of a module of '
    'yours needs --module_import=<module>.' + _location(match.string)
  )


def _gin_names() -> set[str]:
  return {
    # gin lists its names nowhere in public.
    gin.config._REGISTRY.minimal_selector(selector)
    for selector, _ in gin.config._REGISTRY.items()
  }


def _parameter(match: 're.Match') -> str:
  selector, parameter = match.groups()
  known = _parameters(gin.get_configurable(selector))
  return (
    f'gin: {selector!r} has no parameter {parameter!r}.'
    f'{nearest(parameter, known) or " It has: " + ", ".join(known) + "."}'
    + _location(match.string)
  )


def _parameters(configurable: Callable) -> list[str]:
  names = inspect.signature(configurable).parameters
  return [name for name in names if name not in ('self', 'args', 'kwargs')]


def _missing_binding(match: 're.Match') -> str:
  selector, missing = match.groups()
  names = re.findall(r"'(.*?)'", missing)
  if 'tpu_mesh_shape' in selector:
    return (
      'no mesh is set. On a TPU give --gin_param="utils.tpu_mesh_shape.'
      'tpu_topology = \'v3-8\'" and "...model_parallelism = 1"; on a CPU or a '
      'GPU --gin_param="utils.run.mesh_shape = \'model:1,batch:1\'".'
    )
  wanted = ', '.join(f'{selector}.{name}' for name in names)
  return (
    f'gin: {wanted} must be set, by a --gin_file or by '
    f'--gin_param="{selector}.{names[0]} = ...".'
  )


def _required(match: 're.Match') -> str:
  return (
    f'gin: {match[1]} must be set: a gin file in use leaves it open. Give '
    f'--gin_param="{match[1]} = ...".'
  )


def _provider(match: 're.Match') -> str:
  known = [*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()]
  return (
    f'there is no task or mixture {match[1]!r}.{nearest(match[1], known)} One '
    'that a module of yours registers needs --module_import=<module>.'
  )


def _checkpoint(match: 're.Match') -> str:
  return (
    f'a checkpoint cannot be read: {_line(match[0])}. It is truncated or '
    'damaged. Remove the files of that step and write the step before it into '
    "the file 'checkpoint' beside them, or give that step as "
    'run.eval_checkpoint_step.'
  )


def _other_model(match: 're.Match') -> str:
  return (
    f'the checkpoint was made by another model: {_line(match[0])}. The gin '
    'files must give the variant, the size, the lengths and the vocabulary '
    "that the checkpoint was trained with (its folder's operative_config.gin)."
  )


def _as_it_says(match: 're.Match') -> str:
  return _line(match[0])


def _in_pipeline(match: 're.Match') -> str:
  return match[1].strip()


def _line(text: str) -> str:
  return re.sub(r'\s+', ' ', text).strip().rstrip('.')


def _no_access(match: 're.Match') -> str:
  return f'no access to {match[1]}: {_line(match[0])}.'


# The text that identifies a mistake, and what to say about it.
_MEANINGS = (
  (r'Unable to open file: (.*)\. Searched config paths: (\[.*?\])', _gin_file),
  (r"No configurable matching '(?P<selector>.*?)'", _configurable),
  (
    r"No configurable matching reference '@(?P<selector>[\w./]*)",
    _configurable,
  ),
  (
    r"Configurable '(.*?)' doesn't have a parameter named '(.*?)'",
    _parameter,
  ),
  (
    r'Required bindings for `(.*?)` not provided in config: (\[.*?\])',
    _missing_binding,
  ),
  (r'([\w./]+) set to `%gin.REQUIRED` but not', _required),
  (r"No Task or Mixture found with name '(.*?)'", _provider),
  (r'Provider name not registered: (\S*)', _provider),
)
