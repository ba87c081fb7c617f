"""All changes that we make to the host, each with its reason.

Those that have an end are context managers and are undone there. Nothing is
changed by importing this module, and the host's files never are. It does not
import TensorFlow, since `prepare_host` must run before the host is imported.
"""

import contextlib
import ctypes
import functools
import importlib.util
import io
import os
import pathlib
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from synth_mtf.host import tpu_runtime
from synth_mtf.storage import filesystem

# Modules that tensorflow-estimator imports and newer releases of TensorFlow
# lack, with the names that must exist in them during the import.
MISSING: dict[str, tuple[str, ...]] = {
  # Estimators under a distribution strategy; Mesh-TensorFlow has meshes.
  'tensorflow.python.distribute.estimator_training': (),
  # Embedding tables in a TPU's memory, for recommender models.
  'tensorflow.python.tpu.tpu_embedding': (
    'AdagradParameters',
    'AdamParameters',
    'FtrlParameters',
    'MomentumParameters',
    'ProximalAdagradParameters',
    'RMSPropParameters',
    'StochasticGradientDescentParameters',
  ),
  'tensorflow.python.tpu.tpu_embedding_gradient': (),
  # Saves a checkpoint before a TPU is preempted; disabled below.
  'tensorflow.python.tpu.session_support': (),
}

# What systems give accounts that have no home.
_NO_HOME = '/nonexistent'
_LOG_LEVEL = 'TF_CPP_MIN_LOG_LEVEL'
# What names a gin file.
_GIN_FILE = '--gin_file (or an include in one)'
# absl's `SetMinLogLevel` in the C++ library of TensorFlow 2.20; Python has no
# function for it. Other releases have another name, or nothing to hide.
_TENSORFLOW_LIBRARY = 'libtensorflow_framework.so.2'
_SET_LEVEL_OF_ABSL = (
  '_ZN4absl12lts_2025012714SetMinLogLevelENS0_18LogSeverityAtLeastE'
)


def prepare_host() -> None:
  """Makes `import mesh_tensorflow` and `import t5.models` work.

  Call it before either is imported; calling it again is harmless.

  Raises:
    UserError: importing TensorFlow would abort the process.
  """
  tpu_runtime.prepare_import()
  ensure_home()
  limit_log_of_cpp()
  warnings.filterwarnings('ignore', 'pkg_resources is deprecated')
  # `t5.models` imports HfPyTorchModel unconditionally, and with it torch and
  # transformers, which training in Mesh-TensorFlow never uses.
  model = 't5.models.hf_model'
  if model not in sys.modules and not importlib.util.find_spec('torch'):
    stand_in = types.ModuleType(model, 'Replaces the models in PyTorch.')
    vars(stand_in)['HfPyTorchModel'] = None
    sys.modules[model] = stand_in

  # TensorFlow 2.14 moved a function that mesh_tensorflow looks for in `ops`
  # (github.com/tensorflow/mesh, issue 396).
  from tensorflow.python.framework import ops, tensor_conversion_registry

  name = 'register_tensor_conversion_function'
  if not hasattr(ops, name):
    setattr(ops, name, getattr(tensor_conversion_registry, name))

  restore_estimator()


def ensure_home() -> None:
  """Names a home folder, which does not exist, for a user without one.

  That is a user of a container without HOME and without a line in passwd. NLTK
  cannot be imported then, and what is below `~` would be written to the working
  folder.
  """
  if not os.path.isabs(os.path.expanduser('~')):
    os.environ['HOME'] = _NO_HOME


def limit_log_of_cpp() -> None:
  """Keeps what TensorFlow's C++ code logs out of stderr.

  What it cannot do, it also raises. A level that the user has set stays, and
  holds for every line: newer releases write some through absl, which does not
  read the variable.
  """
  level = os.environ.setdefault(_LOG_LEVEL, '3')
  package = importlib.util.find_spec('tensorflow')
  if not level.isdigit() or not package or not package.origin:
    return
  path = pathlib.Path(package.origin).with_name(_TENSORFLOW_LIBRARY)
  with contextlib.suppress(OSError):  # other systems name it otherwise
    set_level = getattr(ctypes.CDLL(str(path)), _SET_LEVEL_OF_ABSL, None)
    if set_level:
      set_level(int(level))


