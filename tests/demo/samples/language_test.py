"""The small world of the samples: facts, stories, pronouns."""

import random

import pytest

from synth_mtf.demo.samples import language
from tests.demo.samples import reading
from tests.demo.samples.reading import Told

BOAT = language.Fact('Anna', 'carry', 'red', 'boat', 'in the harbour')


def test_a_fact_in_each_of_its_sentences():
  assert BOAT.sentence() == 'Anna carried the red boat in the harbour.'
  assert BOAT.passive() == ('The red boat was carried by Anna in the harbour.')
  assert BOAT.negation() == 'Anna did not carry the red boat in the harbour.'
  assert BOAT.summary() == 'Anna carried a boat.'


def test_every_verb_has_its_past():
  for verb, past in language.PAST.items():
    assert reading.infinitive(past) == verb


def test_all_words_are_drawn_and_can_be_read_again():
  rng = random.Random(0)
  for _ in range(200):
    fact = language.fact(rng)
    told = [Told(fact.person, fact.verb, fact.colour, fact.thing, fact.place)]
    assert reading.facts(fact.sentence()) == told
    assert reading.passive(fact.passive()) == told
    assert reading.follows(fact.sentence(), fact.summary()) is True
    assert reading.follows(fact.sentence(), fact.negation()) is False


@pytest.mark.parametrize('field', Told._fields)
def test_a_change_is_one_of_one_part(field):
  rng = random.Random(0)
  for _ in range(50):
    changed = BOAT.changed(rng, field)
    differing = [
      name for name in Told._fields
      if getattr(changed, name) != getattr(BOAT, name)
    ]  # fmt: skip
    assert differing == [field]


def test_nothing_occurs_twice_in_a_story():
  """So that each question about it has one answer."""
  rng = random.Random(0)
  for _ in range(50):
    told = reading.facts(language.text(language.story(rng, 4)))
    assert [len(set(column)) for column in zip(*told)] == [4] * 5


def test_the_verb_decides_whom_a_pronoun_means():
  rng = random.Random(0)
  for _ in range(200):
    drawn = language.anaphora(rng)
    right, wrong, claim = reading.meant(drawn.sentence)
    assert (drawn.right, drawn.wrong, drawn.claim) == (right, wrong, claim)
    group = {'she': language.WOMEN, 'he': language.MEN}[drawn.pronoun]
    assert {right, wrong} <= set(group), 'both could be meant'
    assert right != wrong
    assert f' because {drawn.pronoun} ' in drawn.sentence
