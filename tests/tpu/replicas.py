"""Executes the program of 8 TPU cores on 8 XLA:CPU replicas.

    python -m tests.tpu.replicas VARIANT MESH [VARIANT MESH ...]

prints a line of JSON for each: the losses of three SGD steps on each core, and
those of one device. The program is the one that `program.build` makes for a
TPU; its sums across cores become all-reduce instructions of XLA.
"""

import json
import os
import random
import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

if __name__ == '__main__':
  os.environ['XLA_FLAGS'] = '--xla_force_host_platform_device_count=8'
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')

from synth_mtf.host import patches

patches.prepare_host()

import jax
import mesh_tensorflow as mtf
import numpy as np
import numpy.typing as npt
import tensorflow as tf2
import tensorflow.compat.v1 as tf
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from synth_mtf.pjrt.program import compile_hlo, without_copies
from tests.tpu import program
from tests.tpu.program import CORES, Setting

STEPS = 3
Values = Mapping[str, npt.NDArray[Any]]
# The version of XlaCallModule that this TensorFlow accepts.
_CALL_MODULE_VERSION = 2 if tf.__version__ < '2.15' else 5
_TYPES = {tf.float32: 'f32', tf.bfloat16: 'bf16', tf.int32: 'i32'}


def setting(variant: str, mesh: str) -> Setting:
  """Three steps of SGD without dropout, which differs between meshes."""
  return Setting(
    variant,
    mesh=mesh,
    size=program.TINY,
    activations='float32',
    learning_rate=0.3,
    bindings=['dropout_rate = 0.0'],
  )


def on_replicas(built: program.Program) -> tuple[npt.NDArray[Any], Values]:
  """Returns losses, [steps, cores], and the initial variables, by name."""
  initial, masters = initial_values(built)
  core = CoreProgram(built)
  values, captured, hlo = core.lower(initial, built.features)
  devices = jax.devices('cpu')[:CORES]
  compiled = compile_hlo(hlo, devices)
  arguments = [_shard([value] * CORES, devices) for value in values]
  state = [
    _shard([initial[c] for c in core.variables[h]], devices) for h in captured
  ]
  assigned = core.assigned(captured)
  losses = []
  for _ in range(STEPS):
    results = compiled.execute_sharded(arguments + state)
    loss, *updated = results.disassemble_into_single_device_arrays()
    losses.append([float(np.asarray(value)) for value in loss])
    assert len(updated) == len(assigned)
    for i, new in zip(assigned, updated, strict=True):
      state[i] = jax.make_array_from_single_device_arrays(
        state[i].shape, state[i].sharding, new
      )
  return np.array(losses), masters


def on_one_device(setting_: Setting, masters: Values) -> list[float]:
  """Runs the same steps from the same variables without a mesh."""
  setting_.parse()
  features = setting_.features()
  with tf.Graph().as_default(), tf.variable_scope('', use_resource=True):
    tf.train.create_global_step()
    spec = setting_.model_fn()(
      {name: tf.constant(value) for name, value in features.items()},
      None,
      'train',
      {},
    )
    hooks = spec.training_hooks
    (hook,) = [h for h in hooks if isinstance(h, mtf.MtfRestoreHook)]
    hook.begin()
    with tf.Session() as session:
      session.run(tf.global_variables_initializer())
      for variable in tf.global_variables():
        variable.load(masters[variable.name], session)
      hook.after_create_session(session, None)
      fetches = [spec.loss, spec.train_op]
      return [float(session.run(fetches)[0]) for _ in range(STEPS)]


