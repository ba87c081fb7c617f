"""A part of TensorFlow's graph as one XLA program for all devices."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy.typing as npt
import tensorflow as tf2
import tensorflow.compat.v1 as tf
from tensorflow.compiler.xla.service import hlo_pb2
from tensorflow.python.eager import context

from synth_mtf.errors import UserError
from synth_mtf.host import model as models
from synth_mtf.host.explanations import MEMORY_ADVICE
from synth_mtf.pjrt import compiler
from synth_mtf.pjrt.placement import Devices

Array = npt.NDArray[Any]
_ASSIGNMENTS = (
  'AssignVariableOp',
  'AssignAddVariableOp',
  'AssignSubVariableOp',
)


@dataclasses.dataclass(frozen=True)
class Lowered:
  """An XLA program and the order of what it takes and returns.

  It takes inputs and variables, and returns results and then the new values of
  the variables that it assigns.
  """

  inputs: list[str]
  variables: list[str]
  assigned: list[str]
  results: int
  hlo: bytes  # a serialized HloModule


def lower(
  graph: tf.Graph, fetches: Sequence[tf.Tensor], updates: Sequence[tf.Operation]
) -> Lowered:
  """Lets XLA translate what computes tensors and runs updates.

  Placeholders become the program's inputs.
  """
  definition = tf.graph_util.extract_sub_graph(
    graph.as_graph_def(),
    [*(x.op.name for x in fetches), *(op.name for op in updates)],
  )
  kinds: dict[str, list[tf.NodeDef]] = {}
  for node in definition.node:
    node.device = ''
    node.attr.pop('_class', None)
    kinds.setdefault(node.op, []).append(node)
  placeholders = kinds.get('Placeholder', [])
  handles = kinds.get('VarHandleOp', [])
  assigned = {
    node.input[0] for kind in _ASSIGNMENTS for node in kinds.get(kind, [])
  }
  body = tf.GraphDef(versions=definition.versions, library=definition.library)
  body.node.extend(
    node
    for node in definition.node
    if node.op not in ('Placeholder', 'VarHandleOp')
  )
  with context.eager_mode(), tf2.device('CPU:0'):
    for function in definition.library.function:  # the bodies of loops
      if not context.context().has_function(function.signature.name):
        context.context().add_function_def(function)
    variables = {
      node.name: tf2.Variable(
        tf2.zeros(
          [d.size for d in node.attr['shape'].shape.dim],
          node.attr['dtype'].type,
        )
      )
      for node in handles
    }

    def run(*values: tf.Tensor) -> list[tf.Tensor]:
      capture = tf.get_default_graph().capture
      bound = {
        node.name: value
        for node, value in zip(placeholders, values, strict=True)
      }
      bound |= {name: capture(v.handle) for name, v in variables.items()}
      returned = tf2.graph_util.import_graph_def(
        body,
        input_map={f'{name}:0': value for name, value in bound.items()},
        return_elements=[
          *(x.name for x in fetches),
          *(op.name for op in updates),
        ],
        name='',
      )
      with tf2.control_dependencies(returned[len(fetches) :]):
        return [tf2.identity(x) for x in returned[: len(fetches)]]

    values = [
      tf2.zeros(
        [d.size for d in node.attr['shape'].shape.dim], node.attr['dtype'].type
      )
      for node in placeholders
    ]
    function = tf2.function(run, jit_compile=True, autograph=False)
    names = {id(v.handle): name for name, v in variables.items()}
    concrete = function.get_concrete_function(*values)
    captured = [names[id(given)] for given, _ in concrete.graph.captures]
    try:
      translate = function.experimental_get_compiler_ir(*values)
      hlo = translate(stage='hlo_serialized')
    except (ValueError, tf.errors.OpError) as error:
      raise UserError(not_translated(str(error))) from error
    hlo = without_copies(hlo)
  return Lowered(
    [node.name for node in placeholders],
    captured,
    [name for name in captured if name in assigned],
    len(fetches),
    hlo,
  )


def not_translated(message: str) -> str:
  """Explains that XLA has no form of an operation, and where it belongs."""
  nodes = re.findall(r'\{\{node ([^}]+)\}\}', message)
  layers = {
    match.group()
    for node in nodes
    if (match := re.match(r'.*?layer_\d+/[^/]+', node))
  }
  names = sorted(layers or {*nodes})
  where = f' of {", ".join(names)}' if names else ''
  first_line = message.strip().splitlines()[0]
  settings = [f'\n  {setting}' for setting in models.settings_of(layers)]
  advice = 'the settings of this layer in gin, or run without --device.'
  if settings:
    advice = f'what gin sets there, or run without --device:{"".join(settings)}'
  return (
    f'XLA cannot compile an operation{where}: {first_line}\nChange {advice}'
  )


def check_memory(needed: int, device: jax.Device) -> None:
  """Refuses a program that does not fit, if the device tells its memory.

  Args:
    needed: bytes on each device, by the compiler's count.
    device: one of them.
  """
  limit = (device.memory_stats() or {}).get('bytes_limit', 0)
  if limit and needed > limit:
    raise UserError(
      f'out of memory: the program takes {needed / 1e9:.1f} GB on each device '
      f'({device.device_kind}), which has {limit / 1e9:.1f} GB.\n'
      f'{MEMORY_ADVICE}'
    )


def without_copies(hlo: bytes) -> bytes:
  """Replaces copies, which StableHLO lacks, with reshapes to the same shape.

  JAX's plugins for GPUs and TPUs take only StableHLO.

  Args:
    hlo: a serialized HloModule.
  """
  module = hlo_pb2.HloModuleProto.FromString(hlo)
  for computation in module.computations:
    for instruction in computation.instructions:
      if instruction.opcode == 'copy':
        instruction.opcode = 'reshape'
  return module.SerializeToString(deterministic=True)


class Executable:
  """A program compiled for devices."""

  def __init__(self, lowered: Lowered, devices: Devices) -> None:
    self._lowered = lowered
    self._devices = devices
    self._makers: list[Any] = []  # of what it returns
    self._executable = compiler.compile_hlo(lowered.hlo, devices.devices)
    check_memory(self.memory().needed, devices.devices[devices.local[0]])

  def memory(self) -> compiler.Memory:
    return compiler.memory_of(self._executable)

  def __call__(
    self, inputs: Mapping[str, jax.Array], variables: dict[str, jax.Array]
  ) -> list[list[jax.Array]]:
    """Starts the program, and replaces the variables that it assigns.

    Returns the results of each device, which need not be there yet. The memory
    of the old values is used again.
    """
    lowered = self._lowered
    if not self._makers:
      self._makers = [
        *(list for _ in range(lowered.results)),
        *(self._devices.joining(variables[n]) for n in lowered.assigned),
      ]
    returned = self._executable.execute_sharded(
      [
        *(inputs[name] for name in lowered.inputs),
        *(variables[name] for name in lowered.variables),
      ]
    ).consume_with_handlers(self._makers)
    new = returned[lowered.results :]
    variables.update(zip(lowered.assigned, new, strict=True))
    return returned[: lowered.results]
