"""Runs attention layers as the host would, with weights of our choice.

`parallel` calls layers on whole rows, `decode` token by token, `evaluate` runs
anything smaller. Each builds one graph and one session.
"""

import contextlib
import copy
import dataclasses
import math
import types
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mesh_tensorflow as mtf
import numpy as np
import numpy.typing as npt
import tensorflow.compat.v1 as tf
from mesh_tensorflow import placement_mesh_impl
from mesh_tensorflow.transformer import transformer

# Largest error, relative to the largest expected entry.
TOLERANCE = {'float32': 1e-5, 'bfloat16': 3e-2}

SCOPE = 'SyntheticAttention'

Array = npt.NDArray[Any]
MakeLayer = Callable[[], transformer.TransformerLayer]
# Returns the value of a variable, given its name and shape.
Initial = Callable[[str, Sequence[int]], Array]


@dataclasses.dataclass(frozen=True)
class Mesh:
  """A placement mesh on virtual CPU devices, as `utils.run` describes it."""

  shape: str = ''
  layout: str = ''
  tpu: bool = False  # whether the layers take it for a mesh of TPU cores

  @property
  def size(self) -> int:
    return mtf.convert_to_shape(self.shape).size

  def implementation(self) -> placement_mesh_impl.PlacementMeshImpl:
    devices = [f'cpu:{i}' for i in range(self.size)] if self.size > 1 else ['']
    return placement_mesh_impl.PlacementMeshImpl(
      mtf.convert_to_shape(self.shape),
      mtf.convert_to_layout_rules(self.layout),
      devices,
    )


ONE_DEVICE = Mesh()
TPU = Mesh(tpu=True)
# The host places variables on TPU meshes only.
_PLACER = types.SimpleNamespace(device_function=lambda op: '/cpu:0')


@dataclasses.dataclass(frozen=True)
class Encoded:
  """An encoder's rows: output [batch..., memory_length, d_model], segments."""

  output: Array
  sequence_id: Array


@dataclasses.dataclass(frozen=True)
class Stack:
  """The part of a T5 model that a layer is in, and how the host calls it."""

  name: str  # 'encoder', 'decoder' or 'transformer'
  autoregressive: bool = False
  has_encoder: bool = True  # False in a language model
  input_full_attention: bool = False  # True in a prefix language model
  mode: str = 'train'
  dtype: str = 'float32'  # of activations; variables are float32
  mesh: Mesh = ONE_DEVICE
  priority: Array | None = None  # [batch..., length], in a prefix LM
  ensemble: int = 0  # the number of models, if it is one
  beam: bool = False  # rows are [batch, beam, length], positions scalars
  encoded: Encoded | None = None  # without beams

  def model(self, d_model: int) -> transformer.Unitransformer:
    return transformer.Unitransformer(
      layer_stack=None,
      d_model=d_model,
      input_vocab_size=17,
      output_vocab_size=17 if self.autoregressive else None,
      autoregressive=self.autoregressive,
      max_length=512,
      positional_embedding=False,
      name=self.name,
      layout=self.mesh.layout or None,
      mesh_shape=self.mesh.shape or None,
      ensemble=self.ensemble or None,
      input_full_attention=self.input_full_attention,
    )


ENCODER = Stack('encoder')
DECODER = Stack('decoder', autoregressive=True)
LM = Stack('transformer', autoregressive=True, has_encoder=False)
PREFIX_LM = dataclasses.replace(LM, input_full_attention=True)


@dataclasses.dataclass
class Result:
  """What a graph computed.

  Gradients are those of sum(output * cotangent) and the losses, by variable
  name, 'x', and 'memory' if there is an encoder.
  """

  output: Array  # [batch..., length, d_model]
  weights: dict[str, Array]  # float32, by variable name
  gradients: dict[str, Array]
  trainable: list[str]  # names of the variables that a training step changes
  # Of all TensorFlow tensors but those for logits that span too much.
  shapes: list[tuple[int, ...]]
  losses: list[Array]  # what the layer added to the losses of the model

  def largest(self, *end: int) -> int:
    """Entries of the largest tensor whose shape ends like this."""
    return max(
      math.prod(s) for s in self.shapes if s[len(s) - len(end) :] == end
    )


def draw(name: str, shape: Sequence[int], scale: float = 0.5) -> Array:
  """Normal numbers that depend on the name alone, exact in float32."""
  rng = np.random.RandomState(zlib.crc32(name.encode()) % 2**31)
  return (scale * rng.standard_normal(shape)).astype(np.float32)


