"""What layers with a synthesized alignment share: functions and index."""

import functools

import gin
import numpy as np
import pytest

import synth_mtf
from synth_mtf.errors import ConfigurationError
from tests import checks, family
from tests.harness import DECODER, LM

PACKED = np.array([[1, 1, 1, 2, 2, 3, 3], [1, 1, 2, 2, 2, 2, 0], [0] * 7])


@pytest.mark.parametrize('name', ['random', 'dense'])
@pytest.mark.parametrize('mode', ['train', 'eval'])
def test_tables_may_be_read_by_the_row(name, mode):
  """As the original code reads them."""
  member = family.ALL[name]
  checks.parallel(
    member.maker(packed=True, index_by='row'),
    member.reference(),
    PACKED,
    DECODER,
    by_row=True,
    mode=mode,
  )


def test_read_by_the_row_it_decodes_as_by_position():
  member = family.ALL['random']
  checks.decoded(
    member.maker(index_by='row'), member.reference(), (2, 3), stack=LM
  )


def test_each_layer_makes_its_own_functions():
  gin.parse_config("""
      SyntheticAttention.synthesizers = [@synth_mtf.Random, @synth_mtf.Dense]
      synth_mtf.Random.max_length = 13
      Unitransformer.max_length = 17
  """)
  one, other = synth_mtf.SyntheticAttention(), synth_mtf.SyntheticAttention()
  assert [vars(f)['max_length'] for f in one.synthesizers] == [13, 17]
  for mine, yours in zip(one.synthesizers, other.synthesizers):
    assert mine is not yours


def test_lists_from_python():
  """Classes, and callables without arguments."""
  layer = synth_mtf.SyntheticAttention(
    synthesizers=(
      synth_mtf.DotProduct,
      functools.partial(synth_mtf.Random, max_length=13),
      lambda: synth_mtf.FactorizedRandom(rank=3),
    )
  )
  assert [type(f).__name__ for f in layer.synthesizers] == [
    'DotProduct',
    'Random',
    'FactorizedRandom',
  ]


@pytest.mark.parametrize(
  'settings, message',
  [
    (
      {'synthesizers': []},
      r'SyntheticAttention\.synthesizers = \[\].*at least one',
    ),
    (
      {'synthesizers': [synth_mtf.DotProduct, 'Random']},
      r"SyntheticAttention\.synthesizers = \['Random'\].*function",
    ),
    (
      {'synthesizers': synth_mtf.DotProduct()},
      r'SyntheticAttention\.synthesizers = .*expected a list',
    ),
    (
      {'synthesizers': [dict]},
      r'SyntheticAttention\.synthesizers made \[\{\}\].*SynthesizingFunction',
    ),
  ],
  ids=lambda value: '-'.join(value) if isinstance(value, dict) else '',
)
def test_what_makes_no_functions(settings, message):
  with pytest.raises(ConfigurationError, match=message):
    synth_mtf.SyntheticAttention(**settings)
