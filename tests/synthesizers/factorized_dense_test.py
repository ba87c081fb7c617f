"""FD: the outer product of two short vectors, read as one row."""

import functools

import numpy as np
import pytest

import synth_mtf
from synth_mtf.errors import ConfigurationError
from tests import checks, family, harness, reference
from tests.harness import DECODER, ENCODER

PACKED = np.array([[1, 1, 1, 2, 2, 2, 2], [1, 1, 1, 1, 1, 0, 0]])


def layer(**settings):
  function = functools.partial(synth_mtf.FactorizedDense, **settings)
  return family.Member((function,), ()).maker


def test_variables():
  x = family.tokens(np.ones([2, 7]))
  weights = harness.parallel(layer(max_length=21)(), x).weights
  assert {n: w.shape for n, w in weights.items()} == {
    'factorized_dense/W1': (11, 3, 5),
    'factorized_dense/WA': (3, 5, 3),
    'factorized_dense/WB': (3, 5, 7),
    'v': (11, 15),
    'o': (15, 11),
  }


@pytest.mark.parametrize(
  'size, factors',
  [
    (1, (1, 1)),
    (13, (1, 13)),
    (114, (6, 19)),
    (256, (16, 16)),
    (512, (16, 32)),
  ],
)
def test_the_default_is_the_most_square_pair(size, factors):
  assert synth_mtf.FactorizedDense(max_length=size).factors == factors


@pytest.mark.parametrize('factors', [(2, 7), (7, 2), (1, 14), (14, 1)])
@pytest.mark.parametrize('packed', [False, True], ids=['padded', 'packed'])
def test_factors(factors, packed):
  checks.parallel(
    layer(max_length=14, factors=factors)(packed=packed),
    reference.Layer(
      [reference.factorized_dense(*factors)], family.HEADS, family.D_KV
    ),
    PACKED if packed else np.minimum(PACKED, 1),
    ENCODER,
  )


@pytest.mark.parametrize('packed', [False, True], ids=['padded', 'packed'])
def test_tiled(packed):
  make = layer(max_length=13, tile_length=6, factors=(2, 3))
  checks.parallel(
    make(packed=packed),
    reference.Layer(
      [reference.factorized_dense(2, 3)], family.HEADS, family.D_KV
    ),
    PACKED if packed else np.minimum(PACKED, 1),
    DECODER,
  )
  x = family.tokens(np.ones([2, 4]))
  parallel = harness.parallel(make(), x, stack=DECODER, mode='eval').output
  harness.assert_close(harness.decode(make(), x), parallel, 'token by token')


@pytest.mark.parametrize('factors, plain', [((13, 1), 'WA'), ((1, 13), 'WB')])
def test_with_one_factor_of_1_it_is_dense(factors, plain):
  """a = N and b = 1: S(x_l)[i] = A_l[i] B_l, which for B = 1 is D.

  The last channel of the input is 1, one hidden unit copies it, and the other
  factor reads nothing else.
  """
  x = family.tokens(np.ones([2, 7]))
  x[..., -1] = 1

  def weights(name, shape):
    short = name.split('/')[-1]
    if short == 'W1':
      drawn = harness.draw('dense/W1', shape)
      drawn[..., 0] = 0
      drawn[-1, :, 0] = 1
      return drawn
    if short in ('W2', plain):
      return harness.draw('dense/W2', shape)
    if short in ('WA', 'WB'):
      one = np.zeros(shape)
      one[:, 0] = 1
      return one
    return harness.draw(name, shape)

  factorized = harness.parallel(
    layer(max_length=13, factors=factors)(), x, stack=DECODER, weights=weights
  )
  dense = functools.partial(synth_mtf.Dense, max_length=13)
  plain_form = harness.parallel(
    family.Member((dense,), ()).maker(), x, stack=DECODER, weights=weights
  )
  harness.assert_close(factorized.output, plain_form.output, 'output')
  harness.assert_close(
    factorized.gradients[f'factorized_dense/{plain}'],
    plain_form.gradients['dense/W2'],
    'gradient',
  )


def test_initial_logits_have_unit_variance():
  drawn = harness.initial(
    layer(max_length=64)(key_value_size=64), family.tokens(np.ones([2, 7]))
  )
  x = np.random.RandomState(0).standard_normal([500, family.D_MODEL])
  hidden = np.maximum(
    np.einsum('id,dhk->hik', x, drawn['factorized_dense/W1']), 0
  )
  a, b = (hidden @ drawn[f'factorized_dense/{n}'] for n in ('WA', 'WB'))
  logits = a[..., :, None] * b[..., None, :]
  assert 0.7 < logits.std() < 1.4


@pytest.mark.parametrize(
  'factors', [(3, 4), (13,), (0, 13), (-1, -13), (13, 1, 1)]
)
def test_factors_that_do_not_fit(factors):
  with pytest.raises(
    ConfigurationError,
    match=r'FactorizedDense\.factors = .*: expected \(a, b\) with a b = 13, '
    r'for example \(1, 13\)',
  ):
    synth_mtf.FactorizedDense(factors=factors, max_length=13)
