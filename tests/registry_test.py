"""Every function and every variant has a row in tests/family.py."""

import pathlib
import re

import gin
import pytest

import synth_mtf
from synth_mtf.synthesizers import FUNCTIONS, SynthesizingFunction
from tests import family

GIN = pathlib.Path(synth_mtf.gin_path())
OURS = re.compile(
  r'SyntheticAttention\.|SyntheticEncDecAttention\.|as_original'
)
VARIANTS = {
  path.stem: path
  for path in (GIN / 'variants').glob('*.gin')
  if OURS.search(path.read_text())
}
ROWS = {**family.VARIANTS, **family.AS_ORIGINAL, **family.CROSS_VARIANTS}


def with_inner(functions):
  """The functions, and the functions inside them."""
  for function in functions:
    yield function
    yield from with_inner(
      f for f in vars(function).values() if isinstance(f, SynthesizingFunction)
    )


def test_every_variant_has_a_row():
  assert set(ROWS) == set(VARIANTS), (
    'tests/family.py must have one row for each file of gin/variants that uses '
    'our layers'
  )


def test_every_function_is_in_a_row():
  used = {
    type(function)
    for member in family.VARIANTS.values()
    for function in with_inner(member.functions())
  }
  assert used == set(FUNCTIONS.values())


def test_every_function_is_a_public_name():
  for name, function in FUNCTIONS.items():
    assert getattr(synth_mtf, name) is function
    assert gin.get_configurable(f'synth_mtf.{name}') is function


def kind(function):
  """What a function is, without its sizes."""
  return {
    'type': type(function),
    'letter': function.letter,
    **{
      name: kind(value) if isinstance(value, SynthesizingFunction) else value
      for name, value in vars(function).items()
      if isinstance(value, (bool, str, SynthesizingFunction))
    },
  }


@pytest.mark.parametrize('name', sorted(VARIANTS))
def test_a_row_is_what_gin_makes(name):
  """The layer of a variant file has the functions of the row."""
  with gin.config_scope('decoder'):
    expected = ROWS[name]()
    gin.parse_config_file(str(VARIANTS[name]))
    layer = ROWS[name].layer()
  gin.clear_config()
  assert [kind(f) for f in layer.synthesizers] == [
    kind(f) for f in expected.synthesizers
  ]
  assert layer.normalize == expected.normalize
  if name not in family.AS_ORIGINAL:
    assert layer.label == expected.label
