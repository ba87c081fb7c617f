"""The model that gin files describe, built without running it."""

import pytest
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer, transformer_layers

import synth_mtf
from synth_mtf.checkpoints import comparison
from synth_mtf.errors import UserError
from synth_mtf.host import gin_files, model as host_model
from tests import model

R = 'encoder/block_000/layer_000/SyntheticAttention/random/R'


def build(variant='random', bindings=(), **settings):
  gin_files.parse(
    model.files(variant), [*model.TINY, 'num_layers = 1', *bindings]
  )
  return host_model.build(model.VOCAB, **settings)


def test_its_variables_and_layers():
  found = build()
  assert isinstance(found.transformer, transformer.Bitransformer)
  with found.graph.as_default():
    tf.train.get_or_create_global_step()  # as a trainer does
  assert found.variables.keys() == found.shapes.keys()
  assert found.variables[R].shape.as_list() == [3, 14, 14]
  assert found.shapes[R].dimension_names == [
    'heads', 'length', 'memory_length',
  ]  # fmt: skip
  assert found.shapes['shared/embedding'].to_integer_list == [128, 24]
  drawn = found.initial_values([R])
  assert drawn.keys() == {R}
  assert 0.8 < drawn[R].std() < 1.2
  ours = synth_mtf.SyntheticAttention
  assert {scope: type(x) for scope, x in found.attention.items()} == {
    'encoder/block_000/layer_000/SyntheticAttention': ours,
    'decoder/block_000/layer_000/SyntheticAttention': ours,
    'decoder/block_000/layer_001/EncDecAttention': (
      transformer_layers.EncDecAttention
    ),
  }
  scopes = [scope for scope, _ in host_model.layers(found.transformer)]
  assert scopes[-1] == 'decoder/block_000/layer_002/DenseReluDense'


def test_placeholders_stand_for_the_variables_of_what_is_counted():
  variables = build(countable=False).variables.values()
  placeholders = build(countable=True).variables.values()
  assert comparison.specs_of(placeholders) == comparison.specs_of(variables)
  with pytest.raises(UserError, match="Random.stddev = 'wide'"):
    build(bindings=['Random.stddev = "wide"'], countable=True)


def test_a_language_model():
  found = build('vanilla', ["utils.run.model_type = 'lm'"], packed=True)
  assert isinstance(found.transformer, transformer.Unitransformer)
  assert list(found.attention) == [
    'transformer/block_000/layer_000/SyntheticAttention'
  ]


def test_vocabularies_of_two_sizes():
  gin_files.parse(model.files('random'), model.TINY)
  made = host_model.make_transformer(128, 256)
  assert made.encoder.input_vocab_dim.size == 128
  assert made.decoder.output_vocab_dim.size == 256


@pytest.mark.sampled
@pytest.mark.parametrize('mode', ['train', 'eval', 'infer'])
@pytest.mark.parametrize('packed', [False, True])
def test_modes_and_packed_rows(mode, packed):
  found = build(mode=mode, packed=packed)
  assert found.variables.keys() == build().variables.keys()


def test_lengths_and_batch():
  found = build(lengths={'inputs': 11, 'targets': 5}, batch=3)
  outputs = [t for op in found.mtf_graph.operations for t in op.outputs]
  sizes = {(d.name, d.size) for t in outputs for d in t.shape}
  assert {('length', 11), ('length', 5), ('batch', 3)} <= sizes


def test_an_argument_that_a_layer_does_not_have():
  with pytest.raises(UserError, match=r"'pakced'\n.*:\n  \S*\.pakced = True$"):
    build(bindings=['SyntheticAttention.pakced = True'])
