"""Generated samples of the SuperGLUE tasks, in the official JSON lines.

A generator takes a random source and the number of a row, and returns the
object of that line, with the keys of the official files.
"""

import random
import re
from collections.abc import Callable
from typing import Any

from synth_mtf.demo.samples import glue, language

Line = Callable[[random.Random, int], dict[str, Any]]

_CAUSES = (  # what happened, what came of it
  ('dropped the glass', 'swept up the pieces'),
  ('missed the train', 'arrived late'),
  ('forgot the umbrella', 'got wet in the rain'),
  ('won the race', 'received a medal'),
  ('told a joke', 'made the guests laugh'),
  ('burned the soup', 'opened the window'),
  ('lost the key', 'climbed over the fence'),
  ('ate too much cake', 'felt sick'),
  ('studied all night', 'passed the exam'),
  ('broke a leg', 'walked with a stick'),
)
_SENSES = {  # word -> sentences of one sense, sentences of the other
  'bank': (
    ('We had a picnic on the bank of the river.', 'The bank was muddy.'),
    ('The bank lends money.', 'She put her savings in the bank.'),
  ),
  'bat': (
    ('A bat hung from the roof of the cave.', 'The bat flew out at night.'),
    ('He hit the ball with the bat.', 'The player swung his bat.'),
  ),
  'spring': (
    ('The trees bloom in spring.', 'Last spring was cold.'),
    ('The spring of the watch broke.', 'A metal spring pushes the lid.'),
  ),
  'bark': (
    ('The bark of the dog woke me.', 'A loud bark came from the yard.'),
    ('The bark of the oak is rough.', 'Deer eat the bark of young trees.'),
  ),
  'match': (
    ('They won the match by two goals.', 'The match ended in a draw.'),
    ('She lit the candle with a match.', 'The last match was wet.'),
  ),
  'ring': (
    ('He gave her a gold ring.', 'The ring had a small stone.'),
    ('The ring of the telephone woke us.', 'I heard one ring of the bell.'),
  ),
  'crane': (
    ('A crane stood in the shallow water.', 'The crane spread its wings.'),
    ('The crane lifted the steel beams.', 'A crane unloads the ships.'),
  ),
  'plant': (
    ('Water the plant every week.', 'The plant has yellow flowers.'),
    ('The plant makes car engines.', 'The workers left the plant at six.'),
  ),
}


def boolq(rng: random.Random, index: int) -> dict[str, Any]:
  """A passage with a title and a yes-no question in lower case."""
  facts = language.story(rng, 3)
  asked = rng.choice(facts)
  true = rng.random() < 0.5
  other = asked if true else asked.changed(rng, 'verb')
  return {
    'question': f'did {other.person} {other.verb} {other.object}'.lower(),
    'passage': f'{asked.person} -- {language.text(facts)}',
    'idx': index,
    'label': true,
  }


def cb(rng: random.Random, index: int) -> dict[str, Any]:
  """A premise that asserts, denies or leaves open the hypothesis."""
  fact, other = language.story(rng, 2)
  claim = fact.sentence().rstrip('.')
  label = rng.choice(('entailment', 'contradiction', 'neutral'))
  opening = {
    'entailment': 'Everybody knows that',
    'contradiction': 'Nobody believes any longer that',
    'neutral': 'I wonder if',
  }[label]
  return {
    'premise': f'{other.sentence()} {opening} {claim}.',
    'hypothesis': claim,
    'label': label,
    'idx': index,
  }


def copa(rng: random.Random, index: int) -> dict[str, Any]:
  """Which of two sentences is the cause, or the effect, of the premise."""
  right, wrong = rng.sample(_CAUSES, 2)
  person = rng.choice(language.PEOPLE)
  question = rng.choice(('cause', 'effect'))
  given, asked = (0, 1) if question == 'effect' else (1, 0)
  label = rng.randrange(2)
  choices = [right, wrong] if label == 0 else [wrong, right]
  return {
    'premise': f'{person} {right[given]}.',
    'choice1': f'{person} {choices[0][asked]}.',
    'choice2': f'{person} {choices[1][asked]}.',
    'question': question,
    'label': label,
    'idx': index,
  }


