"""GLUE's samples: each label follows from what its sentences say."""

import random
import re

import pytest

from synth_mtf.demo.samples import glue, language
from tests.demo.samples import reading

WORDS = {
  '1': {'warm', 'funny', 'moving', 'clever', 'charming', 'brilliant'},
  '0': {'dull', 'clumsy', 'tedious', 'hollow', 'shallow', 'dreadful'},
}
SENTENCE = re.compile(
  '({}) ({}) the ({}) ({}) ({}){}'.format(
    *map(
      '|'.join,
      (
        language.PEOPLE,
        language.PAST.values(),
        language.COLOURS,
        language.THINGS,
        language.PLACES,
      ),
    ),
    re.escape('.'),
  )
)


def rows(task, count=300):
  """Rows of a file, by the names of its columns where it has any."""
  header, row = glue.TRAIN[f'{task}/train.tsv']
  rng = random.Random(task)
  drawn = [row(rng, index) for index in range(count)]
  return [dict(zip(header, one)) for one in drawn] if header else drawn


def test_cola_is_acceptable_in_the_order_of_the_grammar():
  for source, label, star, sentence in rows('CoLA'):
    assert label == str(int(SENTENCE.fullmatch(sentence) is not None))
    assert star == {'0': '*', '1': ''}[label]
    assert source == 'smp1'


def test_sst2_is_as_its_words_are():
  for row in rows('SST-2'):
    words = set(row['sentence'].split())
    assert len(words & WORDS[row['label']]) == 2
    assert not words & WORDS[{'0': '1', '1': '0'}[row['label']]]
    assert row['sentence'] == row['sentence'].lower()


def test_mrpc_says_the_same_in_another_voice():
  for row in rows('MRPC'):
    same = reading.facts(row['#1 String']) == reading.passive(row['#2 String'])
    assert row['Quality'] == str(int(same))


def test_qqp_asks_the_same_in_other_words():
  for row in rows('QQP'):
    first = reading.parts(r'How do I (.*)\?', row['question1'])
    second = reading.parts(r'What is the best way to (.*)\?', row['question2'])
    assert row['is_duplicate'] == str(int(first == second))


def test_stsb_counts_what_differs():
  seen = set()
  for row in rows('STS-B'):
    (one,), (other,) = map(reading.facts, (row['sentence1'], row['sentence2']))
    differing = sum(a != b for a, b in zip(one, other))
    assert float(row['score']) == 5 - 1.25 * differing
    seen.add(differing)
  assert seen == {0, 1, 2, 3, 4}


def test_mnli_follows_or_contradicts_or_neither():
  for row in rows('MNLI'):
    premise, hypothesis = row['sentence1'], row['sentence2']
    assert row['gold_label'] == row['label1'] == {
      True: 'entailment', False: 'contradiction', None: 'neutral',
    }[reading.follows(premise, hypothesis)]  # fmt: skip
    (told,) = reading.facts(premise)
    assert {told.person, told.thing} <= set(re.findall(r'\w+', hypothesis))


def test_mnli_of_two_genres():
  genres = []
  for part in ('matched', 'mismatched'):
    header, row = glue.DEV[f'MNLI/dev_{part}.tsv']
    drawn = [dict(zip(header, row(random.Random(i), i))) for i in range(50)]
    genres.append({one['genre'] for one in drawn})
    for one in drawn:
      labels = {one[f'label{annotator}'] for annotator in range(1, 6)}
      assert labels == {one['gold_label']}
  assert not genres[0] & genres[1]
  assert {row['genre'] for row in rows('MNLI')} == genres[0]


def test_parses_of_mnli_hold_the_words_of_their_sentences():
  for row in rows('MNLI', 20):
    for side in ('sentence1', 'sentence2'):
      words = row[side].rstrip('.').split()
      binary = row[f'{side}_binary_parse']
      assert re.sub(r'[() ]+', ' ', binary).split() == words
      while '(' in binary:  # a pair becomes a word
        binary, pairs = re.subn(r'\( \w+ \w+ \)', 'pair', binary)
        assert pairs
      assert binary == 'pair'
      parse = row[f'{side}_parse']
      assert re.findall(r'\(X (\w+)\)', parse) == words
      assert parse.count('(') == parse.count(')')


def test_qnli_is_answered_where_verb_and_object_agree():
  for row in rows('QNLI'):
    verb, colour, thing = reading.parts(
      r'Who (\w+) the (\w+) (\w+)\?', row['question']
    )
    (told,) = reading.facts(row['sentence'])
    asked = (reading.infinitive(verb), colour, thing)
    answers = told[1:4] == asked
    assert row['label'] == ('entailment' if answers else 'not_entailment')


def test_rte_follows_from_one_of_two_sentences():
  for row in rows('RTE'):
    assert len(reading.facts(row['sentence1'])) == 2
    follows = reading.follows(row['sentence1'], row['sentence2'])
    assert follows is not None
    assert row['label'] == ('entailment' if follows else 'not_entailment')


def test_wnli_names_whom_the_pronoun_means():
  for row in rows('WNLI'):
    right, wrong, claim = reading.meant(row['sentence1'])
    assert (
      row['sentence2']
      == {
        '1': f'{right} {claim}.',
        '0': f'{wrong} {claim}.',
      }[row['label']]
    )


@pytest.mark.parametrize(
  'task, column, classes',
  [
    ('CoLA', 1, 2),
    ('SST-2', 'label', 2),
    ('MRPC', 'Quality', 2),
    ('QQP', 'is_duplicate', 2),
    ('MNLI', 'gold_label', 3),
    ('QNLI', 'label', 2),
    ('RTE', 'label', 2),
    ('WNLI', 'label', 2),
  ],
)
def test_labels_are_balanced(task, column, classes):
  labels = [row[column] for row in rows(task, 480)]
  assert len(set(labels)) == classes
  for one in set(labels):
    assert 0.8 < labels.count(one) / len(labels) * classes < 1.2
