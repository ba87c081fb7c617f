"""What every synthesizing function declares and has, for each of the family."""

import math

import gin
import numpy as np
import pytest

import synth_mtf
from synth_mtf.errors import ConfigurationError
from synth_mtf.synthesizers import base
from tests import checks, family, harness
from tests.family import PADDED
from tests.harness import DECODER

X = family.tokens(np.ones([2, 7]))
TILE = 4  # FactorizedDense makes it of 2 and 2

each_function = family.every(family.SINGLE)
each_table = family.every(family.SINGLE, takes='max_length')
each_tiled_table = family.every(family.SINGLE, takes='tile_length')


def variables(member, x=X):
  """The shapes of the variables that make the logits."""
  shapes = harness.variables(member, x)
  del shapes['v'], shapes['o']
  return shapes


LOCAL = {'W1': (11, 3, 5), 'W2': (3, 5, 13)}
CONVOLUTION = {'W1': (2, 11, 3, 5)}
FACTORIZED_RANDOM = {'R1': (3, 13, 4), 'R2': (3, 13, 4)}
FACTORIZED_DENSE = {'W1': (11, 3, 5), 'WA': (3, 5, 3), 'WB': (3, 5, 7)}
BOTTLENECK = {
  'D': (11, 2),
  'U': (2, 11),
  **{f'dense/{name}': shape for name, shape in LOCAL.items()},
}


@pytest.mark.parametrize(
  'name, heads, scope, expected',
  [
    ('random', 3, 'random/', {'R': (3, 13, 13)}),
    ('random', 1, 'random/', {'R': (13, 13)}),
    ('factorized_random', 3, 'factorized_random/', FACTORIZED_RANDOM),
    ('vanilla', 3, '', {'q': (11, 15), 'k': (11, 15)}),
    ('dense', 3, 'dense/', LOCAL),
    ('dense', 1, 'dense/', {'W1': (11, 5), 'W2': (5, 13)}),
    ('factorized_dense', 3, 'factorized_dense/', FACTORIZED_DENSE),
    ('convolution', 3, 'convolutional_dense/', {**LOCAL, **CONVOLUTION}),
    (
      'conv_relu_conv',
      3,
      'convolutional_dense/',
      {**CONVOLUTION, 'W2': (3, 2, 5, 13)},
    ),
    ('glu', 3, 'gated_dense/', {**LOCAL, 'Wg': (11, 3, 5)}),
    ('bottleneck_dense', 3, 'bottleneck_dense/', BOTTLENECK),
    ('fixed_patterns', 3, '', {}),
  ],
)
def test_variables(name, heads, scope, expected):
  """They are part of checkpoints; `v` and `o` are the layer's own."""
  member = family.ALL[name].of_size(filter_width=2).but(num_heads=heads)
  found = harness.variables(member, X)
  assert (found.pop('v'), found.pop('o')) == ((11, 5 * heads), (5 * heads, 11))
  assert found == {scope + n: shape for n, shape in expected.items()}


D = 15  # d_model, here that of all heads together
# Table 1 counts the parameters that make the logits of one head. With heads of
# d / heads channels, the layer also has d^2 for its d^2, but heads N^2 for N^2.
TABLE_1 = {
  'vanilla': 2 * D**2,
  'random': 3 * 13**2,
  'factorized_random': 3 * 2 * 13 * 4,
  'dense': D**2 + D * 13,
  'factorized_dense': D**2 + D * (3 + 7),
}


@pytest.mark.parametrize('name', TABLE_1)
def test_parameters_are_those_of_the_paper(name):
  found = variables(family.ALL[name], harness.draw('x', [2, 7, D]))
  assert sum(map(math.prod, found.values())) == TABLE_1[name]


def declaring(name, member):
  """The function class that declares a variable, by its innermost scope."""
  if '/' in name:
    return base.function_of(name.split('/')[-2])
  (owner,) = (f for f in member.functions() if name in f.layer_variables)
  return type(owner)


@each_function
def test_position_axes_are_those_of_max_length(member):
  """Two lengths whose divisors are no other size."""
  found: dict[str, set[int]] = {}
  for length in (21, 22):
    member = member.of_size(max_length=length)
    for variable, shape in variables(member).items():
      axes = {i - len(shape) for i, n in enumerate(shape) if n == length}
      found[variable] = found.get(variable, axes) & axes
  for variable, axes in found.items():
    leaf = variable.split('/')[-1]
    declared = declaring(variable, member).position_axes.get(leaf, ())
    assert axes == set(declared), variable


@each_function
def test_layer_variables_are_those_outside_of_its_scope(member):
  outside = {v for v in variables(member) if '/' not in v}
  assert outside == {v for f in member.functions() for v in f.layer_variables}
  inside = {v.split('/')[0] for v in variables(member) if '/' in v}
  assert inside <= {f.scope for f in member.functions()}


