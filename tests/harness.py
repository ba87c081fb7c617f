"""Runs attention layers alone, as the host would, with weights we choose.

`parallel` calls layers on whole rows (train, eval, infer), `decode` token by
token (first_part, then incremental), `evaluate` anything smaller. Each builds
one Mesh-TensorFlow graph and one session, and returns what came out as NumPy
arrays.
"""

import contextlib
import dataclasses
import types
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Optional, Union

import mesh_tensorflow as mtf
import numpy as np
import numpy.typing as npt
import tensorflow.compat.v1 as tf
from mesh_tensorflow import placement_mesh_impl
from mesh_tensorflow.transformer import transformer

# Largest error, relative to the largest entry of what is expected.
TOLERANCE = {'float32': 1e-5, 'bfloat16': 3e-2}

SCOPE = 'SyntheticAttention'

Array = npt.NDArray[Any]
MakeLayer = Callable[[], transformer.TransformerLayer]
# A value for a variable, by its name and shape.
Initial = Callable[[str, Sequence[int]], Array]


@dataclasses.dataclass(frozen=True)
class Stack:
  """Which part of a T5 model the layer stands in."""

  name: str
  autoregressive: bool = False
  has_encoder: bool = True
  input_full_attention: bool = False


ENCODER = Stack('encoder')
DECODER = Stack('decoder', autoregressive=True)
LM = Stack('transformer', autoregressive=True, has_encoder=False)
PREFIX_LM = Stack(
  'transformer',
  autoregressive=True,
  has_encoder=False,
  input_full_attention=True,
)


@dataclasses.dataclass(frozen=True)
class Encoded:
  """What an encoder hands to the decoder.

  Attributes:
    output: [batch..., memory_length, d_model].
    sequence_id: [batch..., memory_length]; 0 is padding.
  """

  output: Array
  sequence_id: Array


@dataclasses.dataclass
class Result:
  """What a graph computed.

  Attributes:
    output: [batch..., length, d_model].
    weights: by variable name, as float32.
    gradients: of sum(output * cotangent) and the losses, by variable name, 'x',
      and 'memory' where there is an encoder.
    trainable: names of the variables that a training step changes.
    shapes: static shapes of all tensors in the TensorFlow graph.
    losses: what the layer added to the losses of the model.
  """

  output: Array
  weights: dict[str, Array]
  gradients: dict[str, Array] = dataclasses.field(default_factory=dict)
  trainable: list[str] = dataclasses.field(default_factory=list)
  shapes: list[tuple[str, tuple[int, ...]]] = dataclasses.field(
    default_factory=list
  )
  losses: list[Array] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Mesh:
  """A placement mesh on virtual CPU devices.

  Attributes:
    shape: as in `utils.run.mesh_shape`.
    layout: as in `utils.run.layout_rules`.
    tpu: whether the layers take it for one of TPU cores.
  """

  shape: str = ''
  layout: str = ''
  tpu: bool = False

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
# The host places the variables of a TPU's mesh, and of no other.
_PLACER = types.SimpleNamespace(device_function=lambda op: '/cpu:0')


def draw(name: str, shape: Sequence[int], scale: float = 0.5) -> Array:
  """Normal numbers that depend on the name alone, exact in float32."""
  rng = np.random.RandomState(zlib.crc32(name.encode()) % 2**31)
  return (scale * rng.standard_normal(shape)).astype(np.float32)