def host_context(
  mesh_object: mtf.Mesh,
  shape: Sequence[int],
  sequence_id: Array | None = None,
  stack: Stack = ENCODER,
  **changes: Any,
) -> transformer.Context:
  """The Context that the host makes for x, [batch..., length, d_model].

  Without sequence_id, [batch..., length], it is the host's int 1: no padding.
  Tokens are 1, and 0 at padding and where a decoder starts.
  """
  stack = dataclasses.replace(stack, **changes)
  dtype = tf.as_dtype(stack.dtype)
  names = ['outer_batch', 'batch', 'length'][-len(shape) + 1 :]
  if stack.beam:
    names = ['batch', 'beam', 'length']
  rows = [mtf.Dimension(n, s) for n, s in zip(names, shape, strict=False)]
  ids = 1 if stack.has_encoder else None
  if sequence_id is not None:
    ids = constant(mesh_object, sequence_id, rows)
  inputs = np.ones(shape[:-1]) if sequence_id is None else sequence_id != 0
  if stack.autoregressive:
    inputs = inputs * (np.arange(rows[-1].size) > 0)
  order = mtf.range(mesh_object, rows[-1], tf.int32)
  priority = order if stack.autoregressive else None
  if stack.priority is not None:
    priority = constant(mesh_object, stack.priority, rows)
  memory = memory_id = None
  if stack.encoded is not None:
    memory_id = stack.encoded.sequence_id
    dims = [
      *rows[: memory_id.ndim - 1],
      mtf.Dimension('memory_length', memory_id.shape[-1]),
    ]
    memory_id = constant(mesh_object, memory_id, dims)
    dims.append(mtf.Dimension('d_model', stack.encoded.output.shape[-1]))
    memory = mtf.cast(constant(mesh_object, stack.encoded.output, dims), dtype)
  return transformer.Context(
    model=stack.model(shape[-1]),
    mesh=mesh_object,
    batch_dims=rows[:-1],
    length_dim=rows[-1],
    variable_dtype=mtf.VariableDType(tf.float32, tf.float32, dtype),
    mode=stack.mode,
    losses=[],
    sequence_id=ids,
    position=order,
    position_is_default=True,
    read_priority=priority,
    write_priority=priority,
    encoder_output=memory,
    encoder_sequence_id=memory_id,
    inputs=constant(mesh_object, inputs.astype(int), rows),
  )


def parallel(
  make_layer: MakeLayer | Sequence[MakeLayer],
  x: Array,
  sequence_id: Array | None = None,
  stack: Stack = ENCODER,
  *,
  weights: Initial | None = draw,
  mask_padding: bool = True,
  **changes: Any,
) -> Result:
  """Calls one or more layers, one after the other, on whole rows.

  `changes` are settings of the stack. Without `weights`, the layer initializes
  its variables. With `mask_padding`, x is 0 at padding, as in the host.
  """
  stack = dataclasses.replace(stack, **changes)
  makers = [make_layer] if callable(make_layer) else make_layer
  cotangent = draw('cotangent', x.shape)
  with new_graph(stack.mesh) as (graph, mesh_object):
    context = host_context(mesh_object, x.shape, sequence_id, stack)
    dims = _dims(context)
    x_in = constant(mesh_object, x, dims)
    y = mtf.cast(x_in, context.activation_dtype)
    if mask_padding:
      y = transformer.sublayer_mask_padding(y, None, context)
    if stack.ensemble:
      dims = context.model.ensemble_dims + dims
      cotangent = np.stack([cotangent] * stack.ensemble)
      y = mtf.broadcast(y, mtf.Shape(dims))
    for i, make in enumerate(makers):
      with tf.variable_scope(SCOPE if len(makers) == 1 else f'layer_{i:03d}'):
        y = make().call(context, y)
    y = mtf.cast(y, tf.float32)
    trained = {_short(v.name): v.outputs[0] for v in graph.trainable_variables}
    sources = {'x': x_in, 'memory': context.encoder_output, **trained}
    gradients, losses = {}, list(context.losses)
    if stack.mode == 'train':
      loss = mtf.reduce_sum(y * constant(mesh_object, cotangent, dims))
      loss = mtf.add_n([loss] + [mtf.cast(x, tf.float32) for x in losses])
      sources = {n: t for n, t in sources.items() if t is not None}
      derivatives = mtf.gradients([loss], list(sources.values()))
      for name, derivative in zip(sources, derivatives, strict=True):
        if derivative is not None:
          gradients[name] = derivative
    fetches = {'output': y, 'gradients': gradients, 'losses': losses}
    result, used = _run(graph, mesh_object, stack.mesh, fetches, weights)
    return Result(
      **result,
      weights=used,
      trainable=list(trained),
      shapes=[
        tuple(tensor.shape.as_list())
        for op in tf.get_default_graph().get_operations()
        for tensor in op.outputs
        if tensor.shape.is_fully_defined()
        and '/each_example/' not in tensor.name
      ],
    )