def restore_estimator() -> None:
  """Puts Estimator, which Mesh-TensorFlow trains with, back into TensorFlow.

  TensorFlow 2.16 dropped it. The last release of the package
  tensorflow-estimator, 2.15, still works if it finds the names in `MISSING`,
  none of which Mesh-TensorFlow uses.
  """
  import tensorflow as tf
  import tensorflow.compat.v1 as tf1
  from tensorflow.python.util import tf_export

  if hasattr(tf1, 'estimator'):
    return
  # The decorator of Estimator's public names looks for this.
  vars(tf_export).setdefault(
    'ESTIMATOR_API_NAME', tf_export.TENSORFLOW_API_NAME
  )
  for name, classes in MISSING.items():
    if not importlib.util.find_spec(name):
      stand_in = types.ModuleType(name, 'Replaces what TensorFlow dropped.')
      for class_name in classes:
        setattr(stand_in, class_name, type(class_name, (), {}))
      sys.modules[name] = stand_in
  os.environ.setdefault('TF_TPU_GRACEFUL_SHUTDOWN_MODE', '')
  estimator = importlib.import_module('tensorflow_estimator._api.v1.estimator')
  vars(tf)['estimator'] = vars(tf1)['estimator'] = estimator
  for name in ('tpu_config', 'tpu_estimator'):  # imported by Mesh-TensorFlow
    sys.modules[f'tensorflow.python.tpu.{name}'] = importlib.import_module(
      f'tensorflow_estimator.python.estimator.tpu.{name}'
    )


def read_gin_files() -> None:
  """Makes gin read its files as we read others, local or in a bucket.

  gin would take a byte order mark for a statement, and any size into memory.
  For `runs/x.gin`, it would also raise a TypeError if a folder `runs` on
  sys.path, such as one in the working folder, has no `__init__.py`; here, the
  file counts as missing.
  """
  import gin
  from gin import resource_reader as packages

  def is_packaged(path: str) -> bool:
    try:
      return packages.system_path_file_exists(path)
    except TypeError:
      return False

  gin.config._FILE_READERS[:] = [
    (_GinFile, _is_gin_file),
    (packages.system_path_reader, is_packaged),
  ]


def _is_gin_file(path: str) -> bool:
  with filesystem.named_by(_GIN_FILE):
    return filesystem.has_file(path)


class _GinFile(io.StringIO):
  """The text of a gin file; gin shows its name in messages."""

  def __init__(self, path: str) -> None:
    with filesystem.named_by(_GIN_FILE):
      super().__init__(filesystem.text(path) or '')
    self.name = path


def separate_gin() -> Callable[[], AbstractContextManager[Any]]:
  """Returns a function that enters a separate configuration of gin.

  gin has a single configuration for the whole process, shared by all threads.
  What is bound while the context is active is there again when the function is
  called the next time.
  """
  import gin

  return functools.partial(
    mock.patch.multiple,
    gin.config,
    _CONFIG={},
    _OPERATIVE_CONFIG={},
    _SINGLETONS={},
    _IMPORTS=set(),
    _CONFIG_IS_LOCKED=False,
  )


@contextlib.contextmanager
def separate_caches() -> Iterator[None]:
  """Makes seqio forget at the end in which folders it has found caches.

  It keeps them, and that of each task, as long as the process lives: the next
  run would read the cache of this one.
  """
  import seqio

  before = [*seqio.get_global_cache_dirs()]
  try:
    yield
  finally:
    seqio.set_global_cache_dirs(before)
    for name in seqio.TaskRegistry.names():
      task = seqio.TaskRegistry.get(name)
      task._cache_dir = None
      task._stats = {}