def parallel(
  make_layer: Union[MakeLayer, Sequence[MakeLayer]],
  x: Array,
  sequence_id: Optional[Array] = None,
  stack: Stack = ENCODER,
  mode: str = 'train',
  weights: Optional[Initial] = draw,
  dtype: str = 'float32',
  mesh: Mesh = ONE_DEVICE,
  priority: Optional[Array] = None,
  cotangent: Optional[Array] = None,
  ensemble: int = 0,
  max_length: int = 512,
  runs: int = 1,
  host_masks: bool = True,
  encoded: Optional[Encoded] = None,
) -> Result:
  """Calls layers, one after the other, on whole rows.

  Args:
    make_layer: makes a layer, or a list of these.
    x: [batch..., length, d_model], one or two batch dimensions.
    sequence_id: [batch..., length]; None: the host's int 1, no padding.
    stack: where the layers stand.
    mode: 'train', 'eval' or 'infer'.
    weights: name and shape to values; None: as the layer initializes them.
    dtype: of activations; variables are float32.
    mesh: mesh shape and layout.
    priority: read and write priority [batch..., length] in place of the
      stack's own (a prefix language model).
    cotangent: what the output is multiplied with to be differentiated.
    ensemble: number of models in an ensemble; 0 = none.
    max_length: of the Unitransformer.
    runs: session calls; more than one stacks the outputs in front.
    host_masks: whether x is made zero at padding, which the host does.
    encoded: what the encoder made, for cross-attention.
  """
  makers = make_layer if isinstance(make_layer, (list, tuple)) else [make_layer]
  cotangent = draw('cotangent', x.shape) if cotangent is None else cotangent
  with new_graph(mesh) as (graph, mesh_object):
    context = host_context(
      mesh_object,
      x.shape,
      sequence_id,
      stack,
      mode,
      dtype=dtype,
      mesh=mesh,
      priority=priority,
      ensemble=ensemble,
      max_length=max_length,
      encoded=encoded,
    )
    model = context.model
    dims = context.batch_dims + [context.length_dim, model.model_dim]
    placeholder = tf.placeholder(tf.float32, x.shape)
    x_in = mtf.import_tf_tensor(mesh_object, placeholder, mtf.Shape(dims))
    y = mtf.cast(x_in, context.activation_dtype)
    if host_masks:
      y = transformer.sublayer_mask_padding(y, None, context)
    if ensemble:
      dims = model.ensemble_dims + dims
      cotangent = np.stack([cotangent] * ensemble)
      y = mtf.broadcast(y, mtf.Shape(dims))
    for i, make in enumerate(makers):
      scope = SCOPE if len(makers) == 1 else f'layer_{i:03d}'
      with tf.variable_scope(scope):
        y = make().call(context, y)
    y = mtf.cast(y, tf.float32)
    loss = mtf.reduce_sum(y * constant(mesh_object, cotangent, dims))
    for added in context.losses:
      loss += mtf.cast(added, tf.float32)
    gradients = {}
    if mode == 'train':
      sources = {'x': x_in}
      if encoded is not None:
        sources['memory'] = context.encoder_output
      for variable in graph.trainable_variables:
        sources[variable.name] = variable.outputs[0]
      found = mtf.gradients([loss], list(sources.values()))
      gradients = {n: g for n, g in zip(sources, found) if g is not None}
    trainable = [_short(v.name) for v in graph.trainable_variables]
    fetches = {
      'output': y,
      'gradients': gradients,
      'losses': list(context.losses),
    }
    with open_session(graph, mesh_object, mesh, fetches, weights) as session:
      values = [session.run({placeholder: x}) for _ in range(runs)]
      result = values[0]
      output = result['output']
      if runs > 1:
        output = np.stack([v['output'] for v in values])
      return Result(
        output=output,
        gradients={_short(n): g for n, g in result['gradients'].items()},
        weights={_short(n): w for n, w in session.weights.items()},
        trainable=trainable,
        shapes=[
          (tensor.name, tuple(tensor.shape.as_list()))
          for op in tf.get_default_graph().get_operations()
          for tensor in op.outputs
          if tensor.shape.is_fully_defined()
        ],
        losses=result['losses'],
      )


def host_context(
  mesh_object: mtf.Mesh,
  shape: Sequence[int],
  sequence_id: Optional[Array] = None,
  stack: Stack = ENCODER,
  mode: str = 'train',
  *,
  dtype: str = 'float32',
  mesh: Mesh = ONE_DEVICE,
  priority: Optional[Array] = None,
  ensemble: int = 0,
  max_length: int = 512,
  encoded: Optional[Encoded] = None,
) -> transformer.Context:
  """The Context that the host makes for whole rows.

  Args:
    mesh_object: the mesh of the graph.
    shape: of the input, [batch..., length, d_model].
    sequence_id: as for `parallel`, like all others.
    stack: see there.
    mode: see there.
    dtype: see there.
    mesh: see there.
    priority: see there.
    ensemble: see there.
    max_length: see there.
    encoded: see there.
  """
  names = ['outer_batch', 'batch', 'length'][-len(shape) + 1 :]
  rows = [mtf.Dimension(n, s) for n, s in zip(names, shape)]
  ids = 1 if stack.has_encoder else None
  if sequence_id is not None:
    ids = constant(mesh_object, sequence_id, rows)
  order = mtf.range(mesh_object, rows[-1], tf.int32)
  if priority is not None:
    order_of_reading = constant(mesh_object, priority, rows)
  else:
    order_of_reading = order if stack.autoregressive else None
  return transformer.Context(
    model=_model(stack, shape[-1], mesh, ensemble, max_length),
    mesh=mesh_object,
    batch_dims=rows[:-1],
    length_dim=rows[-1],
    variable_dtype=_variable_dtype(dtype),
    mode=mode,
    losses=[],
    sequence_id=ids,
    position=order,
    position_is_default=True,
    read_priority=order_of_reading,
    write_priority=order_of_reading,
    **_of_encoder(mesh_object, encoded, rows[:-1], dtype),
  )


