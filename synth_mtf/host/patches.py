"""Every change that we make to the host, each with its reason.

No file of the host is changed. This module imports without TensorFlow, since
`prepare_host` comes before the host's own imports.
"""

import contextlib
import importlib.util
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, Optional


def prepare_host() -> None:
  """Makes `import mesh_tensorflow` and `import t5.models` work.

  Call it before either is imported; calling it again is harmless.
  """
  # `t5.models` imports HfPyTorchModel unconditionally, and with it torch and
  # transformers, which training in Mesh-TensorFlow never uses.
  model = 't5.models.hf_model'
  if model not in sys.modules and not importlib.util.find_spec('torch'):
    sys.modules[model] = types.ModuleType(model, 'Stands in for torch models.')
    vars(sys.modules[model])['HfPyTorchModel'] = None

  # TensorFlow 2.14 moved a function that mesh_tensorflow looks for in `ops`
  # (github.com/tensorflow/mesh, issue 396).
  from tensorflow.python.framework import ops, tensor_conversion_registry

  name = 'register_tensor_conversion_function'
  if not hasattr(ops, name):
    setattr(ops, name, getattr(tensor_conversion_registry, name))


def find_packaged_gin_files() -> None:
  """Has gin take `runs/x.gin` for a packaged file only if there is one.

  gin ends in a TypeError if a folder `runs` without an `__init__.py` is on
  sys.path, such as one in the working folder. Here that counts as "not found".
  """
  import gin
  from gin import resource_reader as packages

  def is_packaged(path: str) -> bool:
    try:
      return packages.system_path_file_exists(path)
    except TypeError:
      return False

  gin.config._FILE_READERS[:] = [
    (read, is_packaged if read is packages.system_path_reader else exists)
    for read, exists in gin.config._FILE_READERS
  ]


def before_each_run(check: Callable[[str, Optional[str]], None]) -> None:
  """Has T5's main call `check(model_dir, tpu)` before it starts a run.

  T5 has no hook there. gin has one (finalize), but calls it in any program that
  reads the gin files. Only T5's main, which must have been imported, gets
  another `utils.run`: elsewhere the function stays the key to its gin bindings.
  """
  from mesh_tensorflow.transformer import utils

  def run(*, model_dir: str, tpu: Optional[str], **more: Any) -> None:
    check(model_dir, tpu)
    utils.run(model_dir=model_dir, tpu=tpu, **more)

  checked = types.SimpleNamespace(**{**vars(utils), 'run': run})
  # Under `python -m`, it is `__main__`.
  for name in ('t5.models.mesh_transformer_main', '__main__'):
    module = sys.modules.get(name)
    if getattr(module, 'utils', None) is utils:
      vars(module)['utils'] = checked


def evaluate_with(
  get_estimator: Callable[..., Any],
  eval_model: Callable[..., None],
  write_lines_to_file: Callable[..., None],
) -> None:
  """Has T5 evaluate by functions of ours, since it has no hook for results."""
  from mesh_tensorflow.transformer import utils

  utils.get_estimator = get_estimator
  utils.eval_model = eval_model
  utils.write_lines_to_file = write_lines_to_file


def savers_are(saver: type) -> contextlib.AbstractContextManager[None]:
  """Has the host save with a class of ours; it offers no choice."""
  import tensorflow.compat.v1 as tf

  return _replaced(tf.train, 'CheckpointSaverHook', saver)


def step_counted_last() -> contextlib.AbstractContextManager[None]:
  """Has a step counted once everything that depends on its number has read it.

  The host adds one to the global step beside the updates of a step, in no order
  with them: under load, Adafactor's decay rate and the schedule of the learning
  rate sometimes read the number of the next step.
  """
  import tensorflow.compat.v1 as tf

  assign_add = tf.assign_add

  def after_readers(ref: Any, *args: Any, **kwargs: Any) -> Any:
    readers = []
    # The stock command's variables have no handle.
    if ref is tf.train.get_global_step() and hasattr(ref, 'handle'):
      consumers = ref.handle.consumers()
      readers = [op for op in consumers if op.type == 'ReadVariableOp']
    with tf.control_dependencies(readers):
      return assign_add(ref, *args, **kwargs)

  return _replaced(tf, 'assign_add', after_readers)


def random_by_step(
  step: Callable[[], Any],
) -> contextlib.AbstractContextManager[None]:
  """Makes random operations of placement meshes functions of seed and step.

  TensorFlow's keep their state in the session and no checkpoint holds it: a
  resumed run would repeat the dropout of its first steps. Operations inside a
  loop (microbatches) keep their state, which tells the rounds of the loop
  apart; so do those on a TPU.

  Args:
    step: returns the tensor of the step's number.
  """
  import tensorflow.compat.v1 as tf
  from mesh_tensorflow.placement_mesh_impl import PlacementMeshImpl

  stateless = {
    tf.random.uniform: tf.random.stateless_uniform,
    tf.random.normal: tf.random.stateless_normal,
  }
  by_state = PlacementMeshImpl.random

  def by_step(self: Any, shape: Any, tf_fn: Any, kwargs: Any) -> Any:
    # TensorFlow has no public way to ask whether it builds a loop.
    if tf.get_default_graph()._get_control_flow_context():
      return by_state(self, shape, tf_fn, kwargs)

    def draw(shape: Any, seed: int, **kwargs: Any) -> Any:
      pair = tf.stack([tf.constant(seed, tf.int64), step()])
      return stateless[tf_fn](shape, pair, **kwargs)

    return by_state(self, shape, draw, kwargs)

  return _replaced(PlacementMeshImpl, 'random', by_step)


@contextlib.contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
  original = getattr(owner, name)
  setattr(owner, name, value)
  try:
    yield
  finally:
    setattr(owner, name, original)
