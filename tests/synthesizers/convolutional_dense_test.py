"""Convolutions in place of D's two layers (version 1, section 6.2)."""

import functools

import numpy as np
import pytest

import synth_mtf
from synth_mtf.errors import ConfigurationError
from tests import checks, family, harness, reference
from tests.harness import DECODER, ENCODER, LM

PACKED = np.array([[1, 1, 1, 2, 2, 3, 3], [1, 1, 2, 2, 2, 0, 0]])
PADDED = np.array([[1] * 7, [1, 1, 1, 0, 0, 0, 0]])

with_and_without_relu = pytest.mark.parametrize(
  'relu', [False, True], ids=['linear', 'conv-relu-conv']
)


def layer(**settings):
  function = functools.partial(
    synth_mtf.ConvolutionalDense, max_length=13, **settings
  )
  return family.Member((function,), ()).maker


@pytest.mark.parametrize(
  'relu, w2', [(False, (3, 5, 13)), (True, (3, 2, 5, 13))]
)
def test_variables(relu, w2):
  x = family.tokens(np.ones([2, 7]))
  make = layer(relu=relu, filter_width=2)()
  weights = harness.parallel(make, x).weights
  assert {n: w.shape for n, w in weights.items()} == {
    'convolutional_dense/W1': (2, 11, 3, 5),
    'convolutional_dense/W2': w2,
    'v': (11, 15),
    'o': (15, 11),
  }


@with_and_without_relu
@pytest.mark.parametrize('width', [1, 2, 4, 9])
@pytest.mark.parametrize(
  'stack, ids',
  [(ENCODER, PADDED), (DECODER, PACKED)],
  ids=['encoder-padded', 'decoder-packed'],
)
def test_filter_width(relu, width, stack, ids):
  checks.parallel(
    layer(relu=relu, filter_width=width)(packed=ids is PACKED),
    reference.Layer(
      [reference.convolution(13, width, relu)], family.HEADS, family.D_KV
    ),
    ids,
    stack,
  )


@with_and_without_relu
@pytest.mark.parametrize('width', [1, 2, 6])
def test_decoding_keeps_the_window(relu, width):
  """Also a window that reaches back before the first token."""
  make = layer(relu=relu, filter_width=width)()
  x = family.tokens(np.ones([2, 5]))
  start = np.array([1, 3])
  parallel = harness.parallel(make, x, stack=LM, mode='eval').output
  decoded = harness.decode(make, x, start, stack=LM)
  new = np.arange(5) >= start[:, None]
  harness.assert_close(decoded[new], parallel[new], 'token by token')


def test_a_filter_of_no_width_is_refused():
  with pytest.raises(
    ConfigurationError,
    match=r'ConvolutionalDense\.filter_width = 0: expected at least 1',
  ):
    synth_mtf.ConvolutionalDense(filter_width=0)