def multirc(rng: random.Random, index: int) -> dict[str, Any]:
  """A passage, two questions, three answers to each; several may be right."""
  facts = language.story(rng, 4)
  questions = []
  for number, fact in enumerate(facts[:2]):
    answers = [
      (fact.object, 1),
      (f'a {fact.thing}', 1),
      (facts[3 - number].object, 0),
    ]
    rng.shuffle(answers)
    question_idx = 2 * index + number
    questions.append(
      {
        'question': f'What did {fact.person} {fact.verb}?',
        'answers': [
          {'text': text, 'idx': 3 * question_idx + i, 'label': label}
          for i, (text, label) in enumerate(answers)
        ],
        'idx': question_idx,
      }
    )
  passage = {'text': language.text(facts), 'questions': questions}
  return {'idx': index, 'version': 1.1, 'passage': passage}


def record(rng: random.Random, index: int) -> dict[str, Any]:
  """A passage with its entities, and a query with one of them left out.

  `end` is the index of the last character, as in the official files.
  """
  facts = language.story(rng, 3)
  highlights = '\n'.join(f'@highlight\n{one.summary()}' for one in facts)
  text = f'{language.text(facts)}\n{highlights}'
  mentions = [
    {'start': found.start(), 'end': found.end() - 1, 'text': found.group()}
    for found in re.finditer('|'.join(one.person for one in facts), text)
  ]
  asked = rng.choice(facts)
  return {
    'source': 'Generated sample',
    'passage': {
      'text': text,
      'entities': [
        {'start': one['start'], 'end': one['end']} for one in mentions
      ],
    },
    'qas': [
      {
        'query': asked.passive().replace(asked.person, '@placeholder'),
        'answers': [one for one in mentions if one['text'] == asked.person],
        'idx': index,
      }
    ],
    'idx': index,
  }


def rte(rng: random.Random, index: int) -> dict[str, Any]:
  """GLUE's RTE under SuperGLUE's names."""
  premise, hypothesis, label = glue.entailment(rng)
  return {
    'premise': premise,
    'hypothesis': hypothesis,
    'label': label,
    'idx': index,
  }


def wic(rng: random.Random, index: int) -> dict[str, Any]:
  """A word in two sentences: the same sense or not."""
  word = rng.choice(sorted(_SENSES))
  senses = list(_SENSES[word])
  same = rng.random() < 0.5
  if same:
    first, second = rng.sample(rng.choice(senses), 2)
  else:
    rng.shuffle(senses)
    first, second = (rng.choice(sentences) for sentences in senses)
  starts = [len(re.split(rf'\b{word}\b', one)[0]) for one in (first, second)]
  return {
    'word': word,
    'sentence1': first,
    'sentence2': second,
    'idx': index,
    'label': same,
    'start1': starts[0],
    'start2': starts[1],
    'end1': starts[0] + len(word),
    'end2': starts[1] + len(word),
    'version': 1.1,
  }


def wsc(rng: random.Random, index: int) -> dict[str, Any]:
  """Whether a pronoun means a name; the indices count words."""
  drawn = language.anaphora(rng)
  right = rng.random() < 0.5
  name = drawn.right if right else drawn.wrong
  words = drawn.sentence.split()
  return {
    'text': drawn.sentence,
    'target': {
      'span1_index': words.index(name),
      'span1_text': name,
      'span2_index': words.index(drawn.pronoun),
      'span2_text': drawn.pronoun,
    },
    'idx': index,
    'label': right,
  }


TASKS: dict[str, Line] = {  # folder -> generator; train.jsonl and val.jsonl
  'BoolQ': boolq,
  'CB': cb,
  'COPA': copa,
  'MultiRC': multirc,
  'ReCoRD': record,
  'RTE': rte,
  'WiC': wic,
  'WSC': wsc,
}