def decode(
  make_layer: MakeLayer,
  x: Array,
  start: Optional[Array] = None,
  beam: bool = False,
  stack: Stack = DECODER,
  weights: Initial = draw,
  dtype: str = 'float32',
  mesh: Mesh = ONE_DEVICE,
  priority: Optional[Array] = None,
  max_length: int = 512,
  encoded: Optional[Encoded] = None,
) -> Result:
  """Calls a layer as the host's decoders do: first_part, then token by token.

  Args:
    make_layer: makes the layer.
    x: [batch, length, d_model], or [batch, beam, length, d_model].
    start: [batch], how many tokens of each row are given. In first_part the
      layer sees noise in place of the others. None: decoding from nothing, so
      that states start as zeros.
    beam: whether positions are a scalar, as in beam search.
    stack: where the layer stands.
    weights: name and shape to initial values.
    dtype: of activations.
    mesh: mesh shape and layout.
    priority: write priority [batch, length] of a prefix language model.
    max_length: of the Unitransformer.
    encoded: what the encoder made, without beams, for cross-attention.

  Returns:
    The output, [batch..., length, d_model], with NaN at the tokens that were
    given; and the weights.
  """
  length = x.shape[-2]
  first = np.zeros(x.shape[:1], np.int32) if start is None else start
  with new_graph(mesh) as (graph, mesh_object):
    model = _model(stack, x.shape[-1], mesh, 0, max_length)
    names = ['batch', 'beam', 'length'] if beam else ['batch', 'length']
    dims = [mtf.Dimension(n, s) for n, s in zip(names, x.shape)]
    dims.append(model.model_dim)
    length_dim = dims[-2]
    order = mtf.range(mesh_object, length_dim, tf.int32)
    write_priority = order
    if priority is not None:
      write_priority = constant(mesh_object, priority, dims[:-1])
    common = {
      'model': model,
      'mesh': mesh_object,
      'batch_dims': dims[:-2],
      'length_dim': length_dim,
      'variable_dtype': _variable_dtype(dtype),
      'sequence_id': 1 if stack.has_encoder else None,
      'write_priority': write_priority,
      **_of_encoder(mesh_object, encoded, dims[:1], dtype),
    }
    layer = make_layer()
    seen = np.arange(length)[None, :] < first[:, None]
    seen = seen.reshape(seen.shape[:1] + (1,) * beam + seen.shape[1:] + (1,))
    noisy = np.where(seen, x, draw('not decoded yet', x.shape))
    context = transformer.Context(
      mode='first_part',
      position=order,
      position_is_default=True,
      new_states=[],
      constant_states=[],
      initial_position=constant(mesh_object, first, dims[:1]),
      read_priority=write_priority,
      **common,
    )
    activation = context.activation_dtype
    with tf.variable_scope(SCOPE):
      layer.call(
        context, mtf.cast(constant(mesh_object, noisy, dims), activation)
      )
    states = context.new_states
    if start is None:
      states = [mtf.zeros_like(s) for s in states]
    steps = []
    for step in range(length - int(first.min())):
      at = first + step
      # A row that has reached its end goes on with zeros until all rows have.
      token = np.stack(
        [
          row[..., p, :] if p < length else np.zeros_like(row[..., 0, :])
          for row, p in zip(x, at)
        ]
      )
      position = (
        mtf.constant(mesh_object, int(at[0]), dtype=tf.int32)
        if beam
        else constant(mesh_object, at.astype(np.int32), dims[:1])
      )
      context = transformer.Context(
        mode='incremental',
        position=position,
        states=states,
        new_states=[],
        constant_states=context.constant_states,
        read_priority=position,
        **common,
      )
      token_dims = dims[:-2] + dims[-1:]
      with tf.variable_scope(SCOPE, reuse=True):
        y = layer.call(
          context,
          mtf.cast(constant(mesh_object, token, token_dims), activation),
        )
      shapes = [(s.shape, s.dtype) for s in states]
      states = context.new_states
      # The host's loop needs every state to stay what it is.
      assert [(s.shape, s.dtype) for s in states] == shapes
      steps.append(mtf.cast(y, tf.float32))
    with open_session(graph, mesh_object, mesh, steps, weights) as session:
      values = session.run({})
      used = {_short(n): w for n, w in session.weights.items()}
  output = np.full(x.shape, np.nan)
  for step, value in enumerate(values):
    for row, p in enumerate(first + step):
      if p < length:
        output[row, ..., p, :] = value[row]
  return Result(output, used)


