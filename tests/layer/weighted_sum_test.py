"""Every way to the weighted sum, and which is taken; extreme logits."""

from typing import Any

import numpy as np
import pytest

from synth_mtf.core import dimensions
from synth_mtf.cpu import tiles
from synth_mtf.errors import ConfigurationError
from synth_mtf.layer import weighted_sum
from tests import checks, family, harness
from tests.family import PACKED, PADDED
from tests.harness import DECODER, ENCODER

pytestmark = pytest.mark.sampled

# One table, and two whose centers differ.
tables = family.some('random', 'random_random')
UNSHARED_DROPOUT: dict[str, Any] = {
  'attention_kwargs': {'dropout_broadcast_dims': []}
}


@pytest.mark.parametrize(
  'name, shared, settings',
  [
    ('random', True, {}),
    ('random', True, {'dropout_rate': 0.5}),
    ('random', True, {'relative_attention_type': 'bias'}),
    ('random', True, {'normalize': None}),
    # Without dropout, its dimensions do not matter.
    ('random', True, UNSHARED_DROPOUT),
    ('random', False, {'dropout_rate': 0.5, **UNSHARED_DROPOUT}),
    ('random', False, {'packed': True}),
    ('random', False, {'relative_attention_type': 'contextual'}),
    ('dense', False, {}),
    ('random_vanilla', False, {}),
  ],
)
def test_the_way_follows_from_what_depends_on_the_batch(name, shared, settings):
  ids = PADDED.ids
  result = harness.parallel(
    family.ALL[name].but(**settings), family.tokens(ids), ids, DECODER
  )
  examples = 1 if shared else len(ids)
  assert result.largest(7, 7) == examples * family.HEADS * 7 * 7


@pytest.mark.parametrize(
  'dim, size',
  family.one_in(3, [('memory_length', 2), ('heads', 3), ('batch', 2)]),
)
@pytest.mark.parametrize('name', ['random', 'random_vanilla'])
def test_any_dimension_may_be_split(name, dim, size):
  """If it is memory_length, there is no fused softmax and no shared way."""
  ids = np.concatenate([PADDED.ids, PADDED.ids[:, :1]], axis=1)
  member = family.ALL[name].of_size(max_length=8).but(z_loss_coeff=0.1)
  mesh = harness.Mesh(f'all:{size}', f'{dim}:all')
  checks.on_a_mesh(member, family.Rows(ids, ids), DECODER, mesh)


@pytest.mark.parametrize(
  ('mesh', 'message'),
  [
    (harness.Mesh('all:5', 'd_kv:all'), 'split d_kv, which .* cannot'),
    (
      harness.Mesh('a:2,b:2', 'memory_length:a;length:b'),
      'split both length and memory_length',
    ),
  ],
)
def test_what_may_not_be_split(mesh, message):
  with pytest.raises(ConfigurationError, match=message):
    harness.parallel(
      family.ALL['random_vanilla'], family.tokens(PADDED.ids), mesh=mesh
    )


def test_float16_is_refused():
  with pytest.raises(ConfigurationError, match="'float16': Synth.*'bfloat16'"):
    harness.parallel(
      family.R, family.tokens(PADDED.ids), PADDED.ids, dtype='float16'
    )


# The way of TPUs and of meshes.
STEP_BY_STEP = weighted_sum, 'can_attend', lambda *_: False


@pytest.mark.slow  # many members in each way
@pytest.mark.parametrize(
  'way, rows, stack',
  [
    (STEP_BY_STEP, PACKED, DECODER),
    ((tiles, '_TILE', 5 * 14), PADDED, ENCODER),  # tiles of 5 queries
    ((tiles, '_TILE', 3 * 14), PACKED, DECODER),  # of 3
  ],
  ids=['step by step', 'tiles of 5 queries', 'tiles of 3 queries'],
)
@family.every({n: family.ALL[n] for n in family.FEW if n in family.ALL})
def test_each_way_is_the_reference(monkeypatch, member, way, rows, stack):
  monkeypatch.setattr(*way)
  checks.parallel(member, rows, stack)


# Layers of each way that a TPU takes, with and without biases of the values.
on_a_tpu = family.some(
  *('random', 'dense', 'factorized_dense', 'random_dense_vanilla'),
  'factorized_random_factorized_dense_vanilla',
  *('biased_values_random', 'biased_values_random_vanilla'),
  *('biased_values_mlp_mixer', 'cross_biased_values'),
)


@on_a_tpu
@pytest.mark.parametrize(
  'rows, stack', [(PADDED, ENCODER), (PADDED, DECODER), (PACKED, DECODER)]
)
def test_a_tpu_computes_the_reference(member, rows, stack):
  checks.parallel(member, rows, stack, mesh=harness.TPU)


@family.some('biased_values_random', 'biased_values_random_vanilla')
def test_biased_values_leave_padding_at_0(member):
  result = checks.parallel(member.but(packed=True), PACKED, ENCODER)
  assert not result.output[PACKED.ids == 0].any()


