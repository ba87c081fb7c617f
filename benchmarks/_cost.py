"""What a step must do: its products, its bytes, and its largest tensor.

TensorFlow on a CPU runs one operation after another, each of which reads its
inputs and writes its outputs; a step takes at least the time of its products.
"""

import dataclasses
import string
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
  for op in _needed(step.fetches):
    # TensorFlow tells in no public way what is inside a loop.
    in_loop = op._get_control_flow_context() is not None  # noqa: SLF001
    times = step.repeats if in_loop else 1
    flops += times * _flops(op)
    if op.type not in _FREE:
      moved += times * sum(_bytes(t) for t in [*op.inputs, *op.outputs])
      tensors += op.outputs
  largest = max(tensors, key=_elements)
  return Cost(flops, moved, _elements(largest), largest.shape.as_list())


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


def _flops(op: tf.Operation) -> int:
  """2 x multiplications of a matrix product; 0 for anything else."""
  if op.type == 'MatMul':
    shape = op.inputs[0].shape.as_list()
    summed = shape[0] if op.get_attr('transpose_a') else shape[1]
    return 2 * _elements(op.outputs[0]) * summed
  if op.type in ('BatchMatMul', 'BatchMatMulV2'):
    summed = op.inputs[0].shape.as_list()[-2 if op.get_attr('adj_x') else -1]
    return 2 * _elements(op.outputs[0]) * summed
  if op.type == 'Einsum':
    terms = op.get_attr('equation').decode().split('->')[0].split(',')
    sizes: dict[str, int] = {}
    for term, x in zip(terms, op.inputs):
      letters = [c for c in term if c in string.ascii_letters]
      sizes.update(zip(letters, x.shape.as_list()))
    flops = 2
    for size in sizes.values():
      flops *= size
    return flops
  return 0


def _elements(tensor: tf.Tensor) -> int:
  if tensor.dtype == tf.resource or tensor.shape.rank is None:
    return 0
  return tensor.shape.num_elements() or 0


def _bytes(tensor: tf.Tensor) -> int:
  return _elements(tensor) * max(tensor.dtype.base_dtype.size or 0, 0)
