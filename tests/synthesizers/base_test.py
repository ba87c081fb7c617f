"""What every synthesizing function declares and has, for each of the family."""

import gin
import numpy as np
import pytest

import synth_mtf
from synth_mtf.errors import ConfigurationError
from synth_mtf.synthesizers import base
from tests import checks, family, harness, reference
from tests.harness import DECODER, ENCODER

PACKED = np.array([[1, 1, 1, 2, 2, 2, 2], [1, 1, 1, 1, 1, 0, 0]])
X = family.tokens(np.ones([2, 7]))
TILE = 4  # FactorizedDense makes it of 2 and 2

each_function = family.each(family.SINGLE)
each_table = family.each(family.SINGLE, takes='max_length')
each_tiled_table = family.each(family.SINGLE, takes='tile_length')


def variables(member, **settings):
  """The shapes of what makes the logits."""
  shapes = harness.variables(member.maker(**settings), X)
  del shapes['v'], shapes['o']
  return shapes


def declaring(name, member):
  """The class that declares a variable: that of its innermost scope."""
  if '/' in name:
    return base.function_of(name.split('/')[-2])
  (owner,) = (f for f in member.functions() if name in f.layer_variables)
  return type(owner)


@family.each()
@pytest.mark.parametrize(
  'heads, sizes',
  [
    (family.HEADS, {}),
    (1, {}),
    (family.HEADS, {'tile_length': TILE, 'key_value_size': 2}),
  ],
  ids=['as it is', 'one head', 'other sizes'],
)
def test_parameters_are_those_of_the_variables(name, heads, sizes):
  member = family.ALL[name].of_size(**sizes)
  made = variables(member, num_heads=heads)
  functions = member.functions()
  alpha = made.pop('alpha', ())
  if len(functions) > 1:
    assert alpha == (len(functions), *([heads] if heads > 1 else []))
  assert sum(int(np.prod(shape)) for shape in made.values()) == sum(
    f.parameters(family.D_MODEL, heads, family.D_KV) for f in functions
  )


@each_function
def test_position_axes_are_those_of_max_length(name):
  """Two lengths whose divisors are no other size."""
  found: dict[str, set[int]] = {}
  for length in (21, 22):
    member = family.ALL[name].of_size(max_length=length)
    for variable, shape in variables(member).items():
      axes = {i - len(shape) for i, n in enumerate(shape) if n == length}
      found[variable] = found.get(variable, axes) & axes
  member = family.ALL[name]
  for variable, axes in found.items():
    leaf = variable.split('/')[-1]
    declared = declaring(variable, member).position_axes.get(leaf, ())
    assert axes == set(declared), variable


@each_function
def test_layer_variables_are_those_outside_of_its_scope(name):
  member = family.ALL[name]
  outside = {v for v in variables(member) if '/' not in v}
  assert outside == {v for f in member.functions() for v in f.layer_variables}
  inside = {v.split('/')[0] for v in variables(member) if '/' in v}
  assert inside <= {f.scope for f in member.functions()}


@each_function
def test_with_the_last_factor_at_zero_there_are_no_logits(name):
  member = family.ALL[name]
  last = {
    v
    for v in variables(member)
    if v.split('/')[-1] == declaring(v, member).last_factor
  }
  assert len(last) <= 1
  result = harness.parallel(
    member.maker(),
    X,
    PACKED,
    mode='eval',
    weights=lambda n, s: np.zeros(s) if n in last else harness.draw(n, s),
  )
  weights = family.float64(result.weights)
  if not last:  # then there is none that could be declared
    for v in variables(member):
      silenced = {**weights, v: np.zeros_like(weights[v])}
      assert _logits(member, X[0].astype(np.float64), silenced).any(), v
    return
  nothing = reference.Layer(
    [lambda s: np.zeros([s.heads, len(s.x), len(s.x)])],
    family.HEADS,
    family.D_KV,
    normalize=member.normalize == 'softmax',
  )
  expected = reference.rows(
    nothing, X.astype(np.float64), weights, np.minimum(PACKED, 1)
  )
  harness.assert_close(result.output, expected, 'output')


@each_function
def test_the_scope_leads_back_to_the_class(name):
  for function in family.ALL[name].functions():
    assert base.function_of(function.scope) is type(function)
    assert base.function_of(f'{function.scope}_1') is type(function)
  assert base.function_of('nothing') is None


def test_a_scope_is_the_class_name_in_snake_case():
  assert base.scope_of(synth_mtf.Random) == 'random'
  assert base.scope_of(synth_mtf.FactorizedRandom) == 'factorized_random'


