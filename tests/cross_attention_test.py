"""Whole models with synthesized cross-attention: from gin files, decoded."""

import pathlib

import mesh_tensorflow as mtf
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer_layers, utils

import synth_mtf
from synth_mtf.host import gin_files
from synth_mtf.host import model as host_model
from synth_mtf.results import labels
from tests import harness

pytestmark = pytest.mark.slow  # builds whole models

GIN = pathlib.Path(synth_mtf.gin_path())
VARIANTS = sorted(path.stem for path in GIN.glob('variants/*.gin'))
CROSS = [name for name in VARIANTS if name.startswith('cross_')]
OWN = [name for name in VARIANTS if not name.startswith('cross_')]
TINY = (
  'd_model = 10',
  'd_ff = 6',
  'num_layers = 1',
  'num_heads = 2',
  'd_kv = 3',
  'encoder/Unitransformer.max_length = 9',
  'decoder/Unitransformer.max_length = 6',
  'Unitransformer.vocab_divisor = 1',
)
VOCAB, EOS = 19, 1
FLOAT32 = mtf.VariableDType(tf.float32, tf.float32, tf.float32)
INPUTS = np.random.RandomState(0).randint(2, VOCAB, [3, 9])
INPUTS[1, 5:] = INPUTS[2, 2:] = 0


def files(*variants):
  return ['sizes/tiny.gin', *(f'variants/{name}.gin' for name in variants)]


def _layers(*variants):
  """What tells the layers of a model apart, without calling them."""
  gin_files.parse(files(*variants), TINY)
  found = {}
  for scope, layer in host_model.layers(host_model.make_transformer(VOCAB)):
    functions = getattr(layer, 'synthesizers', [])
    settings = [
      (f.scope, {k: v for k, v in vars(f).items() if k != 'inner'})
      for f in functions
    ]
    found[scope.rpartition('/')[0]] = type(layer).__name__, str(settings)
  return found


def test_variants_of_the_two_kinds_compose_in_either_order():
  """Neither changes the other, though both may have the same functions."""
  plain = {name: _layers(name) for name in VARIANTS}
  place = 'decoder/block_000/layer_001'
  for own, cross in (
    *((own, 'cross_factorized_random_vanilla') for own in OWN),
    *(('fixed_random', cross) for cross in CROSS),
  ):
    expected = {**plain[own], place: plain[cross][place]}
    assert _layers(own, cross) == expected, (own, cross)
    assert _layers(cross, own) == expected, (cross, own)


def test_without_a_self_attention_variant_it_is_t5s():
  plain, cross = _layers(), _layers('cross_random')
  place = 'decoder/block_000/layer_001'
  assert plain.pop(place)[0] == 'EncDecAttention'
  assert cross.pop(place)[0] == 'SyntheticEncDecAttention'
  assert cross == plain


@pytest.mark.parametrize(
  'variants, label',
  [
    (['cross_random'], 'T5, cross-attention R'),
    (['random', 'cross_dense_vanilla'], 'Syn (R), cross-attention D+V'),
    (['random'], 'Syn (R)'),
  ],
)
def test_label(variants, label):
  gin_files.parse(files(*variants), TINY)
  assert labels.label() == label


def run(build, *variants, bindings=(), weights=harness.draw):
  """Fetches what `build(mesh, model)` makes of a model."""
  gin_files.parse(files(*variants), [*TINY, *bindings])
  with harness.new_graph() as (graph, mesh):
    model = utils.build_model('bitransformer', VOCAB, VOCAB)
    fetches = build(mesh, model)
    with harness.open_session(
      graph, mesh, harness.ONE_DEVICE, fetches, weights
    ) as session:
      return session.run({})


def ids(mesh, array):
  dims = [mtf.Dimension(n, s) for n, s in zip(['batch', 'length'], array.shape)]
  return mtf.import_tf_tensor(
    mesh, tf.constant(array, tf.int32), mtf.Shape(dims)
  )


def logits(model, inputs, targets, **settings):
  return model.call_simple(
    inputs,
    targets,
    compute_loss=False,
    mode='eval',
    variable_dtype=FLOAT32,
    **settings,
  )[0]


@pytest.mark.parametrize(
  'variants',
  [
    ['cross_random'],
    ['random', 'cross_factorized_random_dense'],
    ['dense_vanilla', 'cross_random_vanilla'],
  ],
  ids=' '.join,
)
def test_greedy_and_sampling(variants):
  """Every token is the most likely one after those before it."""

  def build(mesh, model):
    inputs = ids(mesh, INPUTS)
    greedy, top_1 = (
      model.decode(inputs, FLOAT32, max_decode_length=6, **settings)
      for settings in ({}, {'temperature': 1.0, 'sampling_keep_top_k': 1})
    )
    segments = {
      'encoder_sequence_id': mtf.cast(mtf.not_equal(inputs, 0), tf.int32),
      'decoder_sequence_id': mtf.ones_like(greedy),
    }
    return {
      'greedy': greedy,
      'top_1': top_1,
      'logits': logits(model, inputs, greedy, **segments),
    }

  found = run(build, *variants)
  np.testing.assert_array_equal(found['top_1'], found['greedy'])
  assert found['greedy'].any(axis=1).all(), 'nothing was decoded'
  for row, scores in zip(found['greedy'].astype(int), found['logits']):
    for token, score in zip(row, scores):
      assert score[token] >= score.max() - 1e-4
      if token == EOS:
        break


