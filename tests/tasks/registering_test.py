"""T5's definitions of tasks, over our sources and vocabulary."""

import pytest
import seqio

from synth_mtf.tasks import registering
from synth_mtf.tasks.files.source import TwoSources

OURS = [n for n in seqio.TaskRegistry.names() if n.startswith('synth_')]


def test_all_tasks_are_there():
  assert len(OURS) > 25


@pytest.mark.parametrize(
  'name',
  [n for n in OURS if n[len('synth_') :] in seqio.TaskRegistry.names()],
)
def test_a_task_of_t5s_is_t5s_but_for_source_and_vocabulary(name):
  mine = seqio.TaskRegistry.get(name)
  t5_own = seqio.TaskRegistry.get(name[len(registering.PREFIX) :])
  assert isinstance(mine.source, TwoSources)
  assert mine.source.tfds is t5_own.source
  assert mine.output_features is not t5_own.output_features
  assert mine.preprocessors == t5_own.preprocessors
  assert mine.metric_fns == t5_own.metric_fns
  assert mine.postprocessor is t5_own.postprocessor
