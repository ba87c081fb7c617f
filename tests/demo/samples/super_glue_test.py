"""SuperGLUE's samples: each label follows from what its sentences say."""

import collections
import random
import re

import pytest

from synth_mtf.demo.samples import super_glue
from tests.demo.samples import reading


def lines(task, count=300):
  rng = random.Random(task)
  return [super_glue.TASKS[task](rng, index) for index in range(count)]


def test_boolq_is_true_of_what_the_passage_says():
  for line in lines('BoolQ'):
    title, _, passage = line['passage'].partition(' -- ')
    told = reading.facts(passage)
    claims = [
      f'did {t.person} {t.verb} the {t.colour} {t.thing}'.lower() for t in told
    ]
    assert line['label'] == (line['question'] in claims)
    assert title in [t.person for t in told]


def test_cb_is_as_its_speaker_commits():
  labels = {
    'Everybody knows that': 'entailment',
    'Nobody believes any longer that': 'contradiction',
    'I wonder if': 'neutral',
  }
  for line in lines('CB'):
    _, opening, claim = reading.parts(
      rf'(.*\.) ({"|".join(labels)}) (.*)\.', line['premise']
    )
    assert line['label'] == labels[opening]
    assert line['hypothesis'] == claim


def test_copa_has_one_cause_of_each_effect():
  """What is right in some rows agrees with what is in all others."""
  effects: dict[str, str] = {}
  causes: dict[str, str] = {}
  for line in lines('COPA'):
    person, premise = line['premise'].split(' ', 1)
    choices = [line['choice1'], line['choice2']]
    assert all(one.startswith(f'{person} ') for one in choices)
    right, wrong = (
      choices[i].split(' ', 1)[1] for i in (line['label'], 1 - line['label'])
    )
    pair = (
      (premise, right) if line['question'] == 'effect' else (right, premise)
    )
    assert effects.setdefault(pair[0], pair[1]) == pair[1]
    assert causes.setdefault(pair[1], pair[0]) == pair[0]
    assert right != wrong
  assert len(effects) == len(causes) == 10
  assert not set(effects) & set(causes)
  assert effects['missed the train.'] == 'arrived late.'


def test_multirc_is_right_of_what_was_asked_about():
  for line in lines('MultiRC', 100):
    told = reading.facts(line['passage']['text'])
    for question in line['passage']['questions']:
      person, verb = reading.parts(
        r'What did (\w+) (\w+)\?', question['question']
      )
      (asked,) = [t for t in told if (t.person, t.verb) == (person, verb)]
      right = {f'the {asked.colour} {asked.thing}', f'a {asked.thing}'}
      answers = {one['text']: one['label'] for one in question['answers']}
      assert len(answers) == 3
      assert {text for text, label in answers.items() if label} == right


def test_multirc_numbers_questions_and_answers_on():
  drawn = lines('MultiRC', 5)
  questions = [q for line in drawn for q in line['passage']['questions']]
  answers = [a['idx'] for q in questions for a in q['answers']]
  assert [q['idx'] for q in questions] == list(range(10))
  assert answers == list(range(30))


def test_record_leaves_out_whom_the_passage_names():
  for line in lines('ReCoRD', 100):
    text = line['passage']['text']
    (qa,) = line['qas']
    names = {answer['text'] for answer in qa['answers']}
    assert len(names) == 1
    (name,) = names
    assert name not in qa['query']
    (told,) = reading.passive(qa['query'].replace('@placeholder', name))
    assert told in reading.facts(text)
    # Every mention of the name is an answer, and of any name an entity.
    assert [(a['start'], a['end'] + 1) for a in qa['answers']] == [
      found.span() for found in re.finditer(name, text)
    ]
    mentions = {
      text[one['start'] : one['end'] + 1]: None
      for one in line['passage']['entities']
    }
    assert list(mentions) == [told.person for told in reading.facts(text)]
    assert len(line['passage']['entities']) == 2 * 3


def test_rte_follows_from_one_of_two_sentences():
  for line in lines('RTE'):
    follows = reading.follows(line['premise'], line['hypothesis'])
    assert follows is not None
    assert line['label'] == ('entailment' if follows else 'not_entailment')


def test_wic_has_two_senses_of_each_word():
  """Sentences of which some rows say that they agree do so in all rows."""
  drawn = lines('WiC', 600)
  together: dict[str, set[str]] = collections.defaultdict(set)
  for line in drawn:
    pair = {line['sentence1'], line['sentence2']}
    assert len(pair) == 2
    if line['label']:
      for sentence in pair:
        together[sentence] |= pair
  senses: dict[str, set[frozenset[str]]] = collections.defaultdict(set)
  for line in drawn:
    first, second = (frozenset(together[line[f'sentence{i}']]) for i in (1, 2))
    assert line['label'] == (first == second)
    senses[line['word']] |= {first, second}
  assert len(senses) == 8
  assert {len(found) for found in senses.values()} == {2}
  (bats,) = [found for found in senses['bat'] if 'cave' in ''.join(found)]
  assert 'The bat flew out at night.' in bats


def test_wic_marks_its_word():
  for line in lines('WiC'):
    for i in (1, 2):
      sentence = line[f'sentence{i}']
      start, end = line[f'start{i}'], line[f'end{i}']
      assert sentence[start:end] == line['word']
      around = f' {sentence} '[start], f' {sentence} '[end + 1]
      assert not any(one.isalpha() for one in around), 'a part of a word'


def test_wsc_names_whom_the_pronoun_means():
  for line in lines('WSC'):
    words, target = line['text'].split(), line['target']
    for i in (1, 2):
      assert words[target[f'span{i}_index']] == target[f'span{i}_text']
    right, wrong, _ = reading.meant(line['text'])
    assert target['span1_text'] == (right if line['label'] else wrong)
    assert target['span2_text'] in ('she', 'he')


@pytest.mark.parametrize('task', super_glue.TASKS)
def test_rows_are_numbered(task):
  assert [line['idx'] for line in lines(task, 3)] == [0, 1, 2]


@pytest.mark.parametrize(
  'task, classes',
  [('BoolQ', 2), ('CB', 3), ('COPA', 2), ('RTE', 2), ('WiC', 2), ('WSC', 2)],
)
def test_labels_are_balanced(task, classes):
  labels = [line['label'] for line in lines(task, 480)]
  assert len(set(labels)) == classes
  for one in set(labels):
    assert 0.8 < labels.count(one) / len(labels) * classes < 1.2
