"""What generated sentences say, read without what generates them."""

import re
from typing import NamedTuple, Optional

_PLACE = r'\w+ the \w+'
_FACT = re.compile(rf'(\w+) (\w+) the (\w+) (\w+) ({_PLACE})\.')
_PASSIVE = re.compile(rf'The (\w+) (\w+) was (\w+) by (\w+) ({_PLACE})\.')
_NEGATION = re.compile(rf'(\w+) did not (\w+) the (\w+) (\w+) ({_PLACE})\.')
_SUMMARY = re.compile(r'(\w+) (\w+) an? (\w+)\.')
_ANAPHORA = r'(\w+) (\w+) (\w+) because (?:she|he) (.+)\.'
_INFINITIVES = {  # of verbs that do not end in -ed, or not in it alone
  'sold': 'sell', 'found': 'find', 'lost': 'lose', 'bought': 'buy',
  'carried': 'carry', 'moved': 'move',
}  # fmt: skip
# Who gives the reason: the one who is told of first, or the other.
_OF_THE_FIRST = {
  'begged': True,
  'asked': True,
  'called': True,
  'thanked': False,
  'blamed': False,
  'praised': False,
}


class Told(NamedTuple):
  """Who did what to which thing where; the verb is the infinitive."""

  person: str
  verb: str
  colour: str
  thing: str
  place: str


def facts(text: str) -> list[Told]:
  """What sentences in the active voice tell."""
  return [
    Told(person, infinitive(verb), *others)
    for person, verb, *others in _FACT.findall(text)
  ]


def passive(text: str) -> list[Told]:
  """What sentences in the passive voice tell."""
  return [
    Told(person, infinitive(verb), colour, thing, place)
    for colour, thing, verb, person, place in _PASSIVE.findall(text)
  ]


def parts(pattern: str, text: str) -> tuple[str, ...]:
  """The groups of a pattern that all of a text must be of."""
  found = re.fullmatch(pattern, text)
  assert found, text
  return found.groups()


def infinitive(past: str) -> str:
  """The infinitive of a verb in the past tense."""
  return _INFINITIVES.get(past) or past.removesuffix('ed')


def follows(premise: str, hypothesis: str) -> Optional[bool]:
  """Whether a sentence follows, or its contrary; None if neither is told."""
  told = facts(premise)
  negated = _NEGATION.fullmatch(hypothesis)
  if negated:
    return False if Told(*negated.groups()) in told else None
  said = _SUMMARY.fullmatch(hypothesis)
  if not said:
    return None
  person, verb, thing = said.groups()
  wanted = (person, infinitive(verb), thing)
  return wanted in [(t.person, t.verb, t.thing) for t in told] or None


def meant(sentence: str) -> tuple[str, str, str]:
  """Whom a pronoun means, whom it could mean, and what is said of it."""
  first, verb, second, claim = parts(_ANAPHORA, sentence)
  if _OF_THE_FIRST[verb]:
    return first, second, claim
  return second, first, claim