def as_t5(name, shape):
  return harness.draw(name.replace('Synthetic', ''), shape)


def test_beams_of_vanilla_are_those_of_t5():
  def build(mesh, model):
    return model.decode(
      ids(mesh, INPUTS), FLOAT32, beam_size=4, max_decode_length=5
    )

  ours = run(build, 'cross_vanilla', weights=as_t5)
  np.testing.assert_array_equal(ours, run(build))


@pytest.mark.parametrize('kind', ['bias', 'bias_shared'])
def test_the_hosts_relative_position_bias(kind):
  """Which T5 does not use, and which counts spans of sentinels."""
  bindings = [
    f"EncDecAttention.relative_attention_type = '{kind}'",
    'transformer_layers.relative_position_spans.num_sentinels = 4',
  ]

  def build(mesh, model):
    return logits(model, ids(mesh, INPUTS), ids(mesh, INPUTS[:, :6]))

  ours = run(build, 'cross_vanilla', bindings=bindings, weights=as_t5)
  harness.assert_close(
    ours[INPUTS[:, :6] != 0], run(build, bindings=bindings)[INPUTS[:, :6] != 0]
  )
  without = run(build)
  assert np.abs(ours - without)[INPUTS[:, :6] != 0].max() > 1e-3


def test_packed_rows_are_the_examples_alone():
  """Two examples in one row, of another length on each side."""
  row = np.array([[2, 3, 4, 5, 6, 7, 8, 9, 0]])
  row_ids = np.array([[1, 1, 1, 2, 2, 2, 2, 2, 0]])
  target = np.array([[10, 11, 12, 13, 14, 15]])
  target_ids = np.array([[1, 1, 1, 1, 2, 2]])

  def packed(mesh, model):
    return logits(
      model,
      ids(mesh, row),
      ids(mesh, target),
      encoder_sequence_id=ids(mesh, row_ids),
      decoder_sequence_id=ids(mesh, target_ids),
    )

  def alone(mesh, model):
    def part(ids_, segments, segment):
      values = ids_[segments == segment]
      padding = [0] * (ids_.shape[1] - len(values))
      return [*values, *padding]

    inputs, targets = (
      np.array([part(a, i, segment) for segment in (1, 2)])
      for a, i in ((row, row_ids), (target, target_ids))
    )
    return logits(model, ids(mesh, inputs), ids(mesh, targets))

  variants = ['random_dense', 'cross_random_dense']
  one = run(packed, *variants, bindings=['mesh_train_dataset_fn.pack = True'])
  other = run(alone, *variants, bindings=['mesh_train_dataset_fn.pack = False'])
  harness.assert_close(one[0, :4], other[0, :4])
  harness.assert_close(one[0, 4:], other[1, :2])


def test_parameters():
  """A row for each target, a column for each input, in each block and head."""
  gin_files.parse(files('cross_random'), TINY)
  model = host_model.build(VOCAB, lengths={'inputs': 9, 'targets': 6})
  scope = 'decoder/block_000/layer_001/SyntheticEncDecAttention'
  found = {
    name[len(scope) + 1 :]: variable.shape.as_list()
    for name, variable in model.variables.items()
    if name.startswith(scope)
  }
  assert found == {'random/R': [2, 6, 9], 'v': [10, 6], 'o': [6, 10]}
  for scope, layer in model.attention.items():
    if isinstance(layer, synth_mtf.SyntheticEncDecAttention):
      assert [f.parameters(10, 2, 3) for f in layer.synthesizers] == [2 * 6 * 9]
    else:
      assert type(layer) is transformer_layers.SelfAttention, scope


@pytest.mark.parametrize('packed', [False, True], ids=['unpacked', 'packed'])
@pytest.mark.parametrize(
  'binding',
  [
    'transformer.LayerStack.recompute_grads = True',
    'transformer.make_layer_stack.layer_stack_cls = '
    '@transformer.ReversibleLayerStack',
    'Unitransformer.ensemble = 2',
  ],
  ids=['recomputed', 'reversible', 'ensemble'],
)
def test_every_weight_has_a_gradient(binding, packed):
  """Of every kind of stack; R looks at no token of the decoder."""
  gin_files.parse(
    files('factorized_random_dense', 'cross_random'),
    [*TINY, binding, f'mesh_train_dataset_fn.pack = {packed}'],
  )
  model = host_model.build(
    VOCAB, lengths={'inputs': 9, 'targets': 6}, mode='train', packed=packed
  )
  variables = model.mtf_graph.trainable_variables
  loss = model.mtf_graph.operations[-1].outputs[0]
  with model.graph.as_default():
    gradients = mtf.gradients([loss], [v.outputs[0] for v in variables])
  assert not [v.name for v, g in zip(variables, gradients) if g is None]
