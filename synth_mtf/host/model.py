"""The model that gin files describe, without running it.

Whatever reasons about a model (conversion of checkpoints, its cost, checks
before a run) builds it through the same gin files and host functions as a run,
and then looks at its layers, its variables and the operations of its graph.
"""

import dataclasses
import functools
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional, Union

import gin
import mesh_tensorflow as mtf
import numpy.typing as npt
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer, transformer_layers, utils

from synth_mtf.host import errors

# Long enough for every layer; tables have their full size regardless.
_SHORT = {'inputs': 8, 'targets': 8}

Transformer = Union[transformer.Bitransformer, transformer.Unitransformer]


@dataclasses.dataclass(frozen=True)
class ConfiguredModel:
  """A model as gin describes it, called once.

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
    """Its weights, by name."""
    found = self.graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES)
    # Training would add the step and the slots to the graph.
    return {v.op.name: v for v in found if v.op.name in self.shapes}

  @functools.cached_property
  def shapes(self) -> dict[str, mtf.Shape]:
    """The named dimensions of its weights, by name."""
    return {v.name: v.shape for v in self.mtf_graph.all_variables}

  @functools.cached_property
  def attention(self) -> dict[str, transformer_layers.SelfAttention]:
    """Its layers of attention, by the scope of their variables."""
    return {
      scope: layer
      for scope, layer in layers(self.transformer)
      if isinstance(layer, transformer_layers.SelfAttention)
    }

  def initial_values(self, names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    """Draws initial values of the named variables."""
    with tf.Session(graph=self.graph) as session:
      return session.run(
        {name: self.variables[name].initial_value for name in names}
      )


def build(
  vocab_size: int,
  output_vocab_size: Optional[int] = None,
  lengths: Mapping[str, int] = _SHORT,
  mode: str = tf.estimator.ModeKeys.EVAL,
  packed: bool = False,
  countable: bool = False,
) -> ConfiguredModel:
  """Builds the model that gin holds, and calls it on one pair of sequences.

  Args:
    vocab_size: number of embeddings.
    output_vocab_size: that of the targets, if it differs.
    lengths: lengths of `inputs` and `targets`.
    mode: one of `tf.estimator.ModeKeys`; PREDICT decodes.
    packed: whether rows may hold several sequences.
    countable: whether its products are to be counted, see `countable_mesh`.

  Returns:
    The model, with its variables in a graph of their own.

  Raises:
    UserError: a setting of the model is wrong.
  """
  graph, mtf_graph = tf.Graph(), mtf.Graph()
  with graph.as_default(), errors.explained():
    model = make_transformer(vocab_size, output_vocab_size)
    mesh = (
      countable_mesh(mtf_graph) if countable else mtf.Mesh(mtf_graph, 'mesh')
    )
    _call(model, mesh, lengths, mode, packed)
  return ConfiguredModel(model, graph, mtf_graph)


def countable_mesh(graph: mtf.Graph) -> mtf.Mesh:
  """A mesh on which all products are Mesh-TensorFlow's own operations.

  It is one of TPU cores to the layers; in training they have kernels of their
  own there, too.

  Args:
    graph: what is called on the mesh is not to be executed.
  """
  # What tells a TPU's mesh from others: its variables are placed by a function.
  placer = types.SimpleNamespace(device_function=lambda op: '')
  return mtf.Mesh(graph, 'mesh', placer)


def make_transformer(
  vocab_size: int, output_vocab_size: Optional[int] = None
) -> Transformer:
  """Makes the host's model of the type that gin holds, without calling it.

  Args:
    vocab_size: number of embeddings.
    output_vocab_size: that of the targets, if it differs.
  """
  model_type = gin.get_bindings(utils.run, resolve_references=False).get(
    'model_type', 'bitransformer'
  )
  return utils.build_model(
    model_type, vocab_size, output_vocab_size or vocab_size
  )


def _call(
  model: Transformer,
  mesh: mtf.Mesh,
  lengths: Mapping[str, int],
  mode: str,
  packed: bool,
) -> None:
  """Calls the model on zeros, so that it makes its variables and graph."""
  ids = {
    name: mtf.zeros(
      mesh,
      mtf.Shape([mtf.Dimension('batch', 1), mtf.Dimension('length', length)]),
      tf.int32,
    )
    for name, length in lengths.items()
  }
  if mode == tf.estimator.ModeKeys.PREDICT:
    model.decode(ids['inputs'], variable_dtype=utils.get_variable_dtype())
    return
  is_pair = isinstance(model, transformer.Bitransformer)
  segments = {}
  if packed and is_pair:
    segments = {
      'encoder_sequence_id': ids['inputs'],
      'decoder_sequence_id': ids['targets'],
    }
  elif packed:
    segments = {'sequence_id': ids['targets']}
  model.call_simple(
    # A language model's inputs are its targets.
    inputs=ids['inputs'] if is_pair else ids['targets'],
    targets=ids['targets'],
    compute_loss=True,
    mode=mode,
    variable_dtype=utils.get_variable_dtype(),
    **segments,
  )


def layers(
  model: Transformer,
) -> Iterator[tuple[str, transformer.TransformerLayer]]:
  """Yields the layers of all stacks, with the scopes of their variables."""
  for stack in stacks(model):
    for layer in stack.layer_stack.layers:
      yield f'{stack.name}/{layer.name}/{type(layer).__name__}', layer


def stacks(model: Transformer) -> list[transformer.Unitransformer]:
  """Its stacks of layers: encoder and decoder, or the one that it is."""
  if isinstance(model, transformer.Unitransformer):
    return [model]
  return [model.encoder, model.decoder]
