"""The training, evaluation and inference programs of a TPU, built on a CPU.

The graph is the real one: T5's model function, SimdMeshImpl and tpu.replicate,
over the topology of a 2x2 slice with two cores a chip.
"""

import collections
import contextlib
import dataclasses
import functools
import itertools
import random
import tempfile
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import gin
import mesh_tensorflow as mtf
import numpy as np
import numpy.typing as npt
import t5.models.mesh_transformer  # noqa: F401 (registers gin names)
import tensorflow.compat.v1 as tf
from absl import flags
from mesh_tensorflow import optimize
from mesh_tensorflow.transformer import utils
from tensorflow.python.compiler.xla import xla
from tensorflow.python.framework import kernels
from tensorflow.python.tpu import (
  device_assignment as assignments,
  topology as topologies,
  tpu,
)

from synth_mtf.host import gin_files, tpu_runtime

CORES = 8
LAYOUT = (
  'ensemble:ensemble,batch:batch,d_ff:model,heads:model,vocab:model,'
  'experts:batch'
)


class Size(NamedTuple):
  d_model: int
  d_ff: int
  num_heads: int
  d_kv: int
  vocab: int
  batch: int
  inputs: int
  targets: int


# One block of each stack of T5 (Base), for programs that are only built.
BASE = Size(768, 3072, 12, 64, 32128, 32, 512, 114)
# For programs that are executed.
TINY = Size(16, 32, 4, 4, 64, 8, 16, 8)
# Some runs require one.
_ANY_CHECKPOINT = "utils.run.init_checkpoint = 'any'"


def shipped(run: str) -> tuple[Mapping[str, int], bool]:
  """The lengths of a file of gin/runs, and whether it packs its rows."""
  gin_files.parse([f'runs/{run}.gin'], [_ANY_CHECKPOINT])
  return (
    gin.query_parameter('utils.run.sequence_length'),
    gin.get_bindings('mesh_train_dataset_fn').get('pack', True),  # T5's own
  )


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


