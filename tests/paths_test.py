"""Where the package's data files are."""

import pathlib

import synth_mtf
from synth_mtf.paths import gin_path
from tests.checkout import CHECKOUT


def test_gin_path_in_the_checkout():
  folder = pathlib.Path(gin_path())
  assert folder == CHECKOUT / 'synth_mtf' / 'gin'
  assert folder.samefile(CHECKOUT / 'gin')
  assert synth_mtf.gin_path() == gin_path()
