"""Recorded logits, weights and alphas are the reference's; alpha's variable."""

import contextlib
import dataclasses
import functools
from concurrent import futures

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer_layers

from synth_mtf.attention.recording import Alignment, recorded_by
from tests import checks, family, harness
from tests.family import D_KV, HEADS, PACKED, PADDED, D, R, V
from tests.harness import DECODER, ENCODER

pytestmark = pytest.mark.sampled

BIAS = {'relative_attention_type': 'bias'}


@pytest.mark.parametrize('name', family.one_in(2, family.FEW))
def test_padded_rows(name):
  member = family.FEW[name]
  stack = DECODER if member.is_cross_attention else ENCODER
  checks.alignment(member, PADDED, stack)


@family.some('random', 'dense', 'random_dense_vanilla', 'mlp_mixer')
def test_packed_rows(member):
  checks.alignment(member, PACKED, DECODER)


@pytest.mark.parametrize(
  'layer, settings, member, stack',
  [
    *(
      (transformer_layers.SelfAttention, BIAS, family.V.but(**BIAS), stack)
      for stack in (ENCODER, DECODER)
    ),
    (
      transformer_layers.EncDecAttention,
      {},
      family.CROSS['cross_vanilla'],
      DECODER,
    ),
  ],
)
def test_the_hosts_layers_are_the_references_v(layer, settings, member, stack):
  make = functools.partial(
    layer, num_heads=HEADS, key_value_size=D_KV, **settings
  )
  checks.alignment(member, PADDED, stack, make)


@pytest.mark.parametrize('kind', ['bias', 'bias_shared'])
@family.some('random_vanilla')
def test_relative_position_bias(member, kind):
  member = member.but(relative_attention_type=kind)
  checks.alignment(member, PADDED, DECODER)


@pytest.mark.parametrize(
  'name, has_batch',
  [('random', False), ('random_dense', True), ('vanilla', True)],
)
def test_shared_logits_have_no_batch(name, has_batch):
  alignment, _ = checks.recorded(family.ALL[name], PADDED, ENCODER)
  assert ('batch' in alignment.logits.shape.dimension_names) == has_batch


@pytest.mark.parametrize(
  'mixing, shape',
  [
    ('softmax', (3, HEADS)),
    ('layer_softmax', (3,)),
    ('layer_sigmoid', (2,)),
    ('sum', None),
  ],
)
@family.some('random_dense_vanilla')
def test_alpha(member, mixing, shape):
  _, found = checks.recorded(member.but(mixing=mixing), PADDED, ENCODER)
  if shape is None:
    assert found['alphas'] == []
    return
  e = np.exp(harness.draw('alpha', shape).astype(np.float64))
  e = np.append(e, np.ones_like(e[: 3 - len(e)]), axis=0)
  expected = e / e.sum(0)
  harness.assert_close(np.stack(found['alphas']), expected, 'alpha')


@pytest.mark.parametrize(
  'member, mixing, shape',
  [
    (R + D + V, 'softmax', (3, 3)),
    (R + D + V, 'layer_softmax', (3,)),
    (R + D + V, 'layer_sigmoid', (2,)),
    (R + D + V, 'sum', None),
    ((R + V).but(num_heads=1), 'softmax', (2,)),
    *((R, mixing, None) for mixing in ('softmax', 'layer_softmax', 'sum')),
  ],
)
def test_variable_of_alpha(member, mixing, shape):
  """[synthesizers, heads], before its softmax; all start with equal weights."""
  member = member.but(mixing=mixing)
  x = family.tokens(np.ones([2, 7]))
  drawn = harness.parallel(member, x, mode='eval', weights=None).weights
  if shape is None:
    assert 'alpha' not in drawn
  else:
    np.testing.assert_array_equal(drawn['alpha'], np.zeros(shape))


@family.some('random_vanilla')
def test_weights_are_those_before_dropout(member):
  (_, trained), (_, evaluated) = (
    checks.recorded(
      member.but(dropout_rate=0.5),
      PADDED,
      dataclasses.replace(ENCODER, mode=mode),
    )
    for mode in ('train', 'eval')
  )
  harness.assert_close(trained['weights'], evaluated['weights'], 'weights')


def operations(member, recording):
  """Calls a layer in this context; returns the number of operations."""
  with harness.new_graph() as (graph, mesh):
    x = family.tokens(PADDED.ids)
    context = harness.host_context(mesh, x.shape, PADDED.ids)
    with recording, tf.variable_scope(harness.SCOPE):
      member().call(context, harness.constant(mesh, x, 'batch length d_model'))
    return len(graph.operations)


@family.some('random_dense')
def test_without_a_recorder_nothing_is_computed(member):
  alignments: list[Alignment] = []
  before = transformer_layers.SelfAttention.call
  with contextlib.suppress(ValueError), recorded_by(alignments.append):
    raise ValueError  # this recorder is no longer active
  assert transformer_layers.SelfAttention.call is before
  without = operations(member, contextlib.nullcontext())
  assert not alignments
  assert without < operations(member, recorded_by(alignments.append))
  assert alignments


@family.some('random')
def test_each_recorder_gets_the_calls_of_its_own_thread(member):
  outer: list[Alignment] = []
  inner: list[Alignment] = []
  with recorded_by(outer.append), futures.ThreadPoolExecutor(1) as thread:
    thread.submit(operations, member, contextlib.nullcontext()).result()
    assert not outer
    operations(member, recorded_by(inner.append))
  assert len(outer) == len(inner) == 1