@family.some('factorized_dense', 'biased_values_random_vanilla')
@pytest.mark.parametrize(
  'settings', [{'z_loss_coeff': 0.1}, {'relative_attention_type': 'bias'}]
)
def test_a_tpu_computes_the_reference_with(member, settings):
  checks.parallel(member.but(**settings), PADDED, DECODER, mesh=harness.TPU)


@family.some('random', 'random_vanilla', 'dense_vanilla', 'factorized_dense')
@pytest.mark.parametrize('rows', [PADDED, PACKED])
def test_a_gpu_computes_the_reference(member, rows):
  with dimensions.programs_for('gpu'):
    checks.parallel(member, rows, DECODER, mesh=harness.TPU)


@family.some('vanilla', 'dense_vanilla')
def test_a_gpu_multiplies_logits_out_once(member):
  """A TPU does so twice, and stores neither."""
  batch, n = PADDED.ids.shape
  counts = {}
  for platform in ('tpu', 'gpu'):
    with dimensions.programs_for(platform):
      result = harness.parallel(
        member,
        family.tokens(PADDED.ids),
        PADDED.ids,
        DECODER,
        mesh=harness.TPU,
      )
    counts[platform] = result.shapes.count((batch, family.HEADS, n, n))
  assert counts['tpu'] > counts['gpu'] > 0


@family.some('factorized_dense', 'biased_values_random')
def test_bfloat16_on_a_tpu_is_near_the_reference(member):
  checks.parallel(member, PADDED, ENCODER, dtype='bfloat16', mesh=harness.TPU)


@pytest.mark.slow  # of a size of its own
@pytest.mark.parametrize(
  'name, has_table',
  [
    ('vanilla', False),
    ('factorized_random', False),
    ('factorized_random_vanilla', False),
    ('dense', False),
    ('random', True),
    ('random_vanilla', True),
  ],
)
def test_only_a_table_is_as_large_as_the_alignment(
  monkeypatch, name, has_table
):
  length = 30
  monkeypatch.setattr(tiles, '_TILE', 3 * 2 * length)
  monkeypatch.setattr(tiles, '_MOST_TILES', length**2)
  result = harness.parallel(
    family.ALL[name].of_size(max_length=length).but(key_value_size=1),
    harness.draw('x', [2, length, 4]),
    np.ones([2, length], int),
    DECODER,
  )
  # A window has no static size; it is no larger than its tile.
  largest = result.largest()
  alignment = family.HEADS * length**2
  # Masks have no heads, but are as large as that otherwise.
  assert largest == alignment if has_table else largest < alignment


def spread(extent, low=None):
  """Tables whose entries are uniform between `low` (-extent) and `extent`."""
  low = -extent if low is None else low

  def weights(name, shape):
    if not name.startswith('random'):
      return harness.draw(name, shape)
    rng = np.random.RandomState(len(name))
    return rng.uniform(low, extent, shape).astype(np.float32)

  return weights


@tables
@pytest.mark.parametrize('stack', family.one_in(2, [DECODER, ENCODER]))
@pytest.mark.parametrize(
  'mesh', [harness.ONE_DEVICE, harness.TPU], ids=['cpu', 'tpu']
)
def test_logits_may_spread_over_60(member, stack, mesh):
  checks.parallel(
    member,
    PADDED,
    stack,
    weights=spread(60.0),
    mesh=mesh,
    # exp(x) of a float32 x is exact to |x| 2^-24.
    tolerance=60 * 2.0**-22,
  )


@tables
@pytest.mark.parametrize('packed', [False, True], ids=['shared', 'general'])
def test_a_common_offset_of_the_logits_changes_nothing(member, packed):
  checks.parallel(
    member.but(packed=packed),
    PADDED,
    ENCODER,
    weights=spread(1003.0, 1000.0),
    tolerance=1e-3,  # near 1000, float32 is exact to 1e-4
  )


@family.some('random', 'random_random', 'random_vanilla')
@pytest.mark.parametrize('extent', family.one_in(2, [1e20, 1e3]))
def test_no_logits_make_a_nan(member, extent):
  ids = PADDED.ids
  result = harness.parallel(
    member, family.tokens(ids), ids, DECODER, weights=spread(extent)
  )
  assert np.isfinite(result.output).all()
  for where, gradient in result.gradients.items():
    assert np.isfinite(gradient).all(), where


def far_column(name, shape):
  """Tables with a column that only the longest sequences of PADDED see."""
  weights = 2.0 * harness.draw(name, shape)
  if name.startswith('random'):
    weights[..., 5] += 400.0
  return weights


def column_above(distance):
  """Tables with a column that is about this far above all others.

  In a mixture, too, whose alphas sum to 1.
  """

  def weights(name, shape):
    array = harness.draw(name, shape)
    if name.endswith('/R'):
      array[..., 5] += distance
    if name.endswith('/R1'):
      array[..., 0] = 1.0
    if name.endswith('/R2'):
      array[..., 5, :] = 0.0
      array[..., 5, 0] = distance
    return array

  return weights


