"""Whole models with synthesized cross-attention, from gin files."""

import mesh_tensorflow as mtf
import numpy as np
import pytest

from synth_mtf.cost import cost_of_files
from synth_mtf.host import gin_files, model as host_model
from synth_mtf.results import labels
from tests import decoding_test, harness, model
from tests.decoding_test import VOCAB, as_t5, ids, in_parallel, run

pytestmark = pytest.mark.slow  # builds whole models

CROSS = [name for name in model.VARIANTS if name.startswith('cross_')]
OWN = [name for name in model.VARIANTS if name not in CROSS]
LENGTHS = {'inputs': 9, 'targets': 6}
TINY = (
  *decoding_test.TINY,
  'encoder/Unitransformer.max_length = 9',
  'decoder/Unitransformer.max_length = 6',
)
INPUTS = np.random.RandomState(0).randint(2, VOCAB, [3, 9])
INPUTS[1, 5:] = INPUTS[2, 2:] = 0


def parse(*variants, bindings=()):
  gin_files.parse(model.files('+'.join(variants)), [*TINY, *bindings])


def _layers(*variants):
  parse(*variants)
  found = {}
  for scope, layer in host_model.layers(host_model.make_transformer(VOCAB)):
    place, _, name = scope.rpartition('/')
    functions = getattr(layer, 'synthesizers', [])
    settings = [{**vars(f), 'inner': f.scope} for f in functions]
    found[place] = name, str(settings)
  return found


def test_variants_of_the_two_kinds_compose_in_either_order():
  plain = {name: _layers(name) for name in model.VARIANTS}
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


def test_label():
  parse('random', 'cross_dense_vanilla')
  assert (
    labels.kind(host_model.make_transformer()).label
    == 'Syn (R), cross-attention D+V'
  )


@pytest.mark.parametrize('kind', ['bias', 'bias_shared'])
def test_the_hosts_relative_position_bias(kind):
  """T5 does not use it; it counts spans between sentinels."""
  bindings = [
    f"EncDecAttention.relative_attention_type = '{kind}'",
    'transformer_layers.relative_position_spans.num_sentinels = 4',
  ]

  def build(mesh, model):
    inputs, targets = ids(mesh, INPUTS), ids(mesh, INPUTS[:, :6])
    return in_parallel(model, inputs, targets)

  tokens = INPUTS[:, :6] != 0
  bindings += TINY
  ours = run('cross_vanilla', build, bindings=bindings, weights=as_t5)
  theirs, without = run('', build, bindings=bindings), run('', build)
  harness.assert_close(ours[tokens], theirs[tokens])
  assert np.abs(ours - without)[tokens].max() > 1e-3


def test_packed_rows_are_the_examples_alone():
  row, row_ids = [[2, 3, 4, 5, 6, 7, 8, 9, 0]], [[1, 1, 1, 2, 2, 2, 2, 2, 0]]
  target, target_ids = [[10, 11, 12, 13, 14, 15]], [[1, 1, 1, 1, 2, 2]]
  inputs = [[2, 3, 4, 0, 0], [5, 6, 7, 8, 9]]
  targets = [[10, 11, 12, 13], [14, 15, 0, 0]]

  def packed(mesh, model):
    return in_parallel(
      model,
      ids(mesh, row),
      ids(mesh, target),
      encoder_sequence_id=ids(mesh, row_ids),
      decoder_sequence_id=ids(mesh, target_ids),
    )

  def alone(mesh, model):
    return in_parallel(model, ids(mesh, inputs), ids(mesh, targets))

  one, other = (
    run(
      'random_dense+cross_random_dense',
      build,
      bindings=[*TINY, f'mesh_train_dataset_fn.pack = {build is packed}'],
    )
    for build in (packed, alone)
  )
  harness.assert_close(one[0, :4], other[0, :4])
  harness.assert_close(one[0, 4:], other[1, :2])


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
  """In every kind of stack, although R ignores the decoder's tokens."""
  parse(
    'factorized_random_dense',
    'cross_random',
    bindings=[binding, f'mesh_train_dataset_fn.pack = {packed}'],
  )
  model = host_model.build(VOCAB, lengths=LENGTHS, mode='train', packed=packed)
  variables = model.mtf_graph.trainable_variables
  loss = model.mtf_graph.operations[-1].outputs[0]
  with model.graph.as_default():
    gradients = mtf.gradients([loss], [v.outputs[0] for v in variables])
  assert not [
    v.name for v, g in zip(variables, gradients, strict=True) if g is None
  ]


def test_queries_are_frozen_in_self_attention_alone():
  files = ['sizes/tiny.gin', 'variants/frozen_vanilla.gin']
  lengths = {'inputs': 16, 'targets': 16}
  host = cost_of_files(files, lengths, [])
  ours = cost_of_files([*files, 'common/cross_attention.gin'], lengths, [])
  assert ours.trained == host.trained < host.parameters