def before_names_are_looked_up(register: Callable[[], object]) -> None:
  """Makes seqio call `register()` before it lists its mixtures, for good.

  It lists them before it returns any task or mixture, and has no hook. gin's
  finalize hooks would be too late: T5's main looks up the vocabulary before.
  """
  import seqio

  host_names = seqio.MixtureRegistry.names

  def names() -> Any:
    register()
    return host_names()

  seqio.MixtureRegistry.names = names


def each_run_inside(
  context: Callable[[str, str | None], AbstractContextManager[dict[str, Any]]],
) -> None:
  """Makes T5's main start each run inside `context(model_dir, tpu)`.

  The run gets the arguments that the context yields. T5 has no hook for this;
  gin's finalize hooks run in every program that reads the gin files. Only T5's
  main, which must already be imported, gets the wrapped `utils.run`: other code
  looks up gin bindings by the original one.
  """
  from mesh_tensorflow.transformer import utils

  def run(*, model_dir: str, tpu: str | None, **more: Any) -> None:
    with context(model_dir, tpu) as arguments:
      utils.run(**{'tpu': tpu, **more, **arguments})

  wrapped = types.SimpleNamespace(**{**vars(utils), 'run': run})
  _replace_in_main('utils', utils, wrapped)


def _replace_in_main(name: str, module: Any, replacement: Any) -> None:
  """Replaces a module that T5's main uses; under `python -m`, `__main__`."""
  for main in ('t5.models.mesh_transformer_main', '__main__'):
    importing = sys.modules.get(main)
    if getattr(importing, name, None) is module:
      vars(importing)[name] = replacement


class _Changed:
  """A function of the host whose results are changed, one after the other.

  Thus its name is replaced once, whoever has to do with its results.

  Attributes:
    changes: functions of the result that return another one, or the same.
  """

  def __init__(self, function: Callable[..., Any]) -> None:
    self._function = function
    self.changes: list[Callable[[Any], Any]] = []

  def __call__(self, *args: Any, **kwargs: Any) -> Any:
    result = self._function(*args, **kwargs)
    for change in self.changes:
      result = change(result)
    return result


def _changes_of(name: str) -> list[Callable[[Any], Any]]:
  """Returns what changes the results of a function of Mesh-TF's `utils`."""
  from mesh_tensorflow.transformer import utils

  if not isinstance(vars(utils)[name], _Changed):
    vars(utils)[name] = _Changed(vars(utils)[name])
  return vars(utils)[name].changes


def change_each_estimator(change: Callable[[Any], Any]) -> None:
  """Passes each estimator that T5 makes to a function, for good.

  `utils.run` has no setting for what its estimator does.
  """
  _changes_of('get_estimator').append(change)


@contextlib.contextmanager
def each_estimator_changed_by(change: Callable[[Any], Any]) -> Iterator[None]:
  """Passes each estimator to a function, as long as the context is active."""
  changes = _changes_of('get_estimator')
  changes.append(change)
  try:
    yield
  finally:
    changes.remove(change)


def change_lines_read(change: Callable[[list[str]], list[str]]) -> None:
  """Passes the lines of each text file that T5 decodes to a function."""
  _changes_of('get_inputs_from_file').append(change)


def leave_out_byte_order_marks() -> None:
  """Leaves the mark out of the first line of text files that T5's main reads.

  The host would take it for a part of the text.
  """

  def without_mark(lines: list[str]) -> list[str]:
    return [line.removeprefix('\ufeff') for line in lines[:1]] + lines[1:]

  change_lines_read(without_mark)


def types_of_gin(are_taken: Callable[[], bool]) -> None:
  """Keeps T5's main from computing in float32, as it does without a TPU.

  Args:
    are_taken: whether the run's types are those that gin binds.
  """
  import gin

  def bind(name: str, value: Any) -> None:
    if 'get_variable_dtype' not in name or not are_taken():
      gin.bind_parameter(name, value)

  own = types.SimpleNamespace(**{**vars(gin), 'bind_parameter': bind})
  _replace_in_main('gin', gin, own)


