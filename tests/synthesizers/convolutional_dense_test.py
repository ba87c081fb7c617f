"""Convolutions in place of D's two layers (version 1, section 6.2)."""

import numpy as np
import pytest

import synth_mtf
from synth_mtf.errors import ConfigurationError
from tests import checks, family, harness
from tests.harness import DECODER, ENCODER, LM

PACKED = np.array([[1, 1, 1, 2, 2, 3, 3], [1, 1, 2, 2, 2, 0, 0]])
PADDED = np.array([[1] * 7, [1, 1, 1, 0, 0, 0, 0]])
LINEAR = family.VARIANTS['convolution']
CONV_RELU_CONV = family.VARIANTS['conv_relu_conv']


@pytest.mark.parametrize(
  'member, w2',
  [(LINEAR, (3, 5, 13)), (CONV_RELU_CONV, (3, 2, 5, 13))],
  ids=['linear', 'conv-relu-conv'],
)
def test_variables(member, w2):
  maker = member.of_size(filter_width=2).maker()
  assert harness.variables(maker, family.tokens(PACKED)) == {
    'convolutional_dense/W1': (2, 11, 3, 5),
    'convolutional_dense/W2': w2,
    'v': (11, 15),
    'o': (15, 11),
  }


def test_the_width_is_three_by_default():
  function = synth_mtf.ConvolutionalDense()
  assert function.filter_dim.size == 3
  assert function.relu


@pytest.mark.parametrize('width', [1, 4, 9])
@pytest.mark.parametrize(
  'stack, ids',
  [(ENCODER, PADDED), (DECODER, PACKED)],
  ids=['encoder-padded', 'decoder-packed'],
)
def test_filter_width(width, stack, ids):
  """Also one that is wider than the row."""
  member = CONV_RELU_CONV.of_size(filter_width=width)
  checks.parallel(
    member.maker(packed=ids is PACKED), member.reference(), ids, stack
  )


@pytest.mark.parametrize(
  'member, width',
  [(LINEAR, 2), (CONV_RELU_CONV, 1), (CONV_RELU_CONV, 6)],
  ids=['linear', 'one', 'six'],
)
def test_decoding_keeps_the_window(member, width):
  """Also a window that reaches back before the first token."""
  member = member.of_size(filter_width=width)
  checks.decoded(
    member.maker(), member.reference(), (2, 5), np.array([1, 3]), stack=LM
  )


def test_a_filter_of_no_width_is_refused():
  with pytest.raises(
    ConfigurationError,
    match=r'ConvolutionalDense\.filter_width = 0: expected at least 1',
  ):
    synth_mtf.ConvolutionalDense(filter_width=0)
