"""What is registered with gin; all of it has a row in tests/family.py."""

import pathlib
import re

import gin
import mesh_tensorflow as mtf
import pytest

import synth_mtf
from synth_mtf.synthesizers import FUNCTIONS, SynthesizingFunction
from tests import family

OURS = re.compile(
  r'SyntheticAttention\.|SyntheticEncDecAttention\.|as_original'
)
VARIANTS = {
  path.stem: path
  for path in pathlib.Path(synth_mtf.gin_path(), 'variants').glob('*.gin')
  if OURS.search(path.read_text())
}
ROWS = {**family.VARIANTS, **family.AS_ORIGINAL, **family.CROSS_VARIANTS}


def with_inner(functions):
  """The functions, and the functions inside them."""
  for function in functions:
    yield function
    inner = vars(function).values()
    yield from with_inner(
      f for f in inner if isinstance(f, SynthesizingFunction)
    )


def test_every_variant_has_a_row():
  assert set(ROWS) == set(VARIANTS), (
    'tests/family.py must have one row for each file of gin/variants that uses '
    'our layers'
  )


def test_every_function_is_in_a_row_and_public():
  members = family.VARIANTS.values()
  used = {type(f) for m in members for f in with_inner(m.functions())}
  assert used == set(FUNCTIONS.values())
  for name, function in FUNCTIONS.items():
    assert getattr(synth_mtf, name) is function
    assert gin.get_configurable(f'synth_mtf.{name}') is function


def kinds(layer):
  """What its functions are, without their sizes."""
  return [
    (
      type(function),
      function.letter,
      {n: v for n, v in vars(function).items() if isinstance(v, (bool, str))},
    )
    for function in with_inner(layer.synthesizers)
  ]


@pytest.mark.parametrize('name', sorted(VARIANTS))
def test_a_row_is_what_gin_makes(name):
  """The layer of a variant file has the functions of the row."""
  with gin.config_scope('decoder'):
    expected = ROWS[name]()
    gin.parse_config_file(str(VARIANTS[name]))
    layer = ROWS[name].layer()
  assert kinds(layer) == kinds(expected)
  assert layer.normalize == expected.normalize
  if name not in family.AS_ORIGINAL:
    assert layer.label == expected.label


def test_older_runs_name_the_hosts_optimizer():
  gin.parse_config("""
      utils.run.optimizer = @synth_mtf.Adafactor
      AdafactorOptimizer.decay_rate = 0.5
  """)
  made = synth_mtf.Adafactor(learning_rate=0.1)
  assert isinstance(made, mtf.optimize.AdafactorOptimizer)
  assert made._decay_rate == 0.5  # noqa: SLF001
