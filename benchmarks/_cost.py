"""What a step must do: its products, its bytes, and its largest tensor.

TensorFlow on a CPU runs one operation after another, each of which reads its
inputs and writes its outputs; a step takes at least the time of its products.
"""

import dataclasses
import math
import string
from collections.abc import Collection
from typing import Any

import tensorflow.compat.v1 as tf

from benchmarks._steps import Step

# Operations that move no data themselves.
_FREE = frozenset(
  {
    'Const',
    'Enter',
    'Exit',
    'ExpandDims',
    'Identity',
    'LoopCond',
    'Merge',
    'NextIteration',
    'NoOp',
    'ReadVariableOp',
    'Reshape',
    'Squeeze',
    'Switch',
    'VarHandleOp',
  }
)


@dataclasses.dataclass(frozen=True)
class Cost:
  """What a step must do.

  Attributes:
    flops: floating-point operations of its matrix products.
    bytes: how many its operations read and write.
    largest: elements of its largest tensor that is not a variable.
    largest_shape: the shape of that tensor.
  """

  flops: int
  bytes: int
  largest: int
  largest_shape: list[int]


def cost(step: Step) -> Cost:
  """Counts what has to run for the fetches of a step.

  The body of a decoding loop counts as often as it runs.
  """
  flops = moved = 0
  tensors = []
  ops = _needed(step.fetches)
  sizes = _Sizes(step.session, ops)
  for op in ops:
    # TensorFlow tells in no public way what is inside a loop.
    in_loop = op._get_control_flow_context() is not None  # noqa: SLF001
    times = step.repeats if in_loop else 1
    flops += times * _flops(op, sizes)
    if op.type not in _FREE:
      moved += times * sum(
        sizes.elements(t) * max(t.dtype.base_dtype.size or 0, 0)
        for t in [*op.inputs, *op.outputs]
      )
      tensors += op.outputs
  largest = max(tensors, key=sizes.elements)
  return Cost(flops, moved, sizes.elements(largest), sizes.of(largest))


def matrix_product(size: int) -> Step:
  """A square matrix product, with which the machine's rate is measured."""
  with tf.Graph().as_default():
    x = tf.Variable(tf.random.normal([size, size], seed=1))
    session = tf.Session()
    session.run(tf.global_variables_initializer())
    return Step(session, tf.matmul(x, x).op, 0)


def memory_stream(num_bytes: int) -> Step:
  """A sum of that many bytes, with which the rate of memory is measured."""
  with tf.Graph().as_default():
    x = tf.Variable(tf.ones([num_bytes // 4]))
    session = tf.Session()
    session.run(tf.global_variables_initializer())
    return Step(session, tf.reduce_sum(x), 0)


def _needed(fetches: Any) -> set[tf.Operation]:
  """All operations that the fetches depend on."""
  found: set[tf.Operation] = set()
  waiting = [getattr(f, 'op', f) for f in tf.nest.flatten(fetches)]
  while waiting:
    op = waiting.pop()
    if op not in found:
      found.add(op)
      waiting += [t.op for t in op.inputs] + list(op.control_inputs)
  return found


class _Sizes:
  """Shapes of tensors; those that only a run can tell are found by one."""

  def __init__(
    self, session: tf.Session, ops: Collection[tf.Operation]
  ) -> None:
    dead = _dead(session, ops)
    unknown = {
      t.name: t
      for op in ops
      for t in op.outputs
      if t.dtype.size and not t.shape.is_fully_defined()
      # What is inside a loop cannot be fetched.
      if op._get_control_flow_context() is None  # noqa: SLF001
      if t not in dead
    }
    self._dead = {t.name for t in dead}
    with session.graph.as_default():
      shapes = {name: tf.shape(t) for name, t in unknown.items()}
    self._found = session.run(shapes) if shapes else {}

  def of(self, tensor: tf.Tensor) -> list[int]:
    """A tensor's shape; [0] if there is none, or it cannot be known."""
    if tensor.name in self._dead:
      return [0]
    if tensor.name in self._found:
      return [int(n) for n in self._found[tensor.name]]
    if tensor.dtype == tf.resource or not tensor.shape.is_fully_defined():
      return [0]
    return [int(n) for n in tensor.shape]

  def elements(self, tensor: tf.Tensor) -> int:
    """How many it has; 0 if that cannot be known."""
    return math.prod(self.of(tensor))


def _dead(session: tf.Session, ops: Collection[tf.Operation]) -> set[tf.Tensor]:
  """What is on the other side of a switch, outside of loops."""
  switches = [
    op
    for op in ops
    if op.type == 'Switch'
    if op._get_control_flow_context() is None  # noqa: SLF001
  ]
  sides = session.run({op.name: op.inputs[1] for op in switches})
  waiting = [op.outputs[0 if sides[op.name] else 1] for op in switches]
  found: set[tf.Tensor] = set()
  while waiting:
    tensor = waiting.pop()
    found.add(tensor)
    for op in tensor.consumers():
      if op.type != 'Merge':
        waiting += [t for t in op.outputs if t not in found]
  return found


def _flops(op: tf.Operation, sizes: _Sizes) -> int:
  """2 x multiplications of a matrix product; 0 for anything else."""
  if op.type == 'MatMul':
    shape = sizes.of(op.inputs[0])
    summed = shape[0] if op.get_attr('transpose_a') else shape[1]
    return 2 * sizes.elements(op.outputs[0]) * summed
  if op.type in ('BatchMatMul', 'BatchMatMulV2'):
    summed = sizes.of(op.inputs[0])[-2 if op.get_attr('adj_x') else -1]
    return 2 * sizes.elements(op.outputs[0]) * summed
  if op.type == 'Einsum':
    terms = op.get_attr('equation').decode().split('->')[0].split(',')
    letters: dict[str, int] = {}
    for term, x in zip(terms, op.inputs):
      named = [c for c in term if c in string.ascii_letters]
      letters.update(zip(named, sizes.of(x)))
    return 2 * math.prod(letters.values())
  return 0
