"""The model that gin files describe, without running it.

Commands that reason about a model (conversion of checkpoints, its cost) build
it through the same gin files and host functions as a run, and then look at its
layers and variables.
"""

import contextlib
import dataclasses
import logging
import pathlib
from collections.abc import Iterator, Sequence
from typing import Optional, Union

import gin
import mesh_tensorflow as mtf
import mesh_tensorflow.transformer
import numpy as np
import t5.models
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer, transformer_layers, utils
from t5.models import mesh_transformer

from synth_mtf import host_errors
from synth_mtf._paths import gin_path

# Long enough for every layer; tables have their full size all the same.
_LENGTH = 8


@dataclasses.dataclass(frozen=True)
class ConfiguredModel:
  """A model as gin describes it.

  Attributes:
    transformer: the host's Bitransformer or Unitransformer.
    graph: the TensorFlow graph that holds its variables.
    variables: its weights, by name.
    attention: self-attention layers, by the scope of their variables.
    shapes: the named dimensions of its weights, by name.
  """

  transformer: object
  graph: tf.Graph
  variables: dict[str, tf.Variable]
  attention: dict[str, transformer_layers.SelfAttention]
  shapes: dict[str, mtf.Shape]

  def initial_values(self, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Draws initial values of the named variables."""
    with tf.Session(graph=self.graph) as session:
      return session.run(
        {name: self.variables[name].initial_value for name in names}
      )


def parse_gin(files: Sequence[str], bindings: Sequence[str] = ()) -> None:
  """Makes gin hold what a run with these files and bindings would have.

  Args:
    files: as in --gin_file; found in our gin folder, in T5's and here.
    bindings: as in --gin_param.

  Raises:
    UserError: a file, a name or a value is wrong.
  """
  gin.clear_config()
  for package in (mesh_tensorflow.transformer, t5.models):
    gin.add_config_file_search_path(
      str(pathlib.Path(package.__file__).parent / 'gin')
    )
  gin.add_config_file_search_path(gin_path())
  with host_errors.explained(), _quiet():
    gin.parse_config_files_and_bindings(
      ['defaults.gin', *files],
      list(bindings),
      skip_unknown=mesh_transformer.DEPRECATED_GIN_REFERENCES,
    )


@contextlib.contextmanager
def _quiet():
  """Gin logs an error for each folder in which it does not find a file."""
  logging.disable(logging.ERROR)
  try:
    yield
  finally:
    logging.disable(logging.NOTSET)


def build(
  vocab_size: int, output_vocab_size: Optional[int] = None
) -> ConfiguredModel:
  """Builds the model that gin holds.

  Args:
    vocab_size: number of embeddings.
    output_vocab_size: of the targets, where it is another.

  Returns:
    The model, with its variables in a graph of their own.

  Raises:
    UserError: a setting of the model is wrong.
  """
  with tf.Graph().as_default() as graph, host_errors.explained():
    model = build_transformer(vocab_size, output_vocab_size)
    mtf_graph = mtf.Graph()
    _call(model, mtf.Mesh(mtf_graph, 'mesh'))
  return ConfiguredModel(
    model,
    graph,
    {v.op.name: v for v in graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES)},
    dict(_attention_layers(model)),
    {v.name: v.shape for v in mtf_graph.all_variables},
  )


def build_transformer(
  vocab_size: int, output_vocab_size: Optional[int] = None
) -> Union[transformer.Bitransformer, transformer.Unitransformer]:
  """Makes the host's model of the type that gin holds, without calling it.

  Args:
    vocab_size: number of embeddings.
    output_vocab_size: of the targets, where it is another.
  """
  model_type = gin.get_bindings(utils.run, resolve_references=False).get(
    'model_type', 'bitransformer'
  )
  return utils.build_model(
    model_type, vocab_size, output_vocab_size or vocab_size
  )


def _call(model, mesh):
  """Calls the model on nothing, so that it makes its variables."""
  shape = mtf.Shape(
    [mtf.Dimension('batch', 1), mtf.Dimension('length', _LENGTH)]
  )
  ids = mtf.zeros(mesh, shape, tf.int32)
  model.call_simple(
    ids,
    ids,
    compute_loss=True,
    mode=tf.estimator.ModeKeys.EVAL,
    variable_dtype=utils.get_variable_dtype(),
  )


def _attention_layers(
  model,
) -> Iterator[tuple[str, transformer_layers.SelfAttention]]:
  stacks = (
    [model]
    if isinstance(model, transformer.Unitransformer)
    else [model.encoder, model.decoder]
  )
  for stack in stacks:
    for layer in stack.layer_stack.layers:
      if isinstance(layer, transformer_layers.SelfAttention) and not isinstance(
        layer, transformer_layers.EncDecAttention
      ):
        scope = f'{stack.name}/{layer.name}/{type(layer).__name__}'
        yield scope, layer
