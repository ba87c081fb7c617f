"""A small world to write sample examples about: people, things, events.

The benchmarks' own sentences are not ours to distribute. These are made from a
few word lists and sentence patterns, so that a tiny model can learn each task
from few examples, and the label follows from what the sentences say.
"""

import dataclasses
import random

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
PAST = {  # infinitive -> past tense, which is the participle too
  'paint': 'painted', 'sell': 'sold', 'find': 'found', 'lose': 'lost',
  'buy': 'bought', 'clean': 'cleaned', 'repair': 'repaired',
  'carry': 'carried', 'move': 'moved', 'borrow': 'borrowed',
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Fact:
  """Somebody did something to a thing somewhere."""

  person: str
  verb: str
  colour: str
  thing: str
  place: str

  @property
  def past(self) -> str:
    """The verb's past tense."""
    return PAST[self.verb]

  @property
  def object(self) -> str:
    """The thing with its article and colour."""
    return f'the {self.colour} {self.thing}'

  def sentence(self) -> str:
    """'Anna painted the red boat in the harbour.'."""
    return f'{self.person} {self.past} {self.object} {self.place}.'

  def passive(self) -> str:
    """'The red boat was painted by Anna in the harbour.'."""
    return (
      f'{_capital(self.object)} was {self.past} by {self.person} {self.place}.'
    )

  def negation(self) -> str:
    """'Anna did not paint the red boat in the harbour.'."""
    return f'{self.person} did not {self.verb} {self.object} {self.place}.'

  def summary(self) -> str:
    """'Anna painted a boat.': what follows from the fact, and less."""
    return f'{self.person} {self.past} a {self.thing}.'

  def changed(self, rng: random.Random, field: str) -> 'Fact':
    """Returns the fact with another value of `field`."""
    others = [v for v in _VALUES[field] if v != getattr(self, field)]
    return dataclasses.replace(self, **{field: rng.choice(others)})


_VALUES = {
  'person': PEOPLE,
  'verb': tuple(PAST),
  'colour': COLOURS,
  'thing': THINGS,
  'place': PLACES,
}


def fact(rng: random.Random) -> Fact:
  """Draws a fact."""
  return Fact(**{field: rng.choice(_VALUES[field]) for field in _VALUES})


def story(rng: random.Random, length: int) -> list[Fact]:
  """Draws facts in which no person, verb, thing or place occurs twice."""
  columns = {
    field: rng.sample(_VALUES[field], length)
    for field in ('person', 'verb', 'colour', 'thing', 'place')
  }
  return [
    Fact(**{field: column[i] for field, column in columns.items()})
    for i in range(length)
  ]


def text(facts: list[Fact]) -> str:
  """Returns the facts as a paragraph."""
  return ' '.join(one.sentence() for one in facts)


@dataclasses.dataclass(frozen=True)
class Anaphora:
  """A sentence with a pronoun that could mean either of two people."""

  sentence: str
  pronoun: str
  right: str  # whom the pronoun means
  wrong: str
  claim: str  # what is said of the pronoun


def anaphora(rng: random.Random) -> Anaphora:
  """Draws a sentence whose verb decides whom the pronoun means."""
  group, pronoun = rng.choice(((WOMEN, 'she'), (MEN, 'he')))
  first, second = rng.sample(group, 2)
  thing = rng.choice(THINGS)
  verb, claim, means_first = rng.choice(
    (
      ('thanked', f'had repaired the {thing}', False),
      ('blamed', f'had lost the {thing}', False),
      ('praised', f'had cleaned the {thing}', False),
      ('begged', f'needed the {thing}', True),
      ('asked', f'wanted the {thing}', True),
      ('called', f'had found the {thing}', True),
    )
  )
  return Anaphora(
    sentence=f'{first} {verb} {second} because {pronoun} {claim}.',
    pronoun=pronoun,
    right=first if means_first else second,
    wrong=second if means_first else first,
    claim=claim,
  )


def _capital(phrase: str) -> str:
  return phrase[0].upper() + phrase[1:]
