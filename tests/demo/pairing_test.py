"""Sign tests over examples and seeds: by hand, and what is compared."""

import json

import pytest

from synth_mtf.demo.pairing import compared, of_examples, of_seeds
from synth_mtf.errors import UserError
from synth_mtf.results import records


@pytest.mark.parametrize(
  ('better', 'worse', 'tasks', 'is_significant'),
  [
    (8, 0, 1, True),  # 2 / 2^8 = 0.0078
    (7, 0, 1, False),  # 0.0156
    (8, 0, 2, False),
    (9, 0, 2, True),
    (11, 1, 1, True),  # 2 (1 + 12) / 2^12 = 0.0063
    (10, 1, 1, False),  # 0.0117
    (0, 0, 1, False),
  ],
)
def test_sign_test(better, worse, tasks, is_significant):
  both = [(1, 0)] * better + [(0, 1)] * worse + [(1, 1)] * 3
  scores = [dict(enumerate(one)) for one in zip(*both)]
  models = {
    model: {'synth_a': one, **{f'b{i}': {0: 1} for i in range(1, tasks)}}
    for model, one in zip('vr', scores)
  }
  title, *lines = compared(models, 'examples').splitlines()
  assert title == f'Sign tests over examples, p < 0.01 over all {tasks}:'
  n = len(both)
  means = [(better + 3) / n, (worse + 3) / n]
  expected = f'  a: v {means[0]:.3g}, r {means[1]:.3g} (n = {n})'
  no = '  no significant difference'
  assert lines == [expected if is_significant else no]


def test_what_cannot_be_compared():
  assert compared({'v': {'a': {0: 1}}, 'r': {'b': {0: 1}}}, 'examples') == ''
  assert compared({}, 'examples') == ''


def test_scores_of_examples_and_of_seeds(tmp_path):
  assert of_examples(tmp_path) == {}
  for step, read_as in ((1, [0, 0, 0]), (2, [1, 0, -1])):
    examples = [
      {'read_as': one, 'target_read_as': target}
      for one, target in zip(read_as, (1, 1, 0))
    ]
    place = {'split': 'validation', 'step': step}
    records.add_predictions(tmp_path, 'cola', examples=examples, **place)
    text = {'read_as': 'x', 'target_read_as': ['x']}
    records.add_predictions(tmp_path, 'squad', examples=[text], **place)
  assert of_examples(tmp_path) == {'cola': {0: True, 1: False, 2: False}}
  with (tmp_path / records.PREDICTIONS).open('a') as stream:
    stream.write(json.dumps({'task': 'cola'}) + '\n')
  with pytest.raises(UserError, match='cut or altered .KeyError'):
    of_examples(tmp_path)
  measured = [
    {'seed': 3, 'metrics': {'a/f1': 1.0, 'b/r': None}},
    {'seed': 5, 'metrics': {'a/f1': 2.0, 'b/r': 7.0}},
  ]
  assert of_seeds(measured) == {'a/f1': {3: 1.0, 5: 2.0}, 'b/r': {5: 7.0}}
