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
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import gin
import mesh_tensorflow as mtf
import numpy.typing as npt
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer, transformer_layers, utils

from synth_mtf.errors import UserError
from synth_mtf.host import bindings, explanations

# Long enough for every layer; tables have their full size regardless.
SHORT = {'inputs': 8, 'targets': 8}

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
    found = self.graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES)
    # A training graph also holds the step and the slots.
    return {v.op.name: v for v in found if v.op.name in self.shapes}

  @functools.cached_property
  def shapes(self) -> dict[str, mtf.Shape]:
    """The Mesh-TensorFlow shapes of the weights, by name."""
    return {v.name: v.shape for v in self.mtf_graph.all_variables}

  @functools.cached_property
  def attention(self) -> dict[str, transformer_layers.SelfAttention]:
    """The attention layers, by the scope of their variables."""
    kind = transformer_layers.SelfAttention
    return {s: x for s, x in layers(self.transformer) if isinstance(x, kind)}

  def initial_values(self, names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    """Draws initial values of the named variables."""
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
) -> ConfiguredModel:
  """Builds the configured model, and calls it on one batch of zeros.

  Args:
    vocab_size: number of embeddings.
    output_vocab_size: number of target embeddings, if it differs.
    lengths: lengths of `inputs` and `targets`.
    mode: one of `tf.estimator.ModeKeys`; PREDICT decodes.
    packed: whether rows may hold several sequences.
    countable: whether to use only Mesh-TensorFlow's own products, which can be
      counted. The layers then assume a TPU's mesh, so the graph cannot run.
    batch: number of examples.

  Returns:
    The model, with its variables in their own graph.
  """
  graph, mtf_graph = tf.Graph(), mtf.Graph()
  # Layers recognize a TPU's mesh by its function that places variables.
  placer = types.SimpleNamespace(device_function=lambda op: '')
  mesh = mtf.Mesh(mtf_graph, 'mesh', placer if countable else None)
  ids = {
    name: mtf.zeros(
      mesh,
      [mtf.Dimension('batch', batch), mtf.Dimension('length', length)],
      tf.int32,
    )
    for name, length in lengths.items()
  }
  with graph.as_default():
    with explained():
      model = make_transformer(vocab_size, output_vocab_size)
      dtype = utils.get_variable_dtype()
    is_pair = isinstance(model, transformer.Bitransformer)
    pair = {'encoder_': 'inputs', 'decoder_': 'targets'}
    sides = pair if is_pair else {'': 'targets'}
    with explained(model):
      if mode == tf.estimator.ModeKeys.PREDICT:
        model.decode(ids['inputs'], variable_dtype=dtype)
      else:
        model.call_simple(
          # A language model's inputs are its targets.
          inputs=ids['inputs' if is_pair else 'targets'],
          targets=ids['targets'],
          compute_loss=True,
          mode=mode,
          variable_dtype=dtype,
          **{f'{side}sequence_id': ids[name] for side, name in sides.items()}
          if packed
          else {},
        )
  _check_sizes(model, mtf_graph)
  return ConfiguredModel(model, graph, mtf_graph)


def explained(
  model: Transformer | None = None,
) -> contextlib.AbstractContextManager[None]:
  """Replaces every exception of the host with a `UserError`.

  The message names the layer that failed, and its gin bindings.
  """
  return explanations.explained(functools.partial(_explain, model))


def _explain(model: Transformer | None, error: BaseException) -> str:
  scopes = {id(layer): scope for scope, layer in layers(model)} if model else {}
  where = ''
  settings: list[bindings.Binding] = []
  for frame, _ in traceback.walk_tb(error.__traceback__):
    called = frame.f_locals.get('self')
    where = scopes.get(id(called), where)
    kinds = type(called).__mro__
    names = {frame.f_code.co_name, *(kind.__name__ for kind in kinds)}
    settings = [
      b for b in _settings() if b.selector.rpartition('.')[2] in names
    ] or settings
  text = f'{type(error).__name__}: {error}'.split('\n  In call to')[0]
  named = [
    b for b in settings if f"'{b.parameter}'" in text or str(b.value) in text
  ]
  shown = '\n  '.join(map(str, named or settings))
  return (
    f'the model cannot be built: {text}'
    + (f'\nIn the layer {where}.' if where else '')
    + (f'\nSettings to look at:\n  {shown}' if shown else '')
  )


def _settings() -> list[bindings.Binding]:
  return [b for b in bindings.bindings() if not b.is_call]


def _check_sizes(model: Transformer, graph: mtf.Graph) -> None:
  """Rejects a model without layers or with a dimension below 1."""
  faults = {} if any(layers(model)) else {0: 'no layers'}
  for operation in graph.operations:
    for dim in (d for output in operation.outputs for d in output.shape):
      if dim.size < 1:
        faults.setdefault(dim.size, f'{dim} in {operation.name}')
  for size, fault in faults.items():
    bound = [
      str(b) for b in _settings() if type(b.value) is int and b.value == size
    ]
    raise UserError(
      f'the model has {fault}: expected sizes of at least 1.'
      + f' Settings with the value {size}: {", ".join(bound)}.' * bool(bound)
    )


def make_transformer(
  vocab_size: int, output_vocab_size: int | None = None
) -> Transformer:
  """Builds the host's model of the configured type, without calling it."""
  settings = gin.get_bindings(utils.run, resolve_references=False)
  kind = settings.get('model_type', 'bitransformer')
  return utils.build_model(kind, vocab_size, output_vocab_size or vocab_size)


def layers(
  model: Transformer,
) -> Iterator[tuple[str, transformer.TransformerLayer]]:
  """Yields the layers of all stacks, with the scopes of their variables."""
  is_stack = isinstance(model, transformer.Unitransformer)
  for stack in [model] if is_stack else [model.encoder, model.decoder]:
    for layer in stack.layer_stack.layers:
      yield f'{stack.name}/{layer.name}/{type(layer).__name__}', layer


def sublayers(stack: transformer.Unitransformer) -> str:
  """Names what a stack does beside its layers: `dropout; rms_norm ...; ...`.

  Leaves out `mask_padding`, which only sets padding to 0; no token attends to
  padding.
  """
  own = stack.layer_stack
  parts = own._sublayers_initial, own._sublayers_per_layer, own._sublayers_final
  return '; '.join(
    ' '.join(
      re.sub('^sublayer_(legacy_)?(final_)?', '', f.__name__)
      for f in functions
      if f.__name__ != 'sublayer_mask_padding'
    )
    for functions in parts
  )