# Nobody sees that column: it would multiply rounding errors.
SHORT = family.Rows(
  PADDED.ids * (np.arange(7) < 5), PADDED.inputs * (np.arange(9) < 5)
)
MIXED = family.R + family.FR
IN_BFLOAT16 = {'dtype': 'bfloat16'}
ON_A_TPU = {'mesh': harness.TPU}


@pytest.mark.parametrize(
  'member',
  [
    pytest.param(member, id=name)
    for name, member in {
      'R': family.R,
      'FR': family.FR,
      'R+FR': MIXED,
      'R, biased values': family.ALL['biased_values_random'],
      'cross R': family.CROSS['cross_random'],
      'cross R+FR': family.across(MIXED),
    }.items()
  ],
)
@pytest.mark.parametrize(
  'distance, rows, settings',
  family.one_in(
    3,
    [
      *((d, PADDED, {}) for d in (120.0, 80.0, 95.0, 145.0, 155.0, 200.0)),
      *((d, PADDED, ON_A_TPU) for d in (120.0, 80.0, 95.0, 145.0)),
      *((d, SHORT, IN_BFLOAT16) for d in (80.0, 95.0, 145.0, 120.0)),
    ],
  ),
)
def test_logits_at_padding_may_be_far_above_those_of_tokens(
  member, distance, rows, settings
):
  """The distance multiplies the gradient of a factor, and its rounding."""
  rounding = harness.TOLERANCE[settings.get('dtype', 'float32')]
  checks.parallel(
    member,
    rows,
    ENCODER,
    weights=column_above(distance),
    tolerance=max(rounding, distance * 2.0**-22),
    **settings,
  )


@pytest.mark.parametrize('settings', [{}, ON_A_TPU])
def test_logits_at_padding_may_be_far_above_log_z(settings):
  member = family.R.but(z_loss_coeff=0.1)
  weights = column_above(120.0)
  checks.parallel(member, PADDED, ENCODER, weights=weights, **settings)


@pytest.mark.parametrize('settings', [{}, ON_A_TPU])
@pytest.mark.parametrize('rows', [PADDED, PACKED])
def test_as_packed_rows_logits_at_padding_may_be_any(rows, settings):
  checks.parallel(
    MIXED.but(packed=True),
    rows,
    ENCODER,
    weights=column_above(400.0),
    tolerance=400 * 2.0**-22,
    **settings,
  )


@tables
@pytest.mark.parametrize('stack', family.one_in(2, [ENCODER, DECODER]))
@pytest.mark.parametrize(
  'mesh',
  [harness.ONE_DEVICE, harness.Mesh('all:3', 'heads:all')],
  ids=['one device', 'split heads'],
)
def test_a_padding_position_may_have_any_logit(member, stack, mesh):
  checks.parallel(
    member,
    PADDED,
    stack,
    weights=far_column,
    mesh=mesh,
    tolerance=400 * 2.0**-22,
  )


def test_a_tile_may_span_any_logits(monkeypatch):
  monkeypatch.setattr(tiles, '_TILE', 3 * 14)
  checks.parallel(
    family.R, PADDED, ENCODER, weights=far_column, tolerance=400 * 2.0**-22
  )


@family.some('random', 'random_random', 'biased_values_random')
def test_a_tpu_gives_nan_where_its_exponentials_do_not_suffice(member):
  ids = PADDED.ids
  found, expected = (
    harness.parallel(
      member, family.tokens(ids), ids, ENCODER, weights=far_column, mesh=mesh
    ).output
    for mesh in (harness.TPU, harness.ONE_DEVICE)
  )
  assert np.isnan(found[1, :4]).all()
  harness.assert_close(found[0], expected[0], 'sees the column', 1e-4)
  assert not found[3].any()


@family.some('random', 'random_random', 'biased_values_random')
@pytest.mark.parametrize('settings', [{}, {'z_loss_coeff': 0.1}])
def test_a_column_that_only_padding_sees_makes_no_nan(member, settings):
  """In a decoder, the column comes after the tokens of the shorter rows."""
  checks.parallel(
    member.but(**settings),
    PADDED,
    DECODER,
    weights=far_column,
    mesh=harness.TPU,
    tolerance=400 * 2.0**-22,
  )


def test_a_far_lower_logit_has_no_weight():
  x = family.tokens(np.ones([1, 2]))

  def weights(name, shape):
    if name != 'random/R':
      return harness.draw(name, shape)
    return np.broadcast_to(np.array([1e6] + [0] * (shape[-1] - 1)), shape)

  far = harness.parallel(
    family.R, x, np.ones([1, 2], int), mode='eval', weights=weights
  )
  first = x[:, :1] @ far.weights['v'] @ far.weights['o']
  harness.assert_close(far.output, np.repeat(first, 2, axis=1), 'output')