def decode(
  make_layer: MakeLayer,
  x: Array,
  start: Array | None = None,
  stack: Stack = DECODER,
  *,
  weights: Initial = draw,
  **changes: Any,
) -> tuple[Array, dict[str, Array]]:
  """Calls a layer as the host's decoders do: first_part, then token by token.

  x is [batch, length, d_model], or [batch, beam, length, d_model]. `start` is
  the number of given tokens in each row, whose output is NaN; first_part has
  noise in place of the others. Without it, decoding starts from states of 0.
  """
  stack = dataclasses.replace(stack, mode='first_part', **changes)
  length = x.shape[-2]
  first = np.zeros(x.shape[:1], np.int32) if start is None else start
  given = np.arange(length) < first.reshape(-1, *[1] * (x.ndim - 2))
  with new_graph(stack.mesh) as (graph, mesh_object):
    context = host_context(mesh_object, x.shape, None, stack)
    batch = context.batch_dims
    layer = make_layer()

    def call(context: transformer.Context, values: Array) -> mtf.Tensor:
      dims = _dims(context)
      x_in = constant(mesh_object, values, dims[: values.ndim - 1] + dims[-1:])
      is_step = context.mode == 'incremental'
      with tf.variable_scope(SCOPE, reuse=is_step):
        x_in = mtf.cast(x_in, context.activation_dtype)
        return layer.call(context, x_in, losses=None)  # as ParallelLayer does

    context.new_states, context.constant_states = [], []
    context.initial_position = constant(mesh_object, first, batch[:1])
    # They are not shifted yet, and 0 where nothing is given.
    context.inputs = constant(
      mesh_object,
      np.broadcast_to(given, x.shape[:-1]).astype(int),
      [*batch, context.length_dim],
    )
    call(context, np.where(given[..., None], x, draw('future tokens', x.shape)))
    states = context.new_states
    if start is None:
      states = [mtf.zeros_like(s) for s in states]
    outputs = []
    # Rows that have reached their end go on with zeros until all rows have.
    ended = np.concatenate([x, np.zeros_like(x)], axis=-2)
    for step in range(length - int(first.min())):
      positions = (first + step).astype(np.int32)
      token = np.stack(
        [row[..., p, :] for row, p in zip(ended, positions, strict=True)]
      )
      context = copy.copy(context)
      context.mode = 'incremental'
      context.initial_position, context.position_is_default = None, False
      context.cache, context.next_constant_state = {}, 0
      context.position = context.read_priority = (
        mtf.constant(mesh_object, int(positions[0]), dtype=tf.int32)
        if stack.beam
        else constant(mesh_object, positions, batch[:1])
      )
      reads = (positions > 0).reshape(-1, *[1] * (x.ndim - 3))
      context.inputs = constant(
        mesh_object, np.broadcast_to(reads, x.shape[:-2]).astype(int), batch
      )
      context.states, context.new_states = states, []
      outputs.append(mtf.cast(call(context, token), tf.float32))
      # The host's loop requires every state to keep its shape and type.
      before = [(s.shape, s.dtype) for s in states]
      states = context.new_states
      assert [(s.shape, s.dtype) for s in states] == before
    values, used = _run(graph, mesh_object, stack.mesh, outputs, weights)
  output = np.full(x.shape, np.nan)
  for step, value in enumerate(values):
    for row, p in enumerate(first + step):
      if p < length:
        output[row, ..., p, :] = value[row]
  return output, used


def evaluate(
  build: Callable[[mtf.Mesh], Any],
  mesh: Mesh = ONE_DEVICE,
  weights: Initial | None = draw,
) -> Any:
  """The float32 values of what `build` makes: tensors in any structure."""
  with new_graph(mesh) as (graph, mesh_object):
    fetches = build(mesh_object)
    return _run(graph, mesh_object, mesh, fetches, weights)[0]


