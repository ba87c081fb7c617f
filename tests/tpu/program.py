"""The programs of `--tpu=local`, built on a CPU.

The graph is the one for TensorFlow's stream executor: T5's model function,
SimdMeshImpl and tpu.replicate, over the topology of a 2x2 slice. `tests/pjrt`
compares what programs compute: they have the same layers and layouts, and
our code asks a mesh for nothing that depends on the order of its cores.
"""

import collections
import contextlib
import dataclasses
import functools
import itertools
import random
import types
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import t5.models.mesh_transformer  # noqa: F401 (registers gin names)
import tensorflow.compat.v1 as tf
from absl import flags
from tensorflow.python.compiler.xla import xla
from tensorflow.python.framework import kernels
from tensorflow.python.tpu import (
  device_assignment as assignments,
  topology as topologies,
  tpu,
)

from synth_mtf.host import tpu_runtime
from synth_mtf.pjrt import lowering
from tests.pjrt.setting import Setting

# Operations that XLA supports on a TPU but not on a CPU.
_TPU_OPS = {
  *('AllToAll', 'CollectivePermute', 'CrossReplicaSum'),
  *('TPUReplicateMetadata', 'TPUReplicatedInput', 'TPUReplicatedOutput'),
  # Loops, which XLA's front end rewrites.
  *('Enter', 'Exit', 'LoopCond', 'Merge', 'NextIteration', 'Switch'),
}
# XLA evaluates it while it compiles: its arguments are constant shapes.
_FOLDED = {'BroadcastGradientArgs'}
_FORBIDDEN = (tf.float64, tf.complex128, tf.string)
_HOST = '/job:worker/task:0/device:CPU:0'
_CHIPS = 2, 2


@dataclasses.dataclass(frozen=True)
class Program:
  """A program for TPU cores."""

  graph: tf.Graph
  spec: Any  # the result of the host's model function

  @property
  def operations(self) -> list[tf.Operation]:
    operations = self.graph.get_operations()
    return [op for op in operations if '_tpu_replicate' in op.node_def.attr]

  @property
  def duplication(self) -> float:
    """How often the mesh computes each product on average; 1 is ideal."""
    total: collections.Counter[str] = collections.Counter()
    lowered = lowering.host_lowering(self.spec)
    for key, value in lowered._counters:  # noqa: SLF001  the host hides them
      total[key] += value
    return total['einsum'] / total['einsum_unique']

  def faults(self) -> list[str]:
    return sorted({x for op in self.operations for x in faults_of(op)})


def build(setting: Setting, cores: int = 2) -> Program:
  """Builds a program for a slice with so many logical cores a chip."""
  if not flags.FLAGS.is_parsed():
    flags.FLAGS.mark_as_parsed()  # the host reads them
  setting.parse()
  width, height = _CHIPS
  replicas = width * height * cores
  assignment = assignments.device_assignment(
    topologies.Topology(
      mesh_shape=[width, height, 1, cores],
      device_coordinates=np.array(
        [[*itertools.product(range(width), range(height), [0], range(cores))]],
        np.int32,
      ),
    ),
    computation_shape=[1, 1, 1, 1],
    num_replicas=replicas,
  )
  context = types.SimpleNamespace(
    num_hosts=1,
    num_replicas=replicas,
    device_assignment=assignment,
    tpu_host_placement_function=lambda host_id: _HOST,
  )
  shapes = setting.shapes()
  specs = []
  with tf.Graph().as_default() as graph:
    random.seed(1)  # Mesh-TensorFlow seeds its operations from it
    tf.train.create_global_step()
    model_fn = setting.model_fn()
    with tf.device(_HOST):
      inputs = [
        tf.placeholder(tf.int32, shape, name=f'feature_{name}')
        for name, shape in shapes.items()
      ]

    def computation(*values: tf.Tensor) -> Any:
      features = dict(zip(shapes, values, strict=True))
      spec = model_fn(features, None, setting.mode, {'context': context})
      specs.append(spec)
      with tf.control_dependencies(lowering.updates(spec)):
        return [tf.identity(x) for x in lowering.results(spec)]

    with tf.variable_scope('', use_resource=True):
      tpu.replicate(
        computation,
        inputs=[list(inputs) for _ in range(replicas)],
        device_assignment=assignment,
      )
  return Program(graph, specs[-1])


def faults_of(op: tf.Operation) -> Iterator[str]:
  for output in op.outputs:
    if output.dtype == tf.resource:
      continue
    if not output.shape.is_fully_defined() and op.type not in _FOLDED:
      yield f'{op.type}: shape {output.shape} is not static ({op.name})'
    if output.dtype.base_dtype in _FORBIDDEN:
      yield f'{op.type}: {output.dtype.name} ({op.name})'
  if op.type not in _TPU_OPS:
    attributes = op.node_def.attr
    # A value has one type or a list of them.
    if not any(
      all(
        {attributes[n].type, *attributes[n].list.type} <= types | {0}
        for n, types in kernel.items()
        if n in attributes
      )
      for kernel in _xla_kernels()[op.type]
    ):
      yield f'{op.type}: no XLA kernel for its types ({op.name})'


@functools.cache
def _xla_kernels() -> Mapping[str, list[dict[str, set[int]]]]:
  """Operations with an XLA kernel, and the types that each kernel takes.

  A TensorFlow for TPUs lists the kernels of TPUs. Others have those of CPUs.
  """
  device = 'XLA_TPU_JIT' if tpu_runtime.has_runtime() else 'XLA_CPU_JIT'
  # XLA registers its kernels when it compiles for the first time, even if it
  # then finds no compiler for CPUs, as in a TensorFlow for TPUs.
  with (
    contextlib.suppress(tf.errors.NotFoundError),
    tf.Graph().as_default(),
    tf.Session() as session,
  ):
    session.run(xla.compile(lambda x: x + 1.0, [tf.ones([2])]))
  found = collections.defaultdict(list)
  for kernel in kernels.get_all_registered_kernels().kernel:
    if kernel.device_type == device:
      found[kernel.op].append(
        {c.name: set(c.allowed_values.list.type) for c in kernel.constraint}
      )
  return found
