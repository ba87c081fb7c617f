"""Clear messages for the host's exceptions.

gin, seqio, Mesh-TensorFlow and TensorFlow report many user mistakes as a
traceback through their internals. `explained` replaces those listed here with a
`UserError`; other exceptions keep their type and traceback. `cause` finds what
an error of a graph says among its stack traces.
"""

import contextlib
import inspect
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator

import gin
from absl import flags

from synth_mtf import paths
from synth_mtf.errors import UserError, nearest, nearest_task
from synth_mtf.host import tpu_runtime, user_modules
from synth_mtf.storage import filesystem

# gin appends the location to a message. The first form helps users; the second
# names Python objects, in one line per level of the call.
_GIN_LOCATION = re.compile(r'\n  In (?:file ".*",|bindings string).*', re.S)
_GIN_CALL = re.compile(r"\n\s+In call to configurable '\w+'[^\n]*")
# How gin reports a word that is not a literal, and how we do.
_GIN_VALUE = re.compile(
  r"malformed node or string[^\n]*\n\s*Failed to parse token ('[^\n]*?')(?= \()"
)
_NOT_A_VALUE = (
  r'\1 is not a value: quote text, begin a function with @ or a macro with %'
)
_UNDEFINED_MACRO = re.compile(
  r"\Amacro\(\) missing 1 .*call to configurable 'macro' .* in scope '(.*?)'",
  re.S,
)
_GRAPH = 'Graph execution error:'
# What precedes the message of a graph's operation: where it was defined, the
# number of errors, and the host it ran on if that is not the session's own, ...
_DEFINITION = re.compile(r"\ADetected at node .*^Node: '[^\n]*\n", re.M | re.S)
_FIRST_OF_SEVERAL = re.compile(r'\A\d+ root error\(s\) found\.\s+\(0\) \w+: ')
_HOST = re.compile(r'^From (/job:\S+):\n', re.M)
# ... and what follows it: stack traces and names of nodes.
_AFTER_MESSAGE = re.compile(
  r'^(Traceback \(most recent call last\)|\t \[\[|Hint: '
  r'|Original stack trace for )',
  re.M,
)
TPU_VM_ADVICE = (
  'That way was made for TPU Nodes, which ended on 2025-04-25. On a TPU VM, '
  'give --tpu=local, or --device=tpu without --tpu; for a slice of several '
  'hosts, --tpu=grpc://ADDRESS:8470,grpc://ADDRESS:8470 (docs/tpu.md).'
)
NO_CORES_ADVICE = (
  '`synth-mtf doctor` says what is missing. --tpu needs a TensorFlow for TPUs '
  f'({tpu_runtime.INSTALL}) and a v2, v3 or v4; --device=tpu needs neither '
  '(docs/tpu.md).'
)
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
    *explainers: called for exceptions that `_MESSAGES` does not list; each
      returns a message or None.
  """
  try:
    yield
  except Exception as error:
    for explain in (_explain, *explainers, _explain_graph):
      message = explain(error)
      if message:
        raise UserError(message) from error
    raise


def cause(error: BaseException) -> str:
  """Returns what an error says.

  TensorFlow surrounds the message of a graph's operation with `Graph execution
  error`, names of nodes, and the stack traces of where the operation was
  defined and where a Python function failed.
  """
  text = _GIN_CALL.sub('', str(error)).removeprefix(_GRAPH).strip()
  text = _DEFINITION.sub('', text)
  text = _FIRST_OF_SEVERAL.sub('', text)
  text = _HOST.sub('', text)
  end = _AFTER_MESSAGE.search(text)
  return (text[: end.start()] if end else text).strip() or 'no message'


def _explain_graph(error: BaseException) -> str | None:
  """Explains an error of a graph by the message of its operation."""
  if not str(error).startswith(_GRAPH):
    return None
  message = cause(error)
  host = _HOST.search(str(error))
  where = f' on {host[1]}' if host else ''
  for pattern, explanation in _GRAPH_MESSAGES.items():
    match = re.search(pattern, message)
    if match:
      return explanation.format(*match.groups(), where=where)
  return None


def _fault_of_tokens(fault: str, place: tuple[int, int]) -> str:
  """Explains what Python's tokenizer says; releases use different words."""
  if 'EOF' in fault:
    return (
      'gin syntax: the text ends inside a value: expected its end, such as a '
      'closing bracket'
    )
  what, _, _ = fault.partition(' (detected at line')
  return f'gin syntax: {what} (line {place[0]})'


def _explain(error: BaseException) -> str | None:
  if isinstance(error, SyntaxError) and str(error.filename).endswith('.py'):
    return f'Python syntax: {error.filename}:{error.lineno}: {error.msg}'
  if isinstance(error, SyntaxError):
    fault = _GIN_VALUE.sub(_NOT_A_VALUE, str(error))
    line = (error.text or '').strip()
    return f'gin syntax: {fault}' + (f': {line}' if line else '')
  if isinstance(error, tokenize.TokenError):
    return _fault_of_tokens(*error.args)
  if isinstance(error, ModuleNotFoundError) and error.name in _named_modules():
    return f'--module_import: {error}. {user_modules.advice(error.name)}'
  undefined = _UNDEFINED_MACRO.search(str(error))
  if undefined:
    return _undefined_macro(undefined[1])
  text = _GIN_CALL.sub('', str(error))
  if isinstance(error, UserError):
    return text
  location = _GIN_LOCATION.search(text)
  if isinstance(error, MemoryError):
    text = f'MemoryError: {text}'  # Python's own message is empty
  for pattern, message in _MESSAGES.items():
    match = re.search(pattern, text, re.M)
    if match:
      groups = [(group or '').strip() for group in match.groups()]
      write = message.format if isinstance(message, str) else message
      return write(*groups) + (location.group() if location else '')
  return None


def _named_modules() -> set[str]:
  """Returns the modules of T5's --module_import, and the packages of each."""
  known = set()
  if flags.FLAGS.is_parsed() and 'module_import' in flags.FLAGS:
    for module in flags.FLAGS['module_import'].value or ():
      parts = module.split('.')
      known |= {'.'.join(parts[:end]) for end in range(1, len(parts) + 1)}
  return known


def _undefined_macro(name: str) -> str:
  return (
    f'gin: nothing sets the macro %{name}, which a value refers to: give '
    f'--gin_param="{name} = ...".'
  )


def _gin_file(name: str, searched: str) -> str:
  return paths.missing_gin_file(name, re.findall(r"'(.*?)'", searched))


def _configurable(selector: str) -> str:
  # gin has no public list of its configurables.
  return unknown_function(
    selector, (full for full, _ in gin.config._REGISTRY.items())
  )


def unknown_function(selector: str, known: Iterable[str]) -> str:
  """Says that gin has no function of a name; `known` are the names it has."""
  names = {full.rpartition('.')[2] for full in known}
  return (
    f'gin knows nothing named {selector!r}'
    f'{nearest(selector.rpartition(".")[2], names)}\n'
    'A name from your own module needs --module_import=<module>.'
  )


def _parameter(selector: str, parameter: str) -> str:
  known = inspect.signature(gin.get_configurable(selector)).parameters
  return unknown_parameter(selector, parameter, known)


def unknown_parameter(
  selector: str, parameter: str, known: Iterable[str]
) -> str:
  """Says that a function of gin does not have a parameter, but others."""
  names = [*known]
  return f'gin: {selector!r} has no parameter {parameter!r}' + (
    nearest(parameter, names) or f'; it has {", ".join(names)}'
  )


def unread_macro(name: str, read: Iterable[str]) -> str:
  """Says that nothing reads a macro that the command line sets."""
  names = sorted(read)
  hint = nearest(name, names) or f'; what is read: {", ".join(names)}'
  return (
    f'--gin_param: nothing reads {name}{hint}\n'
    'A setting starts with the name of its function, as in '
    'utils.run.train_steps.'
  )


def _provider(name: str) -> str:
  import seqio  # takes seconds

  known = [*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()]
  return (
    f'there is no task or mixture {name!r}{nearest_task(name, known)}\n'
    'A task from your own module needs --module_import=<module>.'
  )


# Maps patterns of the messages of a graph's operations to ours: a format string
# for the groups of the match, and for `where`, the host of the operation.
_GRAPH_MESSAGES = {
  r'Could not find callback with key=pyfunc': (
    'the data of this run comes from a Python function of this process, and '
    'the input pipeline runs in another process{where}: official files and '
    'task files can be read in one process only. Write the tasks where every '
    'host can read them, with `synth-mtf cache`, and run with that data.'
  ),
  r"Op type not registered '([^']+)' in binary running on (\S+?)\. ": (
    'the TensorFlow server on {1} does not know the operation {0}. Operations '
    'of the input pipeline, such as SentencepieceOp, are in tensorflow_text: '
    'start each worker with it imported, as `python -c "import tensorflow_text;'
    ' from tensorflow.python.tools import grpc_tpu_worker; '
    'grpc_tpu_worker.run()"` does (docs/tpu.md).'
  ),
  r'^(.+); No such file or directory': (
    '{0} could not be read{where}: it is not there. It was removed or renamed '
    'after the start of the run, or the host cannot see it. Once it is back, '
    'the same command resumes the run.'
  ),
}