def variables(
  make_layer: MakeLayer, x: Array, **settings: Any
) -> dict[str, tuple[int, ...]]:
  """Shapes of a layer's variables by name; takes settings of `host_context`."""
  with new_graph() as (graph, mesh_object):
    context = host_context(mesh_object, x.shape, **settings)
    with tf.variable_scope(SCOPE):
      make_layer().call(context, constant(mesh_object, x, _dims(context)))
    return {
      _short(v.name): tuple(v.shape.to_integer_list)
      for v in graph.all_variables
    }


# A graph that runs once is not worth rewriting.
_UNOPTIMIZED = tf.GraphOptions()
_UNOPTIMIZED.rewrite_options.disable_meta_optimizer = True


def _run(
  graph: mtf.Graph,
  mesh_object: mtf.Mesh,
  mesh: Mesh,
  fetches: Any,
  weights: Initial | None,
) -> tuple[Any, dict[str, Array]]:
  """The float32 values of a graph, and those of its variables."""
  # Lowering stacks variables of one shape and forgets their names.
  names = {v.name for v in graph.all_variables}
  lowering = mtf.Lowering(graph, {mesh_object: mesh.implementation()})
  fetches = tf.nest.map_structure(
    lambda t: tf.cast(lowering.export_to_tf_tensor(t), tf.float32), fetches
  )
  masters = {
    _short(v.op.name): v for v in tf.global_variables() if v.op.name in names
  }
  values = {
    name: np.asarray(weights(name, v.shape.as_list()), np.float32)
    for name, v in masters.items()
    if weights
  }
  config = tf.ConfigProto(
    device_count={'CPU': mesh.size},
    intra_op_parallelism_threads=1,
    inter_op_parallelism_threads=1,
    allow_soft_placement=False,
    graph_options=_UNOPTIMIZED,
  )
  with tf.Session(config=config) as session:
    session.run(
      [v.initializer for v in masters.values()],
      {masters[n].initializer.inputs[1]: value for n, value in values.items()},
    )
    values = values or session.run(masters)
    session.run(lowering.copy_masters_to_slices())
    return session.run(fetches), values


@contextlib.contextmanager
def new_graph(mesh: Mesh = ONE_DEVICE) -> Iterator[tuple[mtf.Graph, mtf.Mesh]]:
  with tf.Graph().as_default():
    tf.set_random_seed(1)
    graph = mtf.Graph()
    yield graph, mtf.Mesh(graph, 'mesh', _PLACER if mesh.tpu else None)


def constant(
  mesh_object: mtf.Mesh,
  values: npt.ArrayLike,
  dims: str | Sequence[mtf.Dimension],
) -> mtf.Tensor:
  """An array as a tensor of these dimensions (or names), float32 or int32."""
  array = np.asarray(values)
  if isinstance(dims, str):
    dims = [
      mtf.Dimension(n, s)
      for n, s in zip(dims.split(), array.shape, strict=True)
    ]
  kind = tf.int32 if array.dtype.kind in 'iub' else tf.float32
  return mtf.import_tf_tensor(
    mesh_object, tf.constant(array, kind), mtf.Shape(dims)
  )


def _dims(context: transformer.Context) -> list[mtf.Dimension]:
  return [*context.batch_dims, context.length_dim, context.model.model_dim]


def _short(name: str) -> str:
  return name.removeprefix(f'{SCOPE}/')


def assert_close(
  actual: Any,
  expected: Any,
  where: str = '',
  tolerance: float = TOLERANCE['float32'],
) -> None:
  """Compares arrays, or dicts of arrays by name."""
  if isinstance(expected, dict):
    assert set(actual) == set(expected), where
    for name, value in expected.items():
      assert_close(actual[name], value, f'{where}[{name}]', tolerance)
    return
  a, e = np.asarray(actual), np.asarray(expected)
  assert a.shape == e.shape, f'{where}: shape {a.shape}, expected {e.shape}'
  scale = np.abs(e).max(initial=0) or 1.0
  error = np.abs(a.astype(np.float64) - e) / scale
  if not (error <= tolerance).all():
    worst = np.unravel_index(
      np.where(np.isfinite(error), error, np.inf).argmax(), a.shape
    )
    raise AssertionError(
      f'{where}: entry {tuple(map(int, worst))} is {a[worst]!r}, expected '
      f'{e[worst]!r}; the error is {error[worst]:.2g} of the largest entry, '
      f'{scale:.3g}'
    )
