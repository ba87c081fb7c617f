"""alpha: the weights in a mixture of synthesizers."""

import functools

import numpy as np
import pytest

from tests import family, harness
from tests.harness import DECODER

PADDED = np.array([[1] * 7, [1, 1, 1, 1, 0, 0, 0]])
D, FD, FR, R, V = family.D, family.FD, family.FR, family.R, family.V
PARTS = {
  'random_vanilla': (R, V),
  'random_factorized_random': (R, FR),
  'factorized_random_factorized_dense_vanilla': (FR, FD, V),
}


def mixture(parts):
  whole = parts[0]
  for part in parts[1:]:
    whole += part
  return whole


@functools.cache
def alone(part):
  return harness.parallel(part.maker(), family.tokens(PADDED), PADDED, DECODER)


@pytest.mark.parametrize(
  'name, mixing',
  [
    ('random_vanilla', 'softmax'),
    ('random_factorized_random', 'layer_softmax'),
    pytest.param(
      'factorized_random_factorized_dense_vanilla',
      'softmax',
      marks=pytest.mark.slow,
    ),
  ],
)
def test_alpha_at_an_end_is_that_component_alone(name, mixing):
  parts = PARTS[name]
  x = family.tokens(PADDED)
  maker = mixture(parts).maker
  for end, part in enumerate(parts):

    def weights(variable, shape, end=end):
      if variable == 'alpha':
        scores = np.full(shape, -100.0)
        scores[end] = 100.0
        return scores
      return harness.draw(variable, shape)

    mixed = harness.parallel(
      maker(mixing=mixing), x, PADDED, DECODER, weights=weights
    )
    component = alone(part)
    harness.assert_close(mixed.output, component.output, f'component {end}')
    harness.assert_close(
      {n: mixed.gradients[n] for n in component.gradients},
      component.gradients,
      f'gradient of component {end}',
    )
    for variable, gradient in mixed.gradients.items():
      if variable not in component.gradients:
        np.testing.assert_allclose(gradient, 0, atol=1e-6, err_msg=variable)


@pytest.mark.parametrize(
  'mixing, shape',
  [('softmax', (3, 3)), ('layer_softmax', (3,)), ('sum', None)],
)
def test_variable(mixing, shape):
  """[synthesizers, heads], before its softmax; it starts with equal parts."""
  make = mixture((R, D, V)).maker(mixing=mixing)
  drawn = harness.initial(make, family.tokens(PADDED))
  if shape is None:
    assert 'alpha' not in drawn
  else:
    np.testing.assert_array_equal(drawn['alpha'], np.zeros(shape))


@pytest.mark.parametrize('mixing', ['softmax', 'layer_softmax', 'sum'])
def test_a_single_function_has_no_alpha(mixing):
  make = R.maker(mixing=mixing)
  assert 'alpha' not in harness.initial(make, family.tokens(PADDED))


def test_one_head():
  make = mixture((R, V)).maker(num_heads=1)
  drawn = harness.initial(make, family.tokens(PADDED))
  assert drawn['alpha'].shape == (2,)


@pytest.mark.parametrize('mixing', ['softmax', 'layer_softmax'])
def test_adding_a_constant_to_alpha_changes_nothing(mixing):
  """It is a softmax: the gradients over the functions sum up to 0."""
  make = mixture((R, D, V)).maker(mixing=mixing)
  x = family.tokens(PADDED)
  result = harness.parallel(make, x, PADDED, DECODER)
  gradient = result.gradients['alpha']
  assert np.abs(gradient).max() > 1e-2
  np.testing.assert_allclose(gradient.sum(0), 0, atol=1e-5)