@each_function
def test_with_the_last_factor_at_zero_there_are_no_logits(member):
  last = {
    v
    for v in variables(member)
    if v.split('/')[-1] in declaring(v, member).last_factors
  }
  shapes = harness.variables(member, X)
  weights = family.float64({n: harness.draw(n, s) for n, s in shapes.items()})
  # Without one, none could be declared.
  for group in [last] if last else [{v} for v in variables(member)]:
    zeroed = {v: np.zeros_like(weights[v]) for v in group}
    x = X[0].astype(np.float64)
    logits = member.reference(x, {**weights, **zeroed}).logits
    assert logits.any() == (not last), group


@each_function
def test_the_scope_leads_back_to_the_class(member):
  for function in member.functions():
    assert base.function_of(function.scope) is type(function)
    assert base.function_of(f'{function.scope}_1') is type(function)
  assert base.function_of('nothing') is None


@each_function
def test_logits_that_ignore_the_input_have_no_batch(member):
  """Those whose formula does without x."""
  result = harness.parallel(member, X, mode='eval')
  weights = family.float64(result.weights)
  one, other = (
    member.reference(x, weights).logits for x in X.astype(np.float64)
  )
  batch = 1 if np.array_equal(one, other) else len(X)
  assert result.largest(7, 7) == batch * family.HEADS * 7**2


@family.some(  # fixed patterns draw nothing
  *('vanilla', 'random', 'fixed_random', 'factorized_random', 'mlp_mixer'),
  *('dense', 'factorized_dense', 'convolution', 'conv_relu_conv', 'glu'),
  *('bottleneck_dense', 'bottleneck_conv_relu_conv'),
)
def test_initial_logits_have_unit_variance(member):
  """As T5's dot products have (fold_scaling_into_initializer)."""
  member = member.of_size(max_length=61, bottleneck_size=16)
  member = member.but(key_value_size=64)
  x = np.random.RandomState(0).standard_normal([2, 61, 64]).astype(np.float32)
  drawn = harness.parallel(member, x, mode='eval', weights=None).weights
  logits = member.reference(x[0], family.float64(drawn)).logits
  assert 0.75 < logits.std() < 1.3
  assert abs(logits.mean()) < 0.3


@pytest.mark.sampled
@each_tiled_table
@family.both_rows
def test_columns_may_be_tiled(member, rows, stack):
  checks.parallel(member.of_size(tile_length=TILE), rows, stack)


@pytest.mark.sampled
@each_tiled_table
def test_tiled_columns_in_decoding(member):
  checks.decoded(member.of_size(tile_length=2), (2, 4))


@family.some('random', 'dense')
def test_a_table_may_be_as_long_as_the_row(member):
  checks.parallel(member.of_size(max_length=7), PADDED, DECODER)


@each_table
def test_a_longer_sequence_is_refused(member):
  with pytest.raises(
    ConfigurationError,
    match=r'length 7 exceeds (\w+)\.max_length = 5; set \1\.max_length >= 7',
  ):
    harness.variables(member.of_size(max_length=5), X)


def test_a_longer_sequence_is_refused_in_decoding():
  with pytest.raises(ConfigurationError, match='length 7 exceeds'):
    harness.decode(family.R.of_size(max_length=5), X)


@pytest.mark.parametrize(
  'setting',
  ['max_length', 'key_value_size', 'bottleneck_size', 'filter_width', 'rank'],
)
def test_a_size_below_1_is_refused(setting):
  message = rf'\w\.{setting} = 0: expected at least 1'
  members = [m for m in family.SINGLE.values() if m.takes(setting)]
  assert members
  for member in members:
    with pytest.raises(ConfigurationError, match=message):
      member.of_size(**{setting: 0}).functions()


@pytest.mark.parametrize('own', [{'use_bias': True}, {'key_value_size': 4}])
def test_queries_have_no_size_of_their_own_and_no_bias(own):
  with pytest.raises(
    ConfigurationError, match=r'Dense\.shared_query: .*remove'
  ):
    synth_mtf.Dense(shared_query=True, **own)


@each_tiled_table
@pytest.mark.parametrize('tile_length', [0, family.FACTORED + 1])
def test_tiles_that_do_not_fit_are_refused(member, tile_length):
  member = member.of_size(tile_length=tile_length)
  with pytest.raises(
    ConfigurationError,
    match=rf'tile_length = {tile_length}: expected (at least 1|1 to \w+\.max)',
  ):
    member.functions()


def test_max_length_of_each_stack():
  gin.parse_config("""
      SyntheticAttention.synthesizers = [@synth_mtf.Random]
      encoder/Unitransformer.max_length = 400
      decoder/Unitransformer.max_length = 114
  """)
  # T5's default where gin sets none.
  for stack, length in (('', 512), ('encoder', 400), ('decoder', 114)):
    with gin.config_scope(stack or None):
      (table,) = synth_mtf.SyntheticAttention().synthesizers
    assert vars(table)['max_length'] == length


def test_the_smallest_size_is_one():
  base.check_sizes(family.R, rank=1, factors=(0, 0), trainable=False)
  with pytest.raises(ConfigurationError, match='rank = 0: expected at least 1'):
    base.check_sizes(family.R, heads=1, rank=0)