def evaluate(
  build: Callable[[mtf.Mesh], Any],
  mesh: Mesh = ONE_DEVICE,
  weights: Optional[Initial] = draw,
) -> Any:
  """What comes out of a graph of its own.

  Args:
    build: makes tensors on a mesh, in any structure.
    mesh: mesh shape and layout.
    weights: name and shape to values; None: as they are initialized.

  Returns:
    The values, as float32, in the same structure.
  """
  with new_graph(mesh) as (graph, mesh_object):
    fetches = build(mesh_object)
    with open_session(graph, mesh_object, mesh, fetches, weights) as session:
      return session.run({})


def variables(
  make_layer: MakeLayer, x: Array, **settings: Any
) -> dict[str, tuple[int, ...]]:
  """The shapes of a layer's variables, by name; nothing is computed.

  Args:
    make_layer: makes the layer.
    x: [batch..., length, d_model].
    **settings: those of `host_context`.
  """
  with new_graph() as (graph, mesh_object):
    context = host_context(mesh_object, x.shape, **settings)
    dims = context.batch_dims + [context.length_dim, context.model.model_dim]
    with tf.variable_scope(SCOPE):
      make_layer().call(context, constant(mesh_object, x, dims))
    return {
      _short(v.name): tuple(v.shape.to_integer_list)
      for v in graph.all_variables
    }


def _of_encoder(
  mesh_object: mtf.Mesh,
  encoded: Optional[Encoded],
  batch_dims: Sequence[mtf.Dimension],
  dtype: str,
) -> dict[str, mtf.Tensor]:
  """What a Context has of the encoder."""
  if encoded is None:
    return {}
  length, d_model = encoded.output.shape[-2:]
  dims = [*batch_dims, mtf.Dimension('memory_length', length)]
  memory = constant(
    mesh_object, encoded.output, [*dims, mtf.Dimension('d_model', d_model)]
  )
  return {
    'encoder_output': mtf.cast(memory, _variable_dtype(dtype).activation_dtype),
    'encoder_sequence_id': constant(mesh_object, encoded.sequence_id, dims),
  }


def initial(make_layer: MakeLayer, x: Array) -> dict[str, Array]:
  """The variables of a new layer, by name."""
  return parallel(make_layer, x, mode='eval', weights=None).weights


# A graph that runs once is not worth rewriting.
_UNOPTIMIZED = tf.GraphOptions()
_UNOPTIMIZED.rewrite_options.disable_meta_optimizer = True


class _Session:
  """A session over a lowered graph, its variables loaded."""

  def __init__(
    self,
    graph: mtf.Graph,
    mesh_object: mtf.Mesh,
    mesh: Mesh,
    fetches: Any,
    weights: Optional[Initial],
  ) -> None:
    # Lowering stacks variables of one shape and forgets their names.
    names = {v.name for v in graph.all_variables}
    lowering = mtf.Lowering(graph, {mesh_object: mesh.implementation()})
    self._fetches = tf.nest.map_structure(
      lambda t: tf.cast(lowering.export_to_tf_tensor(t), tf.float32), fetches
    )
    masters = [v for v in tf.global_variables() if v.op.name in names]
    self._session = tf.Session(
      config=tf.ConfigProto(
        device_count={'CPU': mesh.size},
        intra_op_parallelism_threads=1,
        inter_op_parallelism_threads=1,
        allow_soft_placement=False,
        graph_options=_UNOPTIMIZED,
      )
    )
    values = {}
    if weights:
      values = {
        v.op.name: np.asarray(
          weights(_short(v.op.name), v.shape.as_list()), np.float32
        )
        for v in masters
      }
    self._session.run(
      [v.initializer for v in masters],
      {
        v.initializer.inputs[1]: values[v.op.name]
        for v in masters
        if v.op.name in values
      },
    )
    self.weights = values or self._session.run({v.op.name: v for v in masters})
    self._session.run(lowering.copy_masters_to_slices())

  def run(self, feed: Mapping[tf.Tensor, Array]) -> Any:
    return self._session.run(self._fetches, feed)

  def close(self) -> None:
    self._session.close()


