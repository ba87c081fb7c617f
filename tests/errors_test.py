"""Errors for users."""

import pytest

from synth_mtf.errors import nearest, nearest_task

NAMES = ['random', 'random_vanilla', 'dense', None, 3]


@pytest.mark.parametrize(
  'name, hint',
  [
    ('randm', "; did you mean 'random'?"),
    ('random_vanila', "; did you mean 'random_vanilla' or 'random'?"),
    ('dens', "; did you mean 'dense'?"),
    ('zzzz', ''),
    (None, ''),
  ],
)
def test_nearest_offers_what_is_like_a_name(name, hint):
  assert nearest(name, NAMES) == hint


def test_nearest_compares_the_part_that_differs():
  files = ['sizes/3B.gin', 'sizes/lmx.gin', 'sizes/tiny.gin']

  def stem(file):
    return file.removesuffix('.gin').rpartition('/')[2]

  hint = nearest('sizes/tinny.gin', files, stem)
  assert hint == "; did you mean 'sizes/tiny.gin'?"


@pytest.mark.parametrize(
  'name, hint',
  [
    ('cola', "; did you mean 'synth_glue_cola_v002' or 'glue_cola_v002'?"),
    ('glue_cola', "; did you mean 'synth_glue_cola_v002' or 'glue_cola_v002'?"),
    ('rte', "; did you mean 'synth_glue_rte_v002'?"),
    ('en_mx', "; did you mean 'synth_en_mix'?"),
    ('zzzz', ''),
  ],
)
def test_the_nearest_task_has_the_words_of_a_name(name, hint):
  tasks = ['glue_cola_v002', 'synth_en_mix', 'synth_glue_cola_v002']
  assert nearest_task(name, [*tasks, 'synth_glue_rte_v002']) == hint
