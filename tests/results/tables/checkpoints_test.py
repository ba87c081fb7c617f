"""At which checkpoint a score is taken."""

import math

import pytest

from synth_mtf.errors import UserError
from synth_mtf.results.tables import checkpoints
from tests.results import made_runs
from tests.results.tables.made import cells, cola, texts


def three_checkpoints(folder):
  """CoLA is best at 200, MRPC, by the mean of its metrics, at 100."""
  for step, score in ((100, 1.0), (200, 5.0), (300, 2.0)):
    cola(folder, score, step)
  for step, scores in ((100, (80.0, 70.0)), (200, (90.0, 50.0))):
    pair = dict(zip(('f1', 'accuracy'), scores))
    made_runs.evaluated(folder, 'synth_glue_mrpc_v002', step, pair)


@pytest.mark.parametrize(
  ('word', 'expected'),
  [
    ('last', ('2.0', '-/-')),
    ('best', ('5.0', '80.0/70.0')),
    ('200', ('5.0', '90.0/50.0')),
  ],
)
def test_checkpoints(tmp_path, word, expected):
  three_checkpoints(tmp_path / 'a')
  shown = texts(tmp_path / 'a', choice=checkpoints.choice(word))
  row = cells(shown)['a']
  assert (row['CoLA'], row['MRPC']) == expected
  caption = {'last': 'last checkpoint', 'best': 'best', '200': 'at step 200'}
  assert caption[word] in shown.caption


@pytest.mark.parametrize(
  ('scores', 'step'),
  [
    pytest.param({200: [1.0], 100: [1.0]}, 100, id='the earliest'),
    pytest.param({100: [None, 9.0], 200: [1.0, 1.0]}, 200, id='a hole'),
    pytest.param({100: [math.nan], 200: [-5.0]}, 200, id='not defined'),
    pytest.param({}, 300, id='none at all'),
  ],
)
def test_the_best_of_several(scores, step):
  assert checkpoints.Best().step(scores, last=300) == step


def test_what_is_no_checkpoint():
  for word in ('first', '-1', '1.5', ''):
    with pytest.raises(UserError, match='expected best, last, or a step'):
      checkpoints.choice(word)
