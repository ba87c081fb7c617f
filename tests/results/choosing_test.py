"""The best checkpoint, also by the scores of a task that no table knows."""

import pytest

from synth_mtf.errors import UserError
from synth_mtf.results import choosing
from tests.results.made_runs import fake, result


def run_with(metric):
  """An own task whose score is highest at step 200."""
  scores = {100: 30.0, 200: 50.0, 300: 40.0}
  return fake(
    'run',
    *(
      result(task='mine', metric=metric, step=step, value=value)
      for step, value in scores.items()
    ),
    label='Syn (R)',
  )


@pytest.mark.parametrize(
  ('metric', 'step'),
  [
    ('mean_squared_error', 100),
    *[(name, 200) for name in ('accuracy', 'sequence_accuracy', 'f1', 'em')],
    *[(name, 200) for name in ('mean_multiclass_f1', 'bleu', 'rougeL')],
    *[(name, 200) for name in ('rouge1', 'spearman_corrcoef')],
    ('word_edit', 100),
  ],
)
def test_the_best_score_of_an_own_task(metric, step):
  assert choosing.best_step(run_with(metric), f'mine/{metric}') == step


def test_a_metric_that_may_be_better_either_way():
  with pytest.raises(UserError, match='does not say whether it is better when'):
    choosing.best_step(run_with('oddness'), 'mine/oddness')


def test_the_message_lists_the_columns_that_there_are():
  with pytest.raises(UserError, match="number 'GLUE'. Its table has mine/odd"):
    choosing.best_step(run_with('oddness'), 'GLUE')