def model_functions_made_by(
  make: Callable[..., Any],
) -> AbstractContextManager[Any]:
  """Replaces the function that makes the model function of an estimator.

  `utils.run` has no setting for it.
  """
  from mesh_tensorflow.transformer import utils

  return mock.patch.object(utils, 'tpu_estimator_model_fn', make)


@contextlib.contextmanager
def tpu_mesh_replaced(
  make_mesh: Callable[..., Any],
  collectives: types.ModuleType,
  while_loop: Callable[..., Any],
) -> Iterator[None]:
  """Makes the host's model function build for a mesh other than a TPU's.

  The function names the classes and functions that it uses, as if there were no
  others.

  Args:
    make_mesh: called in place of `SimdMeshImpl`; its devices must already be
      in the order of the mesh.
    collectives: what cores exchange, in place of TensorFlow's `tpu_ops`.
    while_loop: in place of `tf.while_loop`.
  """
  import mesh_tensorflow as mtf
  import tensorflow.compat.v1 as tf
  from mesh_tensorflow import simd_mesh_impl

  used_by_model_fn = types.SimpleNamespace(
    SimdMeshImpl=make_mesh,
    auto_logical_to_physical_tpu=lambda *_, **__: None,
  )
  with (
    mock.patch.object(mtf, 'simd_mesh_impl', used_by_model_fn),
    mock.patch.object(simd_mesh_impl, 'tpu_ops', collectives),
    mock.patch.object(tf, 'while_loop', while_loop),
  ):
    yield


def evaluate_with(**functions: Callable[..., Any]) -> None:
  """Replaces T5's evaluation functions, since it has no hook for results."""
  from mesh_tensorflow.transformer import utils

  vars(utils).update(functions)


def replace_methods(estimator: Any, **methods: Callable[..., Any]) -> None:
  """Replaces methods of one estimator, which has no hook for progress.

  The host makes an estimator for each run and calls its methods itself.
  """
  vars(estimator).update(methods)


def before_training(
  estimator: Any, prepare: Callable[[int], list[Any]]
) -> None:
  """Calls `prepare(max_steps)` before an estimator trains.

  The hooks that it returns are used as well. What was added first is called
  first; the method is replaced once.
  """
  train = estimator.train
  if not isinstance(train, _Train):
    train = _Train(train)
    replace_methods(estimator, train=train)
  train.preparations.append(prepare)


class _Train:
  """The method `train` of an estimator, and what comes before it."""

  def __init__(self, train: Callable[..., Any]) -> None:
    self._train = train
    self.preparations: list[Callable[[int], list[Any]]] = []

  def __call__(self, *, max_steps: int, hooks: Any = (), **more: Any) -> Any:
    hooks = [*(hooks or ())]
    for prepare in self.preparations:
      hooks += prepare(max_steps)
    return self._train(max_steps=max_steps, hooks=hooks, **more)


def set_seed(estimator: Any, seed: int) -> None:
  """Sets the seed of an estimator, which has no setter for it."""
  estimator._config = estimator.config.replace(tf_random_seed=seed)


def calls_computed_by(
  equivalent: Callable[[Any], Any], host: Any
) -> AbstractContextManager[Any]:
  """Lets equivalents compute the calls of the layers of one of T5's classes.

  T5's layers do not hand out their attention weights. Subclasses of the class
  still compute their own calls.

  Args:
    equivalent: returns the equivalent of a layer.
    host: the class.
  """
  call_host = host.call

  def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
    if type(layer) is host:
      return equivalent(layer).call(*args, **kwargs)
    return call_host(layer, *args, **kwargs)

  return mock.patch.object(host, 'call', call)


