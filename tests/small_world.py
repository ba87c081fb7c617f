"""Generates simple English sentences for test data."""

import random
from typing import NamedTuple

WOMEN = ('Anna', 'Clara', 'Edith', 'Grace', 'Irene', 'Laura', 'Nora', 'Paula')
MEN = ('Boris', 'David', 'Frank', 'Henry', 'Jacob', 'Martin', 'Oscar', 'Simon')
PEOPLE = WOMEN + MEN
COLOURS = ('red', 'blue', 'green', 'yellow', 'white', 'black', 'brown', 'grey')
THINGS = (
  'boat', 'lamp', 'chair', 'clock', 'basket', 'bicycle', 'ladder', 'drum',
  'kettle', 'mirror', 'table', 'coat',
)  # fmt: skip
PLACES = (
  'in the harbour', 'at the market', 'near the bridge', 'in the garden',
  'at the station', 'behind the church', 'in the kitchen', 'on the hill',
)  # fmt: skip
PAST = {  # infinitive -> past tense
  'paint': 'painted', 'sell': 'sold', 'find': 'found', 'lose': 'lost',
  'buy': 'bought', 'clean': 'cleaned', 'repair': 'repaired',
  'carry': 'carried', 'move': 'moved', 'borrow': 'borrowed',
}  # fmt: skip


class Fact(NamedTuple):
  """Somebody did something to a thing somewhere."""

  person: str
  verb: str
  colour: str
  thing: str
  place: str

  @property
  def past(self) -> str:
    return PAST[self.verb]

  def sentence(self) -> str:
    return (
      f'{self.person} {self.past} the {self.colour} {self.thing} {self.place}.'
    )

  def summary(self) -> str:
    return f'{self.person} {self.past} a {self.thing}.'


_VALUES = (PEOPLE, tuple(PAST), COLOURS, THINGS, PLACES)


def fact(rng: random.Random) -> Fact:
  return Fact(*map(rng.choice, _VALUES))


def story(rng: random.Random, length: int) -> list[Fact]:
  """Draws facts that share no person, verb, colour, thing or place."""
  return [Fact(*row) for row in zip(*(rng.sample(v, length) for v in _VALUES))]


def text(facts: list[Fact]) -> str:
  return ' '.join(one.sentence() for one in facts)


def anaphora(rng: random.Random) -> tuple[str, str, str, str]:
  """A sentence with a pronoun, the pronoun, whom it means and whom it does not.

  The verb decides.
  """
  group, pronoun = rng.choice(((WOMEN, 'she'), (MEN, 'he')))
  first, second = rng.sample(group, 2)
  thing = rng.choice(THINGS)
  verb, claim, first_is_right = rng.choice(
    (
      ('thanked', f'had repaired the {thing}', False),
      ('praised', f'had cleaned the {thing}', False),
      ('begged', f'needed the {thing}', True),
      ('called', f'had found the {thing}', True),
    )
  )
  people = (first, second) if first_is_right else (second, first)
  sentence = f'{first} {verb} {second} because {pronoun} {claim}.'
  return sentence, pronoun, *people
