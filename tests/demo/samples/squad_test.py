"""SQuAD's samples: each answer is a span of its paragraph, and right."""

import random
import re

from synth_mtf.demo.samples.squad import squad
from tests.demo.samples import reading


def paragraphs(content):
  return [one for article in content['data'] for one in article['paragraphs']]


def answer(question, told):
  """The answer by the sentences of a paragraph."""
  who = re.fullmatch(r'Who (\w+) the (\w+) (\w+)\?', question)
  if who:
    asked = (reading.infinitive(who[1]), who[2], who[3])
    return next(one.person for one in told if one[1:4] == asked)
  what = re.fullmatch(r'What did (\w+) (\w+)\?', question)
  if what:
    one = next(one for one in told if one[:2] == what.groups())
    return f'the {one.colour} {one.thing}'
  where = reading.parts(r'Where did (\w+) (\w+) a (\w+)\?', question)
  return next(
    one.place for one in told if (one.person, one.verb, one.thing) == where
  )


def test_answers_are_spans_that_answer():
  for paragraph in paragraphs(squad(random.Random(0), 60, 1)):
    context = paragraph['context']
    told = reading.facts(context)
    assert len(told) == 3
    words = [qa['question'].split()[0] for qa in paragraph['qas']]
    assert words == ['Who', 'What', 'Where']
    for qa in paragraph['qas']:
      (given,) = qa['answers']
      assert given['text'] == answer(qa['question'], told)
      assert context[given['answer_start'] :].startswith(given['text'])


def test_a_paragraph_is_asked_about_three_sentences():
  """None of the questions is answered by the sentence of another."""
  for paragraph in paragraphs(squad(random.Random(1), 30, 1)):
    sentences = paragraph['context'].split('.')
    texts = [qa['answers'][0]['text'] for qa in paragraph['qas']]
    at = [
      next(i for i, sentence in enumerate(sentences) if text in sentence)
      for text in texts
    ]
    assert sorted(at) == [0, 1, 2]


def test_articles_have_ten_paragraphs_at_most():
  content = squad(random.Random(0), 23, 1)
  sizes = [len(article['paragraphs']) for article in content['data']]
  assert sizes == [10, 10, 3]
  assert len({article['title'] for article in content['data']}) == 3
  assert content['version'] == '1.1'


def test_every_question_has_an_id_and_an_answer_of_each_annotator():
  asked = [
    qa
    for one in paragraphs(squad(random.Random(0), 23, 3))
    for qa in one['qas']
  ]
  assert len({qa['id'] for qa in asked}) == len(asked) == 69
  for qa in asked:
    first, *others = qa['answers']
    assert others == [first] * 2
