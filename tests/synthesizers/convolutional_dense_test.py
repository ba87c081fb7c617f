"""Convolutions as D's two layers (version 1, section 6.2)."""

import numpy as np
import pytest

import synth_mtf
from tests import checks, family
from tests.harness import LM

LINEAR = family.VARIANTS['convolution']
CONV_RELU_CONV = family.VARIANTS['conv_relu_conv']


def test_the_width_is_three_by_default():
  function = synth_mtf.ConvolutionalDense()
  assert function.filter_dim.size == 3
  assert function.relu


@pytest.mark.parametrize(
  'width, relu, letter',
  [
    (3, True, 'CRC'),
    (5, True, 'CRC5'),
    (3, False, 'Conv'),
    (7, False, 'Conv7'),
  ],
)
def test_the_letter_names_an_unusual_width(width, relu, letter):
  function = synth_mtf.ConvolutionalDense(filter_width=width, relu=relu)
  assert function.letter == letter


@pytest.mark.parametrize('width', [1, 4, 9])  # 9 is wider than the row
@family.both_rows
def test_filter_width(width, rows, stack):
  checks.parallel(CONV_RELU_CONV.of_size(filter_width=width), rows, stack)


@pytest.mark.parametrize(
  'member, width',
  [(LINEAR, 2), (CONV_RELU_CONV, 1), (CONV_RELU_CONV, 6)],
  ids=['linear', 'one', 'six'],
)
def test_decoding_keeps_the_window(member, width):
  """Also a window that begins before the first token."""
  member = member.of_size(filter_width=width)
  checks.decoded(member, (2, 5), np.array([1, 3]), LM)