def open_session(
  *args: Any,
) -> contextlib.AbstractContextManager[_Session]:
  return contextlib.closing(_Session(*args))


@contextlib.contextmanager
def new_graph(mesh: Mesh = ONE_DEVICE) -> Iterator[tuple[mtf.Graph, mtf.Mesh]]:
  with tf.Graph().as_default():
    tf.set_random_seed(1)
    graph = mtf.Graph()
    yield graph, mtf.Mesh(graph, 'mesh', _PLACER if mesh.tpu else None)


def _model(
  stack: Stack, d_model: int, mesh: Mesh, ensemble: int, max_length: int
) -> transformer.Unitransformer:
  return transformer.Unitransformer(
    layer_stack=None,
    d_model=d_model,
    input_vocab_size=17,
    output_vocab_size=17 if stack.autoregressive else None,
    autoregressive=stack.autoregressive,
    max_length=max_length,
    positional_embedding=False,
    name=stack.name,
    layout=mesh.layout or None,
    mesh_shape=mesh.shape or None,
    ensemble=ensemble or None,
    input_full_attention=stack.input_full_attention,
  )


def _variable_dtype(dtype: str) -> mtf.VariableDType:
  return mtf.VariableDType(tf.float32, tf.float32, tf.as_dtype(dtype))


def constant(
  mesh_object: mtf.Mesh,
  values: npt.ArrayLike,
  dims: Union[str, Sequence[mtf.Dimension]],
) -> mtf.Tensor:
  """The values as a tensor, float32 or int32.

  Args:
    mesh_object: the mesh of the graph.
    values: an array.
    dims: its dimensions, or their names with spaces between.
  """
  array = np.asarray(values)
  if isinstance(dims, str):
    dims = [mtf.Dimension(n, s) for n, s in zip(dims.split(), array.shape)]
  kind = tf.int32 if array.dtype.kind in 'iub' else tf.float32
  return mtf.import_tf_tensor(
    mesh_object, tf.constant(array, kind), mtf.Shape(dims)
  )


def _short(name: str) -> str:
  return name[len(SCOPE) + 1 :] if name.startswith(SCOPE + '/') else name


def relative_error(
  actual: npt.ArrayLike, expected: npt.ArrayLike, where: str = ''
) -> tuple[float, str]:
  """Largest error over the largest entry, and a line that names the worst."""
  actual, expected = np.asarray(actual), np.asarray(expected)
  if actual.shape != expected.shape:
    return np.inf, f'{where}: shape {actual.shape}, expected {expected.shape}'
  if not actual.size:
    return 0.0, ''
  scale = np.abs(expected).max() or 1.0
  error = np.abs(actual.astype(np.float64) - expected) / scale
  error = np.where(np.isfinite(error), error, np.inf)
  worst = tuple(map(int, np.unravel_index(error.argmax(), error.shape)))
  return error.max(), (
    f'{where}: entry {worst} is {actual[worst]!r}, expected '
    f'{expected[worst]!r}; the error is {error.max():.2g} of the largest '
    f'entry, {scale:.3g}; %d of {error.size} entries are off'
  )


def assert_close(
  actual: Any,
  expected: Any,
  where: str = '',
  tolerance: float = TOLERANCE['float32'],
) -> None:
  """Compares arrays, or dicts of arrays by name."""
  faults = []
  if isinstance(expected, dict):
    if set(actual) != set(expected):
      faults.append(
        f'{where}: got {sorted(actual)}, expected {sorted(expected)}'
      )
    pairs = [
      (f'{where}[{n}]', actual[n], expected[n]) for n in expected if n in actual
    ]
  else:
    pairs = [(where, actual, expected)]
  for name, a, e in pairs:
    worst, message = relative_error(a, e, name)
    if not worst <= tolerance:
      scale = np.abs(e).max() or 1.0
      if np.shape(a) == np.shape(e):
        off = int((~(np.abs(a - e) <= tolerance * scale)).sum())
        message = message % off
      faults.append(message)
  assert not faults, '\n'.join(faults)
