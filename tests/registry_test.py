"""Nothing of the family is without a test."""

import pathlib

import gin
import pytest

import synth_mtf
from synth_mtf.synthesizers import SynthesizingFunction
from tests import family

TESTS = pathlib.Path(__file__).parent
GIN = pathlib.Path(synth_mtf.gin_path())
VARIANTS = {
  path.stem: path
  for path in (GIN / 'variants').glob('*.gin')
  if 'SyntheticAttention.synthesizers' in path.read_text()
}
FUNCTIONS = {
  name: value
  for name, value in vars(synth_mtf).items()
  if isinstance(value, type)
  and issubclass(value, SynthesizingFunction)
  and value is not SynthesizingFunction
}


def made(member):
  return [make() for make in member.synthesizers]


def test_every_variant_is_a_member():
  assert set(family.MEMBERS) == set(VARIANTS), (
    'tests/family.py must have one member for each file of gin/variants that '
    'has synthesizers'
  )


def test_every_function_is_in_the_family():
  used = {type(f) for m in family.MEMBERS.values() for f in made(m)}
  assert used == set(FUNCTIONS.values())


@pytest.mark.parametrize('name', sorted(FUNCTIONS))
def test_every_function_has_tests_of_its_own(name):
  module = FUNCTIONS[name].__module__.split('.')[-1]
  assert (TESTS / 'synthesizers' / f'{module}_test.py').is_file()


@pytest.mark.parametrize('name', sorted(VARIANTS))
def test_member_is_what_gin_makes(name):
  """The layer of a variant file has the functions of the member."""
  gin.clear_config()
  gin.parse_config_file(str(VARIANTS[name]))
  layer = synth_mtf.SyntheticAttention()
  gin.clear_config()
  member = family.MEMBERS[name]
  assert [type(f) for f in layer.synthesizers] == [
    type(f) for f in made(member)
  ]
  expected = member.maker()()
  assert layer.normalize == expected.normalize
  for one, other in zip(layer.synthesizers, expected.synthesizers):
    for attribute in ('trainable', 'relu', 'inner'):
      ours, theirs = (getattr(f, attribute, None) for f in (one, other))
      if attribute == 'inner':
        ours, theirs = type(ours), type(theirs)
      assert ours == theirs, attribute