@each_function
def test_what_does_not_look_at_the_input_is_made_once_for_all(name):
  """Logits without a batch dimension, where the formula does without x."""
  member = family.ALL[name]
  result = harness.parallel(member.maker(), X, mode='eval')
  weights = family.float64(result.weights)
  one, other = (_logits(member, x, weights) for x in X.astype(np.float64))
  largest = max(
    int(np.prod(shape))
    for _, shape in result.shapes
    if shape[-2:] == X.shape[1:2] * 2
  )
  batch = 1 if np.array_equal(one, other) else len(X)
  assert largest == batch * family.HEADS * X.shape[1] ** 2


def _logits(member, x, weights, heads=family.HEADS):
  """What the formula makes of one sequence."""
  at = np.arange(len(x))
  q, k = (
    np.einsum('id,dhk->hik', x, weights[w].reshape(x.shape[1], heads, -1))
    if w in weights
    else None
    for w in 'qk'
  )
  (formula,) = member.formulas
  return formula(reference.One(x, weights, heads, False, at, at, q, k))


# A function that does not multiply what it draws, as the patterns, need not.
@family.each(
  [
    *('vanilla', 'random', 'fixed_random', 'factorized_random', 'mlp_mixer'),
    *('dense', 'factorized_dense', 'convolution', 'conv_relu_conv', 'glu'),
    *('bottleneck_dense', 'bottleneck_conv_relu_conv'),
  ]
)
def test_initial_logits_have_unit_variance(name):
  """As T5's dot products have (fold_scaling_into_initializer)."""
  member = family.ALL[name].of_size(max_length=61, bottleneck_size=16)
  x = np.random.RandomState(0).standard_normal([2, 61, 64]).astype(np.float32)
  drawn = harness.initial(member.maker(key_value_size=64), x)
  logits = _logits(member, x[0].astype(np.float64), family.float64(drawn))
  assert 0.75 < logits.std() < 1.3
  assert abs(logits.mean()) < 0.3


@each_tiled_table
@pytest.mark.parametrize('packed', [False, True], ids=['padded', 'packed'])
def test_columns_may_be_tiled(name, packed):
  member = family.ALL[name].of_size(tile_length=TILE)
  checks.parallel(
    member.maker(packed=packed),
    member.reference(),
    PACKED if packed else np.minimum(PACKED, 1),
    DECODER if packed else ENCODER,
  )


@each_tiled_table
def test_tiled_columns_in_decoding(name):
  member = family.ALL[name].of_size(tile_length=2)
  checks.decoded(member.maker(), member.reference(), (2, 4))


@pytest.mark.parametrize('name', ['random', 'dense'])
def test_a_table_may_be_as_long_as_the_row(name):
  member = family.ALL[name].of_size(max_length=7)
  checks.parallel(member.maker(), member.reference(), PACKED > 0, DECODER)


@each_table
def test_a_longer_sequence_is_refused(name):
  member = family.ALL[name].of_size(max_length=5)
  with pytest.raises(
    ConfigurationError,
    match=r'length 7 exceeds max_length 5 of the (\w+) table; set '
    r'\1\.max_length >= 7',
  ):
    harness.variables(member.maker(), X)


def test_a_longer_sequence_is_refused_in_decoding():
  member = family.ALL['random'].of_size(max_length=5)
  with pytest.raises(ConfigurationError, match='length 7 exceeds'):
    harness.decode(member.maker(), X)


@pytest.mark.parametrize(
  'name, setting',
  [
    (name, setting)
    for setting in ('max_length', 'key_value_size')
    for name, member in family.SINGLE.items()
    if member.takes(setting)
  ],
)
def test_a_size_below_1_is_refused(name, setting):
  member = family.ALL[name]
  with pytest.raises(
    ConfigurationError, match=rf'\w\.{setting} = 0: expected at least 1'
  ):
    member.of_size(**{setting: 0}).functions()


@each_tiled_table
@pytest.mark.parametrize('tile_length', [0, family.FACTORED + 1])
def test_tiles_that_do_not_fit_are_refused(name, tile_length):
  member = family.ALL[name].of_size(tile_length=tile_length)
  with pytest.raises(
    ConfigurationError,
    match=rf'\.tile_length = {tile_length}: expected 1 to max_length',
  ):
    member.functions()


def test_max_length_of_each_stack():
  gin.parse_config("""
      SyntheticAttention.synthesizers = [@synth_mtf.Random]
      encoder/Unitransformer.max_length = 512
      decoder/Unitransformer.max_length = 114
  """)
  for stack, length in (('encoder', 512), ('decoder', 114)):
    with gin.config_scope(stack):
      (table,) = synth_mtf.SyntheticAttention().synthesizers
    assert vars(table)['max_length'] == length


def test_max_length_without_gin_is_that_of_t5():
  assert synth_mtf.Random().max_length == 512