@dataclasses.dataclass(frozen=True)
class Setting:
  """A program to build."""

  variant: str | None  # None: T5 itself
  mode: str = 'train'  # or 'eval', 'infer'
  mesh: str = 'batch:4,model:2'
  packed: bool = False  # whether rows hold several sequences (train only)
  bindings: Sequence[str] = ()
  activations: str = 'bfloat16'
  learning_rate: float | None = None  # of plain SGD; None: Adafactor
  size: Size = BASE
  layout: str = LAYOUT
  run: str | None = None  # a file of gin/runs, for all other settings

  @property
  def lengths(self) -> dict[str, int]:
    return {'inputs': self.size.inputs, 'targets': self.size.targets}

  def parse(self) -> None:
    files = {'variants': self.variant, 'runs': self.run}
    gin_files.parse(
      ['sizes/tiny.gin', *(f'{f}/{n}.gin' for f, n in files.items() if n)],
      [
        _ANY_CHECKPOINT,
        *(f'{name} = {getattr(self.size, name)}' for name in Size._fields[:4]),
        'num_layers = 1',
        f'Unitransformer.max_length = {self.size.inputs}',
        f'Bitransformer.decode.max_decode_length = {self.size.targets}',
        f'mesh_train_dataset_fn.pack = {self.packed}',
        f"utils.get_variable_dtype.activation_dtype = '{self.activations}'",
        *self.bindings,
      ],
    )

  def model_fn(self) -> Callable[..., tf.estimator.EstimatorSpec]:
    """The host's model function for the setting that is bound in gin."""
    vocab = self.size.vocab
    mesh_shape = mtf.convert_to_shape(self.mesh)
    layout = mtf.convert_to_layout_rules(self.layout)
    settings = gin.get_bindings('utils.run', resolve_references=False)
    return utils.tpu_estimator_model_fn(
      'bitransformer',
      utils.build_model('bitransformer', vocab, vocab, layout, mesh_shape),
      types.SimpleNamespace(vocab_size=vocab),
      tempfile.gettempdir(),
      use_tpu='here in name only',
      mesh_shape=mesh_shape,
      layout_rules=layout,
      batch_size=self.size.batch,
      sequence_length=self.lengths,
      autostack=True,
      keep_checkpoint_max=1,
      save_checkpoints_steps=10**9,
      learning_rate_schedule=self.learning_rate or 0.01,
      optimizer=optimize.SgdOptimizer
      if self.learning_rate
      else optimize.AdafactorOptimizer,
      variable_filter=settings.get('variable_filter'),
      mesh_devices=[''],
    )

  def features(self) -> dict[str, npt.NDArray[np.int32]]:
    """Token ids, and segments where rows are packed."""
    rng = np.random.RandomState(0)
    features = {}
    for name, length in self.lengths.items():
      if self.mode == 'infer' and name == 'targets':
        continue
      shape = [self.size.batch, length]
      ids = rng.randint(2, self.size.vocab, shape).astype(np.int32)
      ids[:, -2:] = 0
      features[name] = ids
      if self.packed:
        at = np.arange(length, dtype=np.int32)
        segment = (1 + (at >= length // 2)) * (ids != 0)
        features[f'{name}_segmentation'] = segment.astype(np.int32)
        position = np.broadcast_to(at % (length // 2), shape)
        features[f'{name}_position'] = position
    return features


@dataclasses.dataclass(frozen=True)
class Program:
  """A program for TPU cores."""

  graph: tf.Graph
  spec: tf.estimator.EstimatorSpec  # the result of the host's model function
  features: dict[str, npt.NDArray[np.int32]]

  @property
  def lowering(self) -> mtf.Lowering:
    spec = self.spec
    kinds = spec.training_hooks, spec.evaluation_hooks, spec.prediction_hooks
    hooks = [hook for hooks in kinds for hook in hooks or ()]
    (hook,) = [h for h in hooks if isinstance(h, mtf.MtfRestoreHook)]
    return hook._lowering  # noqa: SLF001  the host hides it

  @property
  def operations(self) -> list[tf.Operation]:
    operations = self.graph.get_operations()
    return [op for op in operations if '_tpu_replicate' in op.node_def.attr]

  @property
  def duplication(self) -> float:
    """How often the mesh computes each product on average; 1 is ideal."""
    total: collections.Counter[str] = collections.Counter()
    for key, value in self.lowering._counters:  # noqa: SLF001  nor shows them
      total[key] += value
    return total['einsum'] / total['einsum_unique']

  def faults(self) -> list[str]:
    return sorted({x for op in self.operations for x in faults_of(op)})


def build(
  setting: Setting, cores: int = 2, chips: tuple[int, int] = (2, 2)
) -> Program:
  """Builds a program for a slice with so many logical cores a chip."""
  if not flags.FLAGS.is_parsed():
    flags.FLAGS.mark_as_parsed()  # the host reads them
  setting.parse()
  width, height = chips
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
  features = setting.features()
  specs = []
  with tf.Graph().as_default() as graph:
    tf.set_random_seed(1)
    random.seed(1)  # Mesh-TensorFlow seeds its operations from it
    tf.train.create_global_step()
    model_fn = setting.model_fn()
    names = sorted(features)
    with tf.device(_HOST):
      inputs = [
        tf.placeholder(tf.int32, features[n].shape, name=f'feature_{n}')
        for n in names
      ]

    def computation(*values: tf.Tensor) -> Any:
      spec = model_fn(
        dict(zip(names, values, strict=True)),
        None,
        setting.mode,
        {'context': context},
      )
      specs.append(spec)
      if setting.mode == 'train':
        with tf.control_dependencies([spec.train_op]):
          return tf.identity(spec.loss)
      if setting.mode == 'eval':
        return [spec.loss, *spec.eval_metrics[1]]
      return [spec.predictions[key] for key in sorted(spec.predictions)]

    with tf.variable_scope('', use_resource=True), _numbered_cores(replicas):
      tpu.replicate(
        computation,
        inputs=[list(inputs) for _ in range(replicas)],
        device_assignment=assignment,
      )
  return Program(graph, specs[-1], features)


@contextlib.contextmanager
def _numbered_cores(count: int) -> Iterator[None]:
  """For a single core, Mesh-TensorFlow's list of cores is a function."""
  module = mtf.simd_mesh_impl
  usual = module.auto_logical_to_physical_tpu
  if count == 1:
    module.auto_logical_to_physical_tpu = lambda *_, **__: [0]
  try:
    yield
  finally:
    module.auto_logical_to_physical_tpu = usual


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
