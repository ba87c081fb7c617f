"""A generated sample of SQuAD v1.1, in the official nested JSON."""

import random
from typing import Any

from synth_mtf.demo.samples import language

_PARAGRAPHS_PER_ARTICLE = 10


def squad(
  rng: random.Random, paragraphs: int, annotators: int
) -> dict[str, Any]:
  """Returns the content of a SQuAD file.

  Args:
    rng: the random source.
    paragraphs: how many paragraphs, of three questions each.
    annotators: how often each answer is given; 1 in the official training
      file, 3 and more in the development file.
  """
  articles: list[dict[str, Any]] = []
  for start in range(0, paragraphs, _PARAGRAPHS_PER_ARTICLE):
    size = min(_PARAGRAPHS_PER_ARTICLE, paragraphs - start)
    articles.append(
      {
        'title': f'Generated_sample_{len(articles) + 1}',
        'paragraphs': [_paragraph(rng, annotators) for _ in range(size)],
      }
    )
  return {'data': articles, 'version': '1.1'}


def _paragraph(rng: random.Random, annotators: int) -> dict[str, Any]:
  facts = language.story(rng, 3)
  context = language.text(facts)
  who, what, where = rng.sample(facts, 3)
  asked = (
    (f'Who {who.past} {who.object}?', who.person),
    (f'What did {what.person} {what.verb}?', what.object),
    (f'Where did {where.person} {where.verb} a {where.thing}?', where.place),
  )
  return {
    'context': context,
    'qas': [
      {
        'answers': [{'answer_start': context.index(answer), 'text': answer}]
        * annotators,
        'question': question,
        'id': f'{rng.getrandbits(96):024x}',
      }
      for question, answer in asked
    ],
  }
