"""Clear messages for the host's exceptions.

gin, seqio, Mesh-TensorFlow and TensorFlow report many mistakes of a user as a
traceback through their internals. `explained` raises a `UserError` in place of
those listed here; other exceptions keep their type and traceback.
"""

import contextlib
import inspect
import os
import pathlib
import re
import tokenize
from collections.abc import Callable, Iterator, Sequence
from typing import Optional, Union

import gin
import seqio

from synth_mtf.errors import UserError, nearest

# gin appends the place to a message. The first form helps a user; the second
# names Python objects, in one line per level of the call.
_GIN_LOCATION = re.compile(r'\n  In (?:file ".*",|bindings string).*', re.S)
_GIN_CALL = re.compile(r"\n\s+In call to configurable '(\w+)'[^\n]*")
MEMORY_ADVICE = (
  'Make the batch smaller (utils.run.batch_size), split it (serialize_num_'
  'microbatches.tokens_per_microbatch_per_replica), or use more devices '
  '(utils.run.mesh_shape).'
)
# Returns a message if it knows the cause of an exception.
Explainer = Callable[[BaseException], Optional[str]]


@contextlib.contextmanager
def explained(*explainers: Explainer) -> Iterator[None]:
  """Raises a `UserError` in place of an exception whose cause is known.

  Args:
    *explainers: asked about exceptions that are not known here.

  Raises:
    UserError: the cause is known; the exception is its `__cause__`.
  """
  try:
    yield
  except Exception as error:
    message = explain(error, *explainers)
    if message is None:
      raise
    raise UserError(message) from error


def explain(error: BaseException, *explainers: Explainer) -> Optional[str]:
  """Returns a clear message, or None if the cause is not known."""
  if isinstance(error, UserError):
    return _GIN_CALL.sub('', str(error))
  if isinstance(error, (SyntaxError, tokenize.TokenError)):
    return f'gin syntax: {error}'
  text = str(error)
  if isinstance(error, MemoryError):
    text = f'MemoryError {text}'  # Python's is empty
  for pattern, meaning in _MEANINGS:
    match = re.search(pattern, text, re.S)
    if match:
      if isinstance(meaning, str):
        return meaning.format(*match.groups())
      return meaning(match)
  answers = (explainer(error) for explainer in explainers)
  return next(filter(None, answers), None)


def _gin_file(match: re.Match[str]) -> str:
  name, searched = match.groups()
  folders = re.findall(r"'(.*?)'", searched)
  if os.path.isabs(name):
    folders = [os.path.dirname(name)]
  known = [path for folder in folders for path in _gin_files(folder, name)]
  shown = ', '.join(folder or os.getcwd() for folder in folders)
  return (
    f'gin file {name!r} does not exist{nearest(name, known)}\nSearched: {shown}'
  )


def _gin_files(folder: str, name: str) -> Iterator[str]:
  """Yields the gin files of a search folder as a person would name them."""
  root = pathlib.Path(folder)
  if os.path.isabs(name):
    yield from map(str, root.glob('*.gin'))
    return
  # '' is the working folder, which may hold anything: only the subfolder that
  # was asked for is searched there.
  here = root.joinpath(os.path.dirname(name)).glob('*.gin')
  for path in root.rglob('*.gin') if folder else here:
    yield str(path.relative_to(root))


def _configurable(match: re.Match[str]) -> str:
  selector = match[1]
  # gin has no public list of the names that it knows.
  registry = gin.config._REGISTRY
  known = {registry.minimal_selector(full) for full, _ in registry.items()}
  last = selector.rsplit('.', 1)[-1]
  known |= {name.rsplit('.', 1)[-1] for name in known}
  return (
    f'gin knows nothing named {selector!r}'
    f'{nearest(selector, known) or nearest(last, known)}{_location(match)}\n'
    'A name of a module of your own needs --module_import=<module>.'
  )


def _parameter(match: re.Match[str]) -> str:
  selector, parameter = match.groups()
  return (
    f'gin: {selector!r} has no parameter {parameter!r}'
    f'{_nearest_parameter(parameter, selector)}{_location(match)}'
  )


def _constructor_parameter(match: re.Match[str]) -> str:
  """A class that passes arguments on to its parent meets a typo in a call."""
  parameter = match[1]
  callers = _GIN_CALL.findall(match.string)
  bound = re.findall(rf'^(\S+)\.{parameter} =', gin.config_str(), re.M)
  return (
    f'gin: {(bound or callers)[0]!r} has no parameter {parameter!r}'
    f'{_nearest_parameter(parameter, *callers[:2])}'
  )


def _nearest_parameter(parameter: str, *selectors: str) -> str:
  known = [
    name
    for selector in selectors
    for name in inspect.signature(gin.get_configurable(selector)).parameters
    if name not in ('self', 'args', 'kwargs')
  ]
  return nearest(parameter, known) or f'; it has {", ".join(known)}'


