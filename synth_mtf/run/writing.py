"""Writes a checkpoint before the next step, or while the next steps run.

A session's step changes the variables that are written. A step on JAX's devices
changes those on the devices: the session has copies of them, which the next
checkpoint replaces. Only its number of the step goes on.
"""

from collections.abc import Callable, Collection, Mapping
from concurrent import futures
from typing import Any

import numpy.typing as npt
import tensorflow.compat.v1 as tf

from synth_mtf.pjrt.hosts import Hosts

Write = Callable[[tf.Session], None]
Values = Mapping[str, npt.NDArray[Any]]

# All operations run in the thread that writes: those of TensorFlow compute the
# steps, and there may be only one. The memory of GPUs is JAX's.
_CONFIG = tf.ConfigProto(
  inter_op_parallelism_threads=-1, device_count={'GPU': 0}
)


class Writing:
  """Writes each checkpoint before the next step.

  As a context, it ends once everything is written.
  """

  @property
  def is_busy(self) -> bool:
    """Whether a checkpoint is being written."""
    return False

  def __enter__(self) -> 'Writing':
    return self

  def __exit__(self, *_: Any) -> None:
    self.wait()

  def add_to_graph(self) -> None:
    """Adds operations to the default graph, which `start` needs."""

  def start(
    self, session: tf.Session, names: Collection[str], write: Write
  ) -> None:
    """Starts to write; nothing else may be being written.

    Args:
      session: has the values of the variables.
      names: the tensors that `write` fetches.
      write: writes the values that the variables have in a given session.
    """
    del names
    write(session)

  def check(self) -> None:
    """Raises the error of a checkpoint that could not be written."""

  def wait(self) -> None:
    """Waits until everything is written; raises an error as `check` does."""


class WritingBehind(Writing):
  """Writes a checkpoint in a thread, while the next steps run.

  It writes from a session of its own, which errors of a step do not close.
  """

  def __init__(self, hosts: Hosts) -> None:
    self._hosts = hosts
    self._thread = futures.ThreadPoolExecutor(1, 'checkpoint')
    self._task: futures.Future[None] | None = None

  @property
  def is_busy(self) -> bool:
    return self._task is not None and not self._task.done()

  def __exit__(self, *_: Any) -> None:
    with self._thread:
      self.wait()

  def add_to_graph(self) -> None:
    variables = tf.global_variables()
    names = [variable.op.name for variable in variables]
    self._taken: Values = {}
    self._copy: _Copy | None = None

    def take(*values: npt.NDArray[Any]) -> None:
      self._taken = dict(zip(names, values, strict=True))

    # These arrays are the memory of the variables, which takes no time. What is
    # assigned to a variable later gets memory of its own.
    self._take = tf.numpy_function(take, variables, [])

  def start(
    self, session: tf.Session, names: Collection[str], write: Write
  ) -> None:
    session.run(self._take)
    values, self._taken = self._taken, {}
    if self._copy is None:
      self._copy = _Copy(session.graph, names)
    self._task = self._thread.submit(self._write, self._copy, values, write)

  def check(self) -> None:
    if not self.is_busy:
      self.wait()

  def wait(self) -> None:
    task, self._task = self._task, None
    if task:
      task.result()

  def _write(self, copy: '_Copy', values: Values, write: Write) -> None:
    with self._hosts.unfinished, copy.session(values) as session:
      write(session)


class _Copy:
  """What some tensors of a graph depend on, in a graph of its own."""

  def __init__(self, graph: tf.Graph, names: Collection[str]) -> None:
    """Args: the graph, and the names of the tensors."""
    definition = tf.graph_util.extract_sub_graph(
      graph.as_graph_def(), [name.partition(':')[0] for name in names]
    )
    for node in definition.node:
      node.device = ''
      node.attr.pop('_class', None)  # what it shares a device with
    with tf.Graph().as_default() as self._graph:
      tf.import_graph_def(definition, name='')
      variables = [
        operation
        for operation in self._graph.get_operations()
        if operation.type == 'VarHandleOp'
      ]
      self._values = {
        variable.name: tf.placeholder(variable.get_attr('dtype'))
        for variable in variables
      }
      self._assign = [
        tf.raw_ops.AssignVariableOp(
          resource=variable.outputs[0], value=self._values[variable.name]
        )
        for variable in variables
      ]

  def session(self, values: Values) -> tf.Session:
    """Returns a session in which the variables have these values."""
    session = tf.Session(graph=self._graph, config=_CONFIG)
    feed = {value: values[name] for name, value in self._values.items()}
    session.run(self._assign, feed)
    return session