def examples_counted_by(
  count: Callable[[Any], float],
) -> AbstractContextManager[Any]:
  """Makes seqio compute the rates of mixtures from our counts of examples.

  seqio would download a data set to count its examples.

  Args:
    count: returns the number of training examples of a task.
  """
  import seqio

  def num_input_examples(task: Any, _split: str) -> float:
    return count(task)

  return mock.patch.object(seqio.Task, 'num_input_examples', num_input_examples)


def keep_graph_from_events(folder: str) -> None:
  """Keeps the graph out of the event files that hooks write to a folder.

  Hooks share one writer per folder. TensorFlow would create it with the first
  hook's graph, written twice: as a graph and as a meta graph.
  """
  import tensorflow.compat.v1 as tf

  cache = tf.summary.FileWriterCache
  with cache._lock:
    if folder not in cache._cache:
      cache._cache[folder] = tf.summary.FileWriter(folder)


@contextlib.contextmanager
def loss_denominators_recorded() -> Iterator[dict[Any, float]]:
  """Yields what the host divides losses by, by model, while it is active."""
  from mesh_tensorflow.transformer.transformer import Unitransformer

  recorded: dict[Any, float] = {}
  host_denominator = Unitransformer.loss_denominator

  def loss_denominator(model: Any, *args: Any) -> float:
    recorded[model] = host_denominator(model, *args)
    return recorded[model]

  with mock.patch.object(Unitransformer, 'loss_denominator', loss_denominator):
    yield recorded


def savers_are(saver: type) -> AbstractContextManager[Any]:
  """Makes the host save with our class; it has no setting for this."""
  import tensorflow.compat.v1 as tf

  return mock.patch.object(tf.train, 'CheckpointSaverHook', saver)


def step_counted_last() -> AbstractContextManager[Any]:
  """Increments the global step only after everything in the step has read it.

  The host does not order the increment after the other updates of a step: under
  load, Adafactor's decay rate and the learning rate schedule sometimes read the
  number of the next step.
  """
  import tensorflow.compat.v1 as tf

  assign_add = tf.assign_add

  def after_readers(ref: Any, *args: Any, **kwargs: Any) -> Any:
    readers = []
    # T5's own command uses ref variables, which have no handle.
    if ref is tf.train.get_global_step() and hasattr(ref, 'handle'):
      consumers = ref.handle.consumers()
      readers = [op for op in consumers if op.type == 'ReadVariableOp']
    with tf.control_dependencies(readers):
      return assign_add(ref, *args, **kwargs)

  return mock.patch.object(tf, 'assign_add', after_readers)


def random_by_step(
  step: Callable[[], Any],
) -> AbstractContextManager[Any]:
  """Makes random operations of placement meshes depend on seed and step.

  TensorFlow keeps random state in the session, not in checkpoints, so a resumed
  run would repeat the dropout of its first steps. Operations inside a loop
  (microbatches) stay stateful, so that iterations differ; operations on a TPU
  stay stateful, too.

  Args:
    step: returns the step number as a tensor.
  """
  import tensorflow.compat.v1 as tf
  from mesh_tensorflow.placement_mesh_impl import PlacementMeshImpl

  stateless = {
    tf.random.uniform: tf.random.stateless_uniform,
    tf.random.normal: tf.random.stateless_normal,
  }
  by_state = PlacementMeshImpl.random

  def by_step(self: Any, shape: Any, tf_fn: Any, kwargs: Any) -> Any:
    # TensorFlow has no public way to tell whether a loop is being built.
    if tf.get_default_graph()._get_control_flow_context():
      return by_state(self, shape, tf_fn, kwargs)

    def draw(shape: Any, seed: int, **kwargs: Any) -> Any:
      pair = tf.stack([tf.constant(seed, tf.int64), step()])
      return stateless[tf_fn](shape, pair, **kwargs)

    return by_state(self, shape, draw, kwargs)

  return mock.patch.object(PlacementMeshImpl, 'random', by_step)