def _location(match: re.Match[str]) -> str:
  found = _GIN_LOCATION.search(_GIN_CALL.sub('', match.string))
  return found.group() if found else ''


def _missing_binding(match: re.Match[str]) -> str:
  selector, missing = match.groups()
  if 'tpu_mesh_shape' in selector:
    return (
      'no mesh is set. On a CPU or GPU give '
      '--gin_param="utils.run.mesh_shape = \'model:1,batch:1\'"; on a TPU '
      '--gin_param="utils.tpu_mesh_shape.tpu_topology = \'v3-8\'" and '
      '--gin_param="utils.tpu_mesh_shape.model_parallelism = 1".'
    )
  names = [f'{selector}.{name}' for name in re.findall(r"'(.*?)'", missing)]
  return (
    f'gin: {", ".join(names)} must be set, by a --gin_file or by '
    f'--gin_param="{names[0]} = ...".'
  )


def _provider(match: re.Match[str]) -> str:
  known = [*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()]
  return (
    f'there is no task or mixture {match[1]!r}{nearest(match[1], known)}\n'
    'One of a module of your own needs --module_import=<module>.'
  )


def _devices(match: re.Match[str]) -> str:
  parts, devices = (len(text.split(',')) for text in match.groups())
  return (
    f'the mesh has {parts} parts, but utils.run.mesh_devices names {devices} '
    f'devices ([{match[2]}]): name one for each part.'
  )


def _disk(match: re.Match[str]) -> str:
  return (
    f'the disk is full: {_line_of(match)}\nThe last complete checkpoint is '
    'intact, and the same command resumes from it. Free some space, or keep '
    'fewer checkpoints: --gin_param="utils.run.keep_checkpoint_max = 3".'
  )


def _memory(match: re.Match[str]) -> str:
  return f'out of memory: {_line_of(match)}\n{MEMORY_ADVICE}'


def _line_of(match: re.Match[str]) -> str:
  """The line of a message that has the match: others name operations."""
  text = match.string
  begin = text.rfind('\n', 0, match.start()) + 1
  end = text.find('\n', match.end())
  return text[begin : end if end >= 0 else None].strip()


# The text of a known mistake, and what to say: a function of the match, or a
# message with its groups.
_MEANINGS: Sequence[tuple[str, Union[str, Callable[[re.Match[str]], str]]]] = (
  (r'Unable to open file: (.*)\. Searched config paths: (\[.*?\])', _gin_file),
  (r"No configurable matching '(.*?)'", _configurable),
  (r"No configurable matching reference '@(.*?)(?:\(\))?'", _configurable),
  (r"Configurable '(.*?)' doesn't have a parameter named '(.*?)'", _parameter),
  (
    r"unexpected keyword argument '(\w+)'\n\s+In call to configurable",
    _constructor_parameter,
  ),
  (
    r'Required bindings for `(.*?)` not provided in config: (\[.*?\])',
    _missing_binding,
  ),
  (
    r'(\S+) set to `%gin.REQUIRED` but not',
    'gin: {0} must be set: a gin file in use leaves it open. Give '
    '--gin_param="{0} = ...".',
  ),
  (r"No Task or Mixture found with name '(.*?)'", _provider),
  (r'Provider name not registered: (\S*)', _provider),
  (r'same length as devices arg=\[(.*?)\] devices=\[(.*?)\]', _devices),
  (
    r'targets length for span corruption \((\d+)\) is greater than '
    r'configured targets length \((\d+)\)',
    'span corruption of these inputs makes {0} targets, but '
    "utils.run.sequence_length allows {1}: raise its 'targets' or shorten its "
    "'inputs'.",
  ),
  # TensorFlow passes on an exception of the input pipeline as text.
  (r'(?:UserError|ConfigurationError): (.*?)\nTraceback', '{0}'),
  (
    r'Missing runtime dependency on the Google API client',
    'looking up a TPU by its name takes a package that is missing: run `pip '
    'install cloud-tpu-client`, or give its address, --tpu=grpc://IP:8470.',
  ),
  (
    r'([^\n]*)\s+when reading (?:metadata of )?(gs://t5-data/vocabs/\S+)',
    "T5's own vocabulary {1} cannot be read: {0}. Give the one that the model "
    'was trained with: --vocabulary=FILE.model or --vocabulary=bytes.',
  ),
  (r'No space left on device|[Dd]isk quota exceeded', _disk),
  (
    r'OOM when allocating|[Ff]ailed to allocate|Cannot allocate memory|'
    r'[Oo]ut of memory|RESOURCE_EXHAUSTED|MemoryError|bad_alloc',
    _memory,
  ),
)
