"""What the functions read: the table in docs/variants.md, by the logits."""

import re

import numpy as np
import pytest

from tests import checks, family, harness
from tests.checkout import CHECKOUT

LENGTH = 7
IDS = np.ones([2, LENGTH], np.int32)
ROWS = family.Rows(IDS, IDS)
CHANGED = 5  # a token, far from the first one
VARIANTS = {
  'V': 'vanilla',
  'R': 'random',
  'Fix': 'fixed_random',
  'FR': 'factorized_random',
  'D': 'dense',
  'FD': 'factorized_dense',
}
# Table 1 does not have them; the sentences below the table do.
OTHERS = {
  'frozen_vanilla': ('all tokens', 'local', 'yes'),
  'convolution': ('a window of 3', 'local', 'no'),
  'conv_relu_conv': ('a window of 5', 'local', 'no'),
  'bottleneck_dense': ('its own token', 'local', 'no'),
  'glu': ('its own token', 'local', 'no'),
}


def documented():
  document = (CHECKOUT / 'docs' / 'variants.md').read_text()
  pattern = r'^\| ([A-Z].*) \| (.*) \| (local|global) \| (yes|no) \|$'
  rows = re.findall(pattern, document, re.MULTILINE)
  return {
    VARIANTS[letter]: tuple(columns)
    for letters, *columns in rows
    for letter in letters.split(', ')
  }


def properties(member):
  """The columns of Table 1: condition on, sample, interact."""
  x = family.tokens(ROWS.ids)
  other = x.copy()
  other[:, CHANGED] += harness.draw('another token', x[:, CHANGED].shape)
  alignment, before = checks.recorded(member, ROWS, harness.ENCODER, x)
  _, after = checks.recorded(member, ROWS, harness.ENCODER, other)
  is_local = 'batch' in alignment.logits.shape.dimension_names
  differs = before['logits'] != after['logits']
  rows = np.moveaxis(differs, -2, 0).reshape(LENGTH, -1).any(axis=1)
  changed = {*np.flatnonzero(rows)}
  if not changed:
    read = 'nothing'
  elif changed == {CHANGED}:
    read = 'its own token'
  elif changed == {*range(LENGTH)}:
    read = 'all tokens'
  else:
    reach = CHANGED - min(changed)
    assert changed == {*range(CHANGED - reach, LENGTH)}
    read = f'a window of {2 * reach + 1}'
  # Whether the entry of two tokens that are far apart depends on the second.
  pair = differs[..., 0, CHANGED].any()
  return read, 'local' if is_local else 'global', 'yes' if pair else 'no'


def test_the_table_has_all_functions_of_the_paper():
  assert sorted(documented()) == sorted(VARIANTS.values())


@pytest.mark.sampled
@pytest.mark.parametrize('name', [*VARIANTS.values(), *OTHERS])
def test_the_columns_follow_from_the_logits(name):
  expected = {**documented(), **OTHERS}[name]
  assert properties(family.VARIANTS[name]) == expected