class CoreProgram:
  """The program of one core, as a graph of its own."""

  def __init__(self, built: program.Program) -> None:
    self._spec = built.spec
    graph = built.graph
    whole = tf.graph_util.extract_sub_graph(
      graph.as_graph_def(), [self._spec.loss.op.name, self._spec.train_op.name]
    )
    assert not whole.library.function, 'functions are not rewritten'
    # By the name of their input: handles and numbers, one for each core.
    self.variables: dict[str, list[str]] = {}
    self.features: dict[str, str] = {}
    self.core_numbers: dict[str, list[int]] = {}
    dropped = set()
    for node in whole.node:
      op = graph.get_operation_by_name(node.name)
      if node.op == 'TPUReplicatedInput':
        sources = [value.op for value in op.inputs]
        if op.outputs[0].dtype == tf.resource:
          self.variables[op.name] = [source.name for source in sources]
        elif sources[0].type == 'Placeholder':
          self.features[op.name] = sources[0].name[len('feature_') :]
        else:
          numbers = [int(tf.get_static_value(value)) for value in op.inputs]
          self.core_numbers[op.name] = numbers
        dropped.add(node.name)
      elif node.op in ('TPUReplicateMetadata', 'Placeholder', 'VarHandleOp'):
        dropped.add(node.name)
    split = {h for handles in self.variables.values() for h in handles}
    self.graph_def = tf.GraphDef(versions=whole.versions)
    for node in whole.node:
      if node.name not in dropped:
        self._add(node, graph, {f'^{name}' for name in dropped})
      elif node.op == 'VarHandleOp' and node.name not in split:
        self.variables[node.name] = [node.name] * CORES  # such as the step

  def _add(
    self, node: tf.NodeDef, graph: tf.Graph, dropped: Container[str]
  ) -> None:
    new = self.graph_def.node.add()
    new.CopyFrom(node)
    new.device = ''
    for name in list(new.attr):
      if name.startswith('_tpu') or name in ('_class', '_xla_inferred_shapes'):
        del new.attr[name]
    kept = [i for i in node.input if i not in dropped]
    del new.input[:]
    new.input.extend(kept)
    if node.op == 'CrossReplicaSum':
      _make_all_reduce(new, graph.get_operation_by_name(node.name))

  def assigned(self, captured: Sequence[str]) -> list[int]:
    """Which variables' new values the program returns after the loss."""
    names = {
      node.input[0]
      for node in self.graph_def.node
      if node.op.startswith('Assign') and node.op.endswith('VariableOp')
    }
    return [i for i, handle in enumerate(captured) if handle in names]

  def lower(
    self, initial: Values, features: Values
  ) -> tuple[list[npt.NDArray[Any]], list[str], bytes]:
    """Lets XLA translate the program.

    Returns the features, the inputs of the variables in the program's order,
    and a serialized HloModule without copies.
    """
    handles = sorted(self.variables)
    inputs = sorted(self.features)
    variables = {
      h: tf2.Variable(initial[self.variables[h][0]]) for h in handles
    }

    def run(*values: tf.Tensor) -> tf.Tensor:
      capture = tf.get_default_graph().capture
      bound = {f'{n}:0': v for n, v in zip(inputs, values, strict=True)}
      bound |= {f'{h}:0': capture(variables[h].handle) for h in handles}
      for name, numbers in self.core_numbers.items():
        bound[f'{name}:0'] = tf2.gather(
          tf2.constant(numbers, tf2.int32), gen_xla_ops.xla_replica_id()
        )
      loss, train_op = tf2.graph_util.import_graph_def(
        self.graph_def,
        input_map=bound,
        return_elements=[self._spec.loss.name, self._spec.train_op.name],
        name='',
      )
      with tf2.control_dependencies([train_op]):
        return tf2.identity(loss)

    values = [tf2.constant(features[self.features[n]]) for n in inputs]
    function = tf2.function(run, jit_compile=True, autograph=False)
    captured = [
      next(h for h in handles if variables[h].handle is external)
      for external, _ in function.get_concrete_function(*values).graph.captures
    ]
    hlo = function.experimental_get_compiler_ir(*values)(stage='hlo_serialized')
    return [value.numpy() for value in values], captured, without_copies(hlo)


