"""Steps that TensorFlow runs as they are, without AutoGraph's rewriting."""

import gin
import pytest
import seqio
from t5.data import preprocessors

from synth_mtf import tasks
from synth_mtf.tasks import registering
from tests.tasks import steps
from tests.tasks.comparison import LENGTHS
from tests.tasks.rows import frozen, run

# Tasks and splits that, between them, have each step that is run as it is.
SPLITS = {
  'synth_glue_cola_v002': 'train',
  'synth_glue_stsb_v002': 'train',
  'synth_super_glue_record_v102': 'train',
  'synth_dpr_v001_simple': 'train',
  'synth_squad_v010_allanswers': 'train',
  'synth_text_span_corruption': 'train',
  'synth_cnn_dailymail_v002': 'train',
  'synth_wmt14_ende_v003': 'train',
  'synth_personachat': 'validation',
  'synth_ag_news_class': 'test',
}


@pytest.fixture(autouse=True)
def data_dir(made_data):
  gin.bind_parameter('synth_mtf.tasks.settings.data_dir', str(made_data))


def _examples(task, split):
  options = {'shuffle': False, 'seed': 1, 'try_in_mem_cache': False}
  rows = run(lambda: task.get_dataset(LENGTHS, split, **options), limit=20)
  return [frozen(row) for row in rows]


@pytest.mark.sampled
@pytest.mark.parametrize('name, split', SPLITS.items())
def test_examples_are_those_of_rewritten_steps(name, split):
  task = tasks.get(name)
  rewritten = task.replace(
    preprocessors=[*map(steps.original, task.preprocessors)]
  )
  examples = _examples(task, split)
  assert examples
  assert examples == _examples(rewritten, split)


def test_each_step_that_runs_as_it_is_is_in_a_tested_task():
  used = set()
  for name in SPLITS:
    for step in tasks.get(name).preprocessors:
      if steps.is_traced_as_it_is(step):
        used.add(steps.function(steps.original(step)))
  assert used >= {*registering._WITHOUT_CONTROL_FLOW}  # noqa: SLF001


def test_a_step_with_control_flow_is_rewritten(monkeypatch):
  task = tasks.get('synth_super_glue_wsc_v102_simple_eval')
  assert preprocessors.wsc_simple in map(steps.function, task.preprocessors)
  assert _examples(task, 'validation')
  monkeypatch.setattr(
    registering, '_WITHOUT_CONTROL_FLOW', (preprocessors.wsc_simple,)
  )
  unfit = task.replace(preprocessors=registering.traced(task.preprocessors))
  with pytest.raises(TypeError, match='symbolic `?tf.Tensor'):
    _examples(unfit, 'validation')


def test_steps_keep_the_names_by_which_caches_know_them():
  for name in SPLITS:
    for step in tasks.get(name).preprocessors:
      name_of = seqio.utils.function_name
      assert name_of(step) == name_of(steps.original(step))