# Maps patterns of the host's messages to ours: a format string for the groups
# of the match, or a function of them.
_MESSAGES: dict[str, str | Callable[..., str]] = {
  r'Unable to open file: (.*)\. Searched config paths: (\[.*?\])': _gin_file,
  r"No configurable matching (?:reference )?'@?(.*?)(?:\(\))?'": _configurable,
  r"Configurable '(.*?)' doesn't have a parameter named '(.*?)'": _parameter,
  r"'(\S+)' was not provided by an import statement|"
  r"Couldn't resolve selector (\S+);": (
    'gin finds {0}{1} in no module that the file imports. Expected a '
    'configuration of Mesh-TensorFlow; one of T5X does not describe its models.'
  ),
  r'Task (\S+) has no splits': (
    'the source of the task {0}, such as TensorFlow Datasets, has no data on '
    'this host, and T5 asks it for its splits, even if the task is cached. '
    'Prepare the data here, or use a task of ours (synth_...), which a cache '
    'describes.'
  ),
  r"No Task or Mixture found with name '((?s:.*?))'": _provider,
  r'\AGot: ((?s:.*))\Z': (
    'mixture_or_task_name = {0} (often through MIXTURE_NAME): expected the '
    'name of one task or mixture.'
  ),
  r'Provider name not registered: (\S*)': _provider,
  r'No file is found for the file pattern: (.*)\.$': (
    'no file matches {0}, which a task reads: put it there, or check the path '
    'that the task was registered with.'
  ),
  'Required bindings for `[^`]*tpu_mesh_shape` not provided': (
    'no mesh is set. On a CPU or GPU give '
    '--gin_param="utils.run.mesh_shape = \'model:1,batch:1\'"; on a TPU '
    '--gin_param="utils.tpu_mesh_shape.tpu_topology = \'v3-8\'" and '
    '--gin_param="utils.tpu_mesh_shape.model_parallelism = 1".'
  ),
  r"Required bindings for `(.*?)` not provided in config: \['(.*?)'": (
    'gin: {0}.{1} must be set: give --gin_param="{0}.{1} = ...".'
  ),
  r"No bindings specified for '(.*?)/(?:gin\.)?macro'": _undefined_macro,
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
  r'save_path is not a valid checkpoint: (.*)|'
  r'Failed to find any matching files for (.*)': (
    '{0}{1} is gone: a training run '
    '(utils.run.keep_checkpoint_max) or `checkpoint keep` removed it while '
    'this run worked. What it wrote before is complete; give it the steps '
    'that are left (utils.run.eval_checkpoint_step).'
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
  'Missing runtime dependency on the Google API client': (
    '--tpu=NAME looks the name up through the Cloud TPU API, which needs the '
    f'Google API client. {TPU_VM_ADVICE}'
  ),
  r"Could not lookup TPU metadata from name '(.*?)'": (
    'the Cloud TPU API does not know --tpu={0} in this --gcp_project and '
    f'--tpu_zone. {TPU_VM_ADVICE}'
  ),
  '(Cannot find any TPU cores|Failed to get global TPU topology)': (
    f'TensorFlow finds no TPU: {{0}}. {NO_CORES_ADVICE} To work without a TPU '
    'here, set the environment variable TPU_LOAD_LIBRARY=0.'
  ),
  'No TPU platform registered': (
    "TensorFlow's Estimator does not reach this chip (No TPU platform "
    'registered): only v2, v3 and v4 have the runtime that it needs. Use '
    '--device=tpu (docs/tpu.md).'
  ),
  # TensorFlow reports exceptions of the input pipeline as text.
  r'(?:UserError|ConfigurationError): ((?s:.*?))\nTraceback': '{0}',
  r'([^\n]*)\s+when reading (?:metadata of )?(gs://t5-data/vocabs/\S+)': (
    filesystem.NO_T5_VOCABULARY
  ),
  r'(HTTP response code 40\d[^\n]*)\s+when ([^\n]*gs://\S+)': (
    'a bucket refused a request, when {1}: {0}. Check its name and your '
    'permission (`gcloud auth application-default login`).'
  ),
  r'The version of the dataset you are trying to use \((\S+)\) is too old': (
    '{0} is not on this machine, and this release of TensorFlow Datasets does '
    'not prepare it any more. Give --data_dir=FOLDER with the official files '
    '(docs/data.md shows the layout) and a task that begins with synth_, or '
    '--t5_tfds_data_dir=FOLDER with prepared data.'
  ),
  r'Could not find directory (\S+)': (
    'there is no folder {0}, in which TensorFlow Datasets looks for prepared '
    'data (--t5_tfds_data_dir, TFDS_DATA_DIR), or it cannot be read.'
  ),
  r'^(checkpoint_mode is set to \w+ and checkpoint_steps is also set\..*)': (
    '--checkpoint_mode: {0}'
  ),
  r"finetune\(\) got an unexpected keyword argument 'steps'": (
    '--use_model_api --mode=finetune does not work in this release of T5. '
    'Without --use_model_api, give a run file, such as '
    'runs/finetune_en_mix.gin, and utils.run.init_checkpoint.'
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