def _make_all_reduce(node: tf.NodeDef, op: tf.Operation) -> None:
  """Replaces a CrossReplicaSum by XLA's all-reduce over the same groups."""
  x, groups = op.inputs[0], tf.get_static_value(op.inputs[1])
  element = _TYPES[x.dtype]
  tensor = 'x'.join([*map(str, x.shape.as_list()), element])
  rows, columns = np.shape(groups)
  module = f"""module @sum {{
    func.func public @main(%x: tensor<{tensor}>) -> tensor<{tensor}> {{
      %y = "stablehlo.all_reduce"(%x) ({{
        ^bb0(%a: tensor<{element}>, %b: tensor<{element}>):
          %c = stablehlo.add %a, %b : tensor<{element}>
          "stablehlo.return"(%c) : (tensor<{element}>) -> ()
      }}) {{replica_groups = dense<{np.array(groups).tolist()}>
            : tensor<{rows}x{columns}xi64>}}
        : (tensor<{tensor}>) -> tensor<{tensor}>
      return %y : tensor<{tensor}>
    }}
  }}"""
  kept = [node.input[0], *(i for i in node.input if i.startswith('^'))]
  del node.input[:]
  node.input.extend(kept)
  node.op = 'XlaCallModule'
  node.attr.clear()
  node.attr['version'].i = _CALL_MODULE_VERSION
  node.attr['module'].s = module.encode()
  node.attr['Sout'].list.shape.add().CopyFrom(x.shape.as_proto())
  node.attr['Tout'].list.type.append(x.dtype.as_datatype_enum)
  node.attr['Tin'].list.type.append(x.dtype.as_datatype_enum)
  node.attr['dim_args_spec'].list.SetInParent()


def _shard(
  values: Iterable[npt.ArrayLike], devices: Sequence[Any]
) -> jax.Array:
  """One array whose parts, of equal shapes, are on the devices."""
  parts = [np.asarray(value) for value in values]
  first, rest = parts[0].shape[:1], parts[0].shape[1:]
  return jax.make_array_from_single_device_arrays(
    (*(CORES * size for size in first), *rest),
    NamedSharding(
      Mesh(np.array(devices), ('core',)), PartitionSpec(*['core'] * len(first))
    ),
    [jax.device_put(v, d) for v, d in zip(parts, devices, strict=True)],
  )


def variables(built: program.Program) -> list[tf.Variable]:
  """The variables of a program, and the slices of each core."""
  with built.graph.as_default():
    return [*tf.global_variables(), *tf.get_collection('TPU_VAR')]


def zeros(built: program.Program) -> Values:
  """Variables for a program that is lowered only: their shapes matter."""
  return {
    v.handle.op.name: np.zeros(v.shape, v.dtype.as_numpy_dtype)
    for v in variables(built)
  }


def initial_values(built: program.Program) -> tuple[Values, Values]:
  """What each core's variables start from, by handle; masters by name."""
  found = variables(built)
  with built.graph.as_default():
    copy = built.lowering.copy_masters_to_slices()
    initialize = tf.group([v.initializer for v in found])
    reads = [v.read_value() for v in found]
  definition = tf.graph_util.extract_sub_graph(
    built.graph.as_graph_def(),
    [copy.name, initialize.name, *(r.op.name for r in reads)],
  )
  for node in definition.node:
    node.device = ''
  with tf.Graph().as_default():
    tf.import_graph_def(definition, name='')
    with tf.Session() as session:
      session.run(initialize.name)
      session.run(copy.name)
      values = session.run([r.name for r in reads])
  return (
    {v.handle.op.name: value for v, value in zip(found, values, strict=True)},
    {v.name: value for v, value in zip(found, values, strict=True)},
  )


def main(words: list[str]) -> None:
  jax.config.update('jax_enable_x64', True)
  tf.logging.set_verbosity(tf.logging.ERROR)
  for variant, mesh in zip(words[::2], words[1::2], strict=True):
    random.seed(1)
    losses, masters = on_replicas(program.build(setting(variant, mesh)))
    proof = {
      'variant': variant,
      'mesh': mesh,
      'replicas': losses.tolist(),
      'one device': on_one_device(setting(variant, ''), masters),
    }
    print(json.dumps(proof), flush=True)


if __name__ == '__main__':
  main(sys.argv[1:])
