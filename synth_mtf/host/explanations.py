"""Clear messages for the host's exceptions.

gin, seqio, Mesh-TensorFlow and TensorFlow report many user mistakes as a
traceback through their internals. `explained` replaces those listed here with a
`UserError`; other exceptions keep their type and traceback.
"""

import contextlib
import inspect
import re
import tokenize
import traceback
from collections.abc import Callable, Iterator

import gin
import seqio

from synth_mtf import paths
from synth_mtf.errors import UserError, nearest

# gin appends the location to a message. The first form helps users; the second
# names Python objects, in one line per level of the call.
_GIN_LOCATION = re.compile(r'\n  In (?:file ".*",|bindings string).*', re.S)
_GIN_CALL = re.compile(r"\n\s+In call to configurable '\w+'[^\n]*")
MEMORY_ADVICE = (
  'Make the batch smaller (utils.run.batch_size), split it (serialize_num_'
  'microbatches.tokens_per_microbatch_per_replica), or use more devices '
  '(utils.run.mesh_shape).'
)


@contextlib.contextmanager
def explained(
  *explainers: Callable[[BaseException], str | None],
) -> Iterator[None]:
  """Replaces an exception whose cause is known with a `UserError`.

  Args:
    *explainers: called for exceptions that are not listed here; each returns a
      message or None.
  """
  try:
    yield
  except Exception as error:
    for explain in (_explain, *explainers):
      message = explain(error)
      if message:
        raise UserError(message) from error
    raise


def _explain(error: BaseException) -> str | None:
  if isinstance(error, SyntaxError) and str(error.filename).endswith('.py'):
    return f'Python syntax: {error.filename}:{error.lineno}: {error.msg}'
  if isinstance(error, (SyntaxError, tokenize.TokenError)):
    return f'gin syntax: {error}'
  if isinstance(error, UnicodeDecodeError):
    file = _gin_file_being_read(error)
    if file:
      return f'gin file {file!r} is not UTF-8 text: {error}'
  text = _GIN_CALL.sub('', str(error))
  if isinstance(error, UserError):
    return text
  location = _GIN_LOCATION.search(text)
  if isinstance(error, MemoryError):
    text = f'MemoryError: {text}'  # Python's own message is empty
  for pattern, message in _MESSAGES.items():
    match = re.search(pattern, text, re.M)
    if match:
      groups = [group.strip() for group in match.groups()]
      write = message.format if isinstance(message, str) else message
      return write(*groups) + (location.group() if location else '')
  return None


def _gin_file_being_read(error: BaseException) -> str | None:
  for frame, _ in traceback.walk_tb(error.__traceback__):
    if 'config_file' in frame.f_locals:  # a local name of gin's parser
      return frame.f_locals['config_file']
  return None


def _gin_file(name: str, searched: str) -> str:
  return paths.missing_gin_file(name, re.findall(r"'(.*?)'", searched))


def _configurable(selector: str) -> str:
  # gin has no public list of its configurables.
  known = {full.rpartition('.')[2] for full, _ in gin.config._REGISTRY.items()}
  return (
    f'gin knows nothing named {selector!r}'
    f'{nearest(selector.rpartition(".")[2], known)}\n'
    'A name from your own module needs --module_import=<module>.'
  )


def _parameter(selector: str, parameter: str) -> str:
  known = [*inspect.signature(gin.get_configurable(selector)).parameters]
  return f'gin: {selector!r} has no parameter {parameter!r}' + (
    nearest(parameter, known) or f'; it has {", ".join(known)}'
  )


def _provider(name: str) -> str:
  known = [*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()]
  return (
    f'there is no task or mixture {name!r}{nearest(name, known)}\n'
    'A task from your own module needs --module_import=<module>.'
  )


# Maps patterns of the host's messages to ours: a format string for the groups
# of the match, or a function of them.
_MESSAGES: dict[str, str | Callable[..., str]] = {
  r'Unable to open file: (.*)\. Searched config paths: (\[.*?\])': _gin_file,
  r"No configurable matching (?:reference )?'@?(.*?)(?:\(\))?'": _configurable,
  r"Configurable '(.*?)' doesn't have a parameter named '(.*?)'": _parameter,
  r"No Task or Mixture found with name '((?s:.*?))'": _provider,
  r'Provider name not registered: (\S*)': _provider,
  'Required bindings for `[^`]*tpu_mesh_shape` not provided': (
    'no mesh is set. On a CPU or GPU give '
    '--gin_param="utils.run.mesh_shape = \'model:1,batch:1\'"; on a TPU '
    '--gin_param="utils.tpu_mesh_shape.tpu_topology = \'v3-8\'" and '
    '--gin_param="utils.tpu_mesh_shape.model_parallelism = 1".'
  ),
  r"Required bindings for `(.*?)` not provided in config: \['(.*?)'": (
    'gin: {0}.{1} must be set: give --gin_param="{0}.{1} = ...".'
  ),
  r'(\S+) set to `%gin.REQUIRED` but not': (
    'gin: {0} must be set: give --gin_param="{0} = ...".'
  ),
  'maximum recursion depth exceeded': (
    'gin: a value is nested too deeply, or macros refer to each other in a '
    'circle'
  ),
  'Invalid value in tensor used for shape|out of bounds for int32': (
    'a size of the model is too large for TensorFlow: expected less than 2^31; '
    'look for it among the bindings of gin, such as d_model or d_ff.'
  ),
  r"local variable 'logits'": (
    'transformer_layers.Synthesizer.synthesize_mode is not one that '
    'mesh_tensorflow knows: random, random_plus, random_plus_alpha, '
    'dense_minus, dense_plus, dense_plus_alpha or factorized.'
  ),
  r'same length as devices arg=\[.*?\] devices=\[(.*?)\]': (
    'utils.run.mesh_devices = [{0}] must name one device for each part of '
    'utils.run.mesh_shape.'
  ),
  r'targets length for span corruption \((\d+)\) is greater than '
  r'configured targets length \((\d+)\)': (
    'span corruption of these inputs makes {0} targets, but '
    "utils.run.sequence_length allows {1}: raise its 'targets' or shorten its "
    "'inputs'."
  ),
  # TensorFlow reports exceptions of the input pipeline as text.
  r'(?:UserError|ConfigurationError): ((?s:.*?))\nTraceback': '{0}',
  r'([^\n]*)\s+when reading (?:metadata of )?(gs://t5-data/vocabs/\S+)': (
    "T5's own vocabulary {1} cannot be read: {0}. Give the one that the model "
    'was trained with, --vocabulary=FILE.model or --vocabulary=bytes, and a '
    'gin file with its task: a run file, or <run>/operative_config.gin.'
  ),
  r'^(.*(?:No space left on device|[Dd]isk quota exceeded).*)$': (
    'the disk is full: {0}\nWhat was complete is intact. Free some space '
    'there, and give the same command again: training resumes from its last '
    'checkpoint, an evaluation starts again. A training run that keeps fewer '
    'checkpoints needs less: --gin_param="utils.run.keep_checkpoint_max = 3".'
  ),
  r'^(.*(?:OOM when allocating|[Ff]ailed to allocate|Cannot allocate memory|'
  r'[Oo]ut of memory|RESOURCE_EXHAUSTED|MemoryError|bad_alloc).*)$': (
    f'out of memory: {{0}}\n{MEMORY_ADVICE}'
  ),
}
