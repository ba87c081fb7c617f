"""The vocabulary that a run trains on its own text."""

import itertools

import pytest

from synth_mtf.errors import UserError
from synth_mtf.tasks import vocabulary, vocabulary_training
from tests import small_world


def texts():
  words = itertools.product(
    small_world.PEOPLE, small_world.PAST, small_world.THINGS
  )
  return [f'{one} may {two} the {three}.' for one, two, three in words]


def test_it_is_a_t5_vocabulary(tmp_path):
  model = tmp_path / 'first.model'
  vocabulary_training.train(texts(), model, 120)
  assert list(tmp_path.iterdir()) == [model]
  trained = vocabulary.load(str(model))  # checks T5's ids
  text = 'Anna may paint the boat.'
  assert trained.decode(trained.encode(text)) == text


def test_the_same_text_gives_the_same_file(tmp_path):
  models = [tmp_path / 'a.model', tmp_path / 'folder' / 'another.model']
  models[1].parent.mkdir()
  for model in models:
    vocabulary_training.train(texts(), model, 120)
  assert models[0].read_bytes() == models[1].read_bytes()
  assert str(tmp_path).encode() not in models[0].read_bytes()


def test_the_size_with_sentinels_needs_no_padding():
  assert (vocabulary_training.PIECES + vocabulary.EXTRA_IDS) % 128 == 0


def test_no_text_is_an_error(tmp_path):
  with pytest.raises(UserError, match='no vocabulary of 1,948 pieces'):
    vocabulary_training.train([], tmp_path / 'none.model')
  assert not list(tmp_path.glob('*.model'))
