"""Generated samples of the GLUE tasks, in the official TSV layout.

A generator takes a random source and the number of a row, and returns the
columns of that row. Columns that no task reads (ids, parses, sources) are
filled in the manner of the official files.
"""

import random
from collections.abc import Callable, Sequence

from synth_mtf.demo.samples import language

Row = Callable[[random.Random, int], Sequence[str]]

_GOOD = ('warm', 'funny', 'moving', 'clever', 'charming', 'brilliant')
_BAD = ('dull', 'clumsy', 'tedious', 'hollow', 'shallow', 'dreadful')
_PARTS = ('story', 'cast', 'music', 'script', 'ending', 'direction')
_NLI_LABELS = ('entailment', 'neutral', 'contradiction')


def cola(rng: random.Random, index: int) -> Sequence[str]:
  """Source, label (0: broken word order), the author's star, sentence."""
  del index
  words = language.fact(rng).sentence().rstrip('.').split()
  acceptable = rng.random() < 0.5
  if not acceptable:
    place = rng.randrange(1, len(words) - 1)
    words[place], words[place + 1] = words[place + 1], words[place]
  return (
    'smp1',
    str(int(acceptable)),
    '' if acceptable else '*',
    ' '.join(words) + '.',
  )


def sst2(rng: random.Random, index: int) -> Sequence[str]:
  """Sentence in lower case with spaced punctuation, label."""
  del index
  positive = rng.random() < 0.5
  first, second = rng.sample(_GOOD if positive else _BAD, 2)
  part, other = rng.sample(_PARTS, 2)
  pattern = rng.choice(
    (
      f'a {first} {part} and a {second} {other} ',
      f'the {part} is {first} , the {other} {second} ',
      f'a {first} and {second} film ',
    )
  )
  return pattern, str(int(positive))


def _pair(rng: random.Random) -> tuple[str, str, bool]:
  """Two sentences and whether they say the same."""
  fact = language.fact(rng)
  same = rng.random() < 0.5
  other = fact if same else fact.changed(rng, rng.choice(('person', 'thing')))
  return fact.sentence(), other.passive(), same


def mrpc(rng: random.Random, index: int) -> Sequence[str]:
  """Quality, two ids, two sentences."""
  first, second, same = _pair(rng)
  return str(int(same)), str(2 * index), str(2 * index + 1), first, second


def qqp(rng: random.Random, index: int) -> Sequence[str]:
  """Id, two question ids, two questions, is_duplicate."""
  fact = language.fact(rng)
  same = rng.random() < 0.5
  other = fact if same else fact.changed(rng, rng.choice(('verb', 'thing')))
  questions = (
    f'How do I {fact.verb} a {fact.thing} {fact.place}?',
    f'What is the best way to {other.verb} a {other.thing} {other.place}?',
  )
  ids = (str(index), str(2 * index), str(2 * index + 1))
  return *ids, *questions, str(int(same))


def stsb(rng: random.Random, index: int) -> Sequence[str]:
  """Ten columns, the score last: 5 minus 1.25 for each part that differs."""
  fact = other = language.fact(rng)
  changes = rng.randrange(5)
  fields = rng.sample(('person', 'verb', 'colour', 'thing', 'place'), changes)
  for field in fields:
    other = other.changed(rng, field)
  return (
    str(index), 'main-sample', 'generated', '2020', f'{index:04d}', 'none',
    'none', fact.sentence(), other.sentence(), f'{5 - 1.25 * changes:.3f}',
  )  # fmt: skip


def _inference(rng: random.Random) -> tuple[str, str, str]:
  """A premise, a hypothesis and how they relate."""
  fact = language.fact(rng)
  label = rng.choice(_NLI_LABELS)
  hypothesis = {
    'entailment': fact.summary(),
    'neutral': f'{fact.person} liked the {fact.thing} very much.',
    'contradiction': fact.negation(),
  }[label]
  return fact.sentence(), hypothesis, label


def _mnli(genres: Sequence[str], annotators: int) -> Row:
  """Returns a generator of MNLI rows with `annotators` label columns."""

  def row(rng: random.Random, index: int) -> Sequence[str]:
    premise, hypothesis, label = _inference(rng)
    return (
      str(index), str(index), f'{index}{label[0]}', rng.choice(genres),
      _binary_parse(premise), _binary_parse(hypothesis),
      _parse(premise), _parse(hypothesis),
      premise, hypothesis, *[label] * annotators, label,
    )  # fmt: skip

  return row


