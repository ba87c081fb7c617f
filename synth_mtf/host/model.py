"""Builds the model that gin files describe, without running it.

Conversion, cost and the checks before a run build it as a run does, with the
same gin files and host functions, then inspect its layers and operations.
"""

import contextlib
import dataclasses
import functools
import re
import traceback
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import mesh_tensorflow as mtf
import numpy.typing as npt
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer, transformer_layers, utils

from synth_mtf.errors import UserError
from synth_mtf.host import bindings, explanations
from synth_mtf.host.run_config import RunConfig

# Long enough for every layer; tables have their full size regardless.
SHORT = {'inputs': 8, 'targets': 8}
_INITIALIZERS = 'initializers'  # a collection of those that were called
SMALL = 128  # any vocabulary will do where no layer is called

# What gin adds to an error about arguments.
_OF_GIN = re.compile(r'\n  (?:No values supplied|In call to)')

Transformer: TypeAlias = transformer.Bitransformer | transformer.Unitransformer


@dataclasses.dataclass(frozen=True)
class ConfiguredModel:
  """A model that gin describes, called once.

  Attributes:
    transformer: the host's Bitransformer or Unitransformer.
    graph: the TensorFlow graph that holds its variables.
    mtf_graph: the Mesh-TensorFlow graph of the call; nothing is lowered.
  """

  transformer: Transformer
  graph: tf.Graph
  mtf_graph: mtf.Graph

  @functools.cached_property
  def variables(self) -> dict[str, tf.Variable]:
    variables = self.graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES)
    # A training graph also holds the step and the slots.
    return {v.op.name: v for v in variables if v.op.name in self.shapes}

  @functools.cached_property
  def shapes(self) -> dict[str, mtf.Shape]:
    """The Mesh-TensorFlow shapes of the weights, by name."""
    return {v.name: v.shape for v in self.mtf_graph.all_variables}

  @functools.cached_property
  def attention(self) -> dict[str, transformer_layers.SelfAttention]:
    """The attention layers, by the scope of their variables."""
    return {
      scope: layer
      for scope, layer in layers(self.transformer)
      if isinstance(layer, transformer_layers.SelfAttention)
    }

  def initial_values(self, names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    """Draws initial values of the named variables; each time the same."""
    with tf.Session(graph=self.graph) as session:
      return session.run({n: self.variables[n].initial_value for n in names})


def build(
  vocab_size: int,
  output_vocab_size: int | None = None,
  lengths: Mapping[str, int] = SHORT,
  mode: str = tf.estimator.ModeKeys.EVAL,
  packed: bool = False,
  countable: bool = False,
  batch: int = 1,
  seed: int = 0,
) -> ConfiguredModel:
  """Builds the configured model, and calls it on one batch of zeros.

  Args:
    vocab_size: number of embeddings.
    output_vocab_size: number of target embeddings, if it differs.
    lengths: lengths of `inputs` and `targets`.
    mode: one of `tf.estimator.ModeKeys`; PREDICT decodes.
    packed: whether rows may hold several sequences.
    countable: whether to use only Mesh-TensorFlow's own products, which can be
      counted. The layers then assume a TPU's mesh, and placeholders stand for
      the variables, so the graph cannot run.
    batch: number of examples.
    seed: of the initial values.

  Returns:
    The model, with its variables in their own graph.
  """
  graph, mtf_graph = tf.Graph(), mtf.Graph()
  # Layers recognize a TPU's mesh by its function that places variables.
  placer = types.SimpleNamespace(device_function=lambda op: '')
  mesh = mtf.Mesh(mtf_graph, 'mesh', placer if countable else None)
  batch_dim = mtf.Dimension('batch', batch)
  ids = {}
  for name, length in lengths.items():
    dims = [batch_dim, mtf.Dimension('length', length)]
    ids[name] = mtf.zeros(mesh, dims, tf.int32)
  with graph.as_default():
    tf.set_random_seed(seed)
    if countable:
      tf.get_variable_scope().set_custom_getter(_make_placeholder)
    with explained():
      model = make_transformer(vocab_size, output_vocab_size)
      dtype = utils.get_variable_dtype()
    with explained(model):
      if mode == tf.estimator.ModeKeys.PREDICT:
        model.decode(ids['inputs'], variable_dtype=dtype)
      else:
        _call(model, ids, mode, dtype, packed)
      _check_sizes(model, mtf_graph)
  return ConfiguredModel(model, graph, mtf_graph)


def _make_placeholder(
  name: str,
  shape: Sequence[int],
  dtype: tf.DType,
  initializer: Callable[..., tf.Tensor] | None,
  **_: Any,
) -> tf.Tensor:
  """Makes a placeholder for a variable, which takes less time to build.

  It calls one initializer for each class and settings, as gin may bind values
  that it refuses.
  """
  if initializer is not None:  # None is TensorFlow's
    kind = f'{type(initializer)} {vars(initializer)}'
    if kind not in tf.get_collection(_INITIALIZERS):
      initializer(shape, dtype=dtype)
      tf.add_to_collection(_INITIALIZERS, kind)
  variable = tf.placeholder(dtype, shape, name)
  tf.add_to_collection(tf.GraphKeys.GLOBAL_VARIABLES, variable)
  return variable


def _call(
  model: Transformer,
  ids: Mapping[str, mtf.Tensor],
  mode: str,
  dtype: mtf.VariableDType,
  packed: bool,
) -> None:
  """Adds a model's loss on ids, by feature, to the graph."""
  if isinstance(model, transformer.Bitransformer):
    inputs = ids['inputs']
    segments = {
      'encoder_sequence_id': ids['inputs'],
      'decoder_sequence_id': ids['targets'],
    }
  else:
    inputs = ids['targets']  # a language model's inputs are its targets
    segments = {'sequence_id': ids['targets']}
  model.call_simple(
    inputs=inputs,
    targets=ids['targets'],
    compute_loss=True,
    mode=mode,
    variable_dtype=dtype,
    **(segments if packed else {}),
  )


def explained(
  model: Transformer | None = None,
) -> contextlib.AbstractContextManager[None]:
  """Replaces every exception of the host with a `UserError`.

  The message names the layer that failed, and its gin bindings.
  """
  return explanations.explained(functools.partial(_explain, model))


def _explain(model: Transformer | None, error: BaseException) -> str:
  """Describes an error, the layer that raised it, and the settings to check."""
  scopes = {}
  with contextlib.suppress(AttributeError):  # what is not a model has no layers
    scopes = {id(layer): scope for scope, layer in layers(model)}
  scope = ''
  settings: list[bindings.Binding] = []
  for frame, _ in traceback.walk_tb(error.__traceback__):
    called = frame.f_locals.get('self')
    scope = scopes.get(id(called), scope)
    names = {frame.f_code.co_name}
    names.update(base.__name__ for base in type(called).__mro__)
    bound = [x for x in _settings() if x.selector.rpartition('.')[2] in names]
    settings = bound or settings
  text = _OF_GIN.split(f'{type(error).__name__}: {error}')[0]
  named = [
    setting
    for setting in settings or _settings()
    if f"'{setting.parameter}'" in text or _holds(text, setting.value)
  ]
  message = f'the model cannot be built: {text}'
  if scope:
    message += f'\nIn the layer {scope}.'
  if named or settings:
    shown = '\n  '.join(map(str, named or settings))
    message += f'\nSettings to look at:\n  {shown}'
  return message


def _holds(text: str, value: Any) -> bool:
  """Whether a message says a value, and not as a part of another one."""
  return bool(re.search(rf'(?<![\w.]){re.escape(str(value))}(?![\w.])', text))


def settings_of(scopes: Collection[str]) -> list[bindings.Binding]:
  """Returns what gin binds for the classes of some layers, or their bases.

  Args:
    scopes: of the layers' variables.
  """
  names = {
    base.__name__
    for scope, layer in layers(make_transformer())
    for base in type(layer).__mro__
    if scope in scopes
  }
  return [b for b in _settings() if b.selector.rpartition('.')[2] in names]


def _settings() -> list[bindings.Binding]:
  return [b for b in bindings.bindings() if not b.is_call]


def _check_sizes(model: Transformer, graph: mtf.Graph) -> None:
  """Rejects a model without layers or with a dimension below 1."""
  if not any(layers(model)):
    raise _wrong_size('no layers', 0)
  for operation in graph.operations:
    for output in operation.outputs:
      for dim in output.shape:
        if dim.size < 1:
          raise _wrong_size(f'{dim} in {operation.name}', dim.size)


def _wrong_size(fault: str, size: int) -> UserError:
  message = f'the model has {fault}: expected sizes of at least 1.'
  bound = [
    str(setting)
    for setting in _settings()
    if type(setting.value) is int and setting.value == size
  ]
  if bound:
    message += f' Settings with the value {size}: {", ".join(bound)}.'
  return UserError(message)


def make_transformer(
  vocab_size: int = SMALL, output_vocab_size: int | None = None
) -> Transformer:
  """Builds the host's model of the configured type, without calling it.

  Like the model of a run on one device, it has a layout and a mesh: without
  them, the host's beam search would skip its prefilter and decode otherwise.
  """
  run = RunConfig()
  return utils.build_model(
    run.model_type,
    vocab_size,
    output_vocab_size or vocab_size,
    layout_rules=run.layout,
    mesh_shape='',
  )


def layers(
  model: Transformer,
) -> Iterator[tuple[str, transformer.TransformerLayer]]:
  """Yields the layers of all stacks, with the scopes of their variables."""
  if isinstance(model, transformer.Unitransformer):
    stacks = [model]
  else:
    stacks = [model.encoder, model.decoder]
  for stack in stacks:
    for layer in stack.layer_stack.layers:
      yield f'{stack.name}/{layer.name}/{type(layer).__name__}', layer


def sublayers(stack: transformer.Unitransformer) -> str:
  """Names what a stack does besides its layers: `dropout; rms_norm ...; ...`.

  Leaves out `mask_padding`, which only sets padding to 0; no token attends to
  padding.
  """
  own = stack.layer_stack
  return '; '.join(
    _names(functions)
    for functions in (
      own._sublayers_initial,
      own._sublayers_per_layer,
      own._sublayers_final,
    )
  )


def _names(sublayers: Sequence[Callable[..., Any]]) -> str:
  names = []
  for function in sublayers:
    name = re.sub('^sublayer_(legacy_)?(final_)?', '', function.__name__)
    if name != 'mask_padding':
      names.append(name)
  return ' '.join(names)
