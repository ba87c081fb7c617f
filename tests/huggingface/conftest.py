"""The vocabulary of tiny models."""

import pytest

from synth_mtf.tasks import vocabulary


@pytest.fixture(scope='module')
def pieces(tmp_path_factory):
  path = tmp_path_factory.mktemp('vocabulary') / 'tiny.model'
  vocabulary.train(['the cat sat on a mat. a dog ran. '] * 20, path, 28)
  return path