def _binary_parse(sentence: str) -> str:
  *words, last = sentence.rstrip('.').split()
  return (
    ' '.join(f'( {word}' for word in words) + f' {last}' + ' )' * len(words)
  )


def _parse(sentence: str) -> str:
  words = sentence.rstrip('.').split()
  return '(ROOT (S ' + ' '.join(f'(X {word})' for word in words) + ' (. .)))'


def qnli(rng: random.Random, index: int) -> Sequence[str]:
  """Index, question, sentence, whether the sentence answers it."""
  fact, other = language.story(rng, 2)
  answered = rng.random() < 0.5
  return (
    str(index),
    f'Who {fact.past} {fact.object}?',
    (fact if answered else other).sentence(),
    'entailment' if answered else 'not_entailment',
  )


def rte(rng: random.Random, index: int) -> Sequence[str]:
  """Index, premise of two sentences, hypothesis, label."""
  premise, hypothesis, label = entailment(rng)
  return str(index), premise, hypothesis, label


def entailment(rng: random.Random) -> tuple[str, str, str]:
  """A premise, a hypothesis and RTE's label of the two."""
  facts = language.story(rng, 2)
  follows = rng.random() < 0.5
  fact = rng.choice(facts)
  hypothesis = fact.summary() if follows else fact.negation()
  label = 'entailment' if follows else 'not_entailment'
  return language.text(facts), hypothesis, label


def wnli(rng: random.Random, index: int) -> Sequence[str]:
  """Index, sentence with a pronoun, the claim with a name, label."""
  drawn = language.anaphora(rng)
  right = rng.random() < 0.5
  name = drawn.right if right else drawn.wrong
  return str(index), drawn.sentence, f'{name} {drawn.claim}.', str(int(right))


_MNLI_COLUMNS = (
  'index', 'promptID', 'pairID', 'genre', 'sentence1_binary_parse',
  'sentence2_binary_parse', 'sentence1_parse', 'sentence2_parse', 'sentence1',
  'sentence2',
)  # fmt: skip
_MNLI_DEV = (*_MNLI_COLUMNS, *(f'label{i}' for i in range(1, 6)), 'gold_label')
_MATCHED = ('fiction', 'government', 'slate', 'telephone', 'travel')
_MISMATCHED = ('facetoface', 'letters', 'nineeleven', 'oup', 'verbatim')
_STSB_COLUMNS = (
  'index', 'genre', 'filename', 'year', 'old_index', 'source1', 'source2',
  'sentence1', 'sentence2', 'score',
)  # fmt: skip
_SAME_IN_BOTH = {  # folder -> header, generator; train.tsv and dev.tsv
  'CoLA': ((), cola),
  'SST-2': (('sentence', 'label'), sst2),
  'MRPC': (('Quality', '#1 ID', '#2 ID', '#1 String', '#2 String'), mrpc),
  'QQP': (
    ('id', 'qid1', 'qid2', 'question1', 'question2', 'is_duplicate'),
    qqp,
  ),
  'STS-B': (_STSB_COLUMNS, stsb),
  'QNLI': (('index', 'question', 'sentence', 'label'), qnli),
  'RTE': (('index', 'sentence1', 'sentence2', 'label'), rte),
  'WNLI': (('index', 'sentence1', 'sentence2', 'label'), wnli),
}

TRAIN: dict[str, tuple[Sequence[str], Row]] = {
  f'{folder}/train.tsv': table for folder, table in _SAME_IN_BOTH.items()
} | {
  'MNLI/train.tsv': (
    (*_MNLI_COLUMNS, 'label1', 'gold_label'),
    _mnli(_MATCHED, 1),
  )
}
DEV: dict[str, tuple[Sequence[str], Row]] = {
  f'{folder}/dev.tsv': table for folder, table in _SAME_IN_BOTH.items()
} | {
  'MNLI/dev_matched.tsv': (_MNLI_DEV, _mnli(_MATCHED, 5)),
  'MNLI/dev_mismatched.tsv': (_MNLI_DEV, _mnli(_MISMATCHED, 5)),
}
