"""Whole models with `common/fast_cpu.gin` and without: the same numbers."""

import mesh_tensorflow as mtf
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer_layers

from synth_mtf import DotProductEncDecAttention, SyntheticEncDecAttention
from synth_mtf.host import gin_files, model as host_model
from synth_mtf.results import labels
from tests import harness, model

pytestmark = pytest.mark.slow  # builds whole models

FAST = "include 'common/fast_cpu.gin'"
VARIANTS = [None, 'random_vanilla', 'random+cross_dense']
BINDINGS = [
  *model.TINY,
  'num_layers = 1',
  'dropout_rate = 0.0',
  'Bitransformer.decode.max_decode_length = 6',
  'Bitransformer.decode.temperature = 0.0',
]
TYPES = mtf.VariableDType(tf.float32, tf.float32, tf.float32)
# Both sides are float32, and of alpha's gradient little is left of a long sum.
ROUNDING = 5e-5
INPUTS = np.array([[5, 9, 2, 77, 9, 1], [127, 3, 1, 0, 0, 0]])
TARGETS = np.array([[4, 9, 9, 1], [60, 1, 0, 0]])


def computed(variant, more, outputs, examples=2):
  """The outputs of a model with known weights, by name; and its variables."""
  gin_files.parse(model.files(variant), [*BINDINGS, *more])
  names = []

  def build(mesh):
    made = outputs(
      host_model.make_transformer(model.VOCAB),
      *(
        harness.constant(mesh, ids[:examples], 'batch length')
        for ids in (INPUTS, TARGETS)
      ),
    )
    names.extend(sorted(v.name for v in mesh.graph.all_variables))
    return made

  return harness.evaluate(build), names


def gradients(transformer, inputs, targets):
  """Logits, loss, and the gradient of each variable."""
  logits, loss = model.call(transformer, inputs, targets)
  variables = logits.graph.trainable_variables
  found = mtf.gradients([loss], [v.outputs[0] for v in variables])
  return {
    'logits': logits,
    'loss': loss,
    **{v.name: g for v, g in zip(variables, found, strict=True)},
  }


def answers(transformer, inputs, _targets):
  """What is decoded."""
  return {'answers': transformer.decode(inputs, variable_dtype=TYPES)}


def layer_classes(variant, more):
  gin_files.parse(model.files(variant), [*BINDINGS, *more])
  made = host_model.make_transformer(model.VOCAB)
  return {scope: type(layer) for scope, layer in host_model.layers(made)}


@pytest.mark.parametrize(
  'variant, cross_attention',
  [
    (None, transformer_layers.EncDecAttention),
    ('vanilla', DotProductEncDecAttention),
    ('random+cross_dense', SyntheticEncDecAttention),
  ],
)
def test_only_a_variant_without_cross_attention_gets_one(
  variant, cross_attention
):
  before, after = layer_classes(variant, []), layer_classes(variant, [FAST])
  assert list(before) == list(after), 'scopes of variables'
  changed = {x for x in after if before[x].__module__ != after[x].__module__}
  others = ('EncDecAttention', 'DenseReluDense') if variant else ()
  assert changed == {x for x in after if after[x].__name__ in others}
  assert all(
    issubclass(after[x], cross_attention) for x in after if 'EncDec' in x
  )


@pytest.mark.parametrize('variant', [None, 'vanilla', 'random+cross_dense'])
def test_a_model_keeps_its_name_in_tables(variant):
  gin_files.parse(model.files(variant), BINDINGS)
  expected = labels.kind(host_model.make_transformer()).label
  gin_files.parse(model.files(variant), [*BINDINGS, FAST])
  assert labels.kind(host_model.make_transformer()).label == expected


@pytest.mark.parametrize('variant', VARIANTS)
def test_trains_the_same_variables_by_the_same_gradients(variant):
  expected, variables = computed(variant, [], gradients)
  found, same = computed(variant, [FAST], gradients)
  assert same == variables
  harness.assert_close(found, expected, 'gradient', ROUNDING)


@pytest.mark.parametrize('variant', VARIANTS)
@pytest.mark.parametrize('examples, beam_size', [(1, 1), (2, 3)])
def test_decodes_the_same(variant, beam_size, examples):
  beam = f'Bitransformer.decode.beam_size = {beam_size}'
  expected, _ = computed(variant, [beam], answers, examples)
  found, _ = computed(variant, [beam, FAST], answers, examples)
  assert expected['answers'].any()
  np.testing.assert_array_equal(found['answers'], expected['answers'])


@pytest.mark.parametrize('outputs', [gradients, answers])
def test_the_feed_forward_layer_has_the_hosts_settings(outputs):
  settings = [
    "DenseReluDense.activation = ['gelu', 'linear']",
    'DenseReluDense.use_bias = True',
  ]
  expected, variables = computed('random', settings, outputs, 1)
  found, same = computed('random', [*settings, FAST], outputs, 1)
  assert same == variables
  assert any(name.endswith('DenseReluDense/wi_1/bias') for name in same)
  harness.assert_close(found, expected, 'value', ROUNDING)


def test_no_variable_is_read_sparsely():
  """Each later read of such a variable would copy all of it."""
  gin_files.parse(model.files('random'), [*BINDINGS, FAST])
  with harness.new_graph() as (graph, mesh):
    inputs = harness.constant(mesh, INPUTS, 'batch length')
    answers(host_model.make_transformer(model.VOCAB), inputs, None)
    mtf.Lowering(graph, {mesh: harness.ONE_DEVICE.implementation()})
    definition = tf.get_default_graph().as_graph_def()
  functions = definition.library.function
  nodes = [*definition.node, *(n for f in functions for n in f.node_def)]
  operations = {node.op for node in nodes}
  assert 'GatherV2' in operations
  assert 'ResourceGather' not in operations
