"""T5's definitions of tasks, over our sources and vocabulary."""

import pytest
import seqio

from synth_mtf import tasks
from synth_mtf.tasks import registering
from synth_mtf.tasks.files.source import TwoSources


def ours():
  return [n for n in seqio.TaskRegistry.names() if n.startswith('synth_')]


@pytest.mark.parametrize(
  'name',
  [n for n in ours() if n[len('synth_') :] in seqio.TaskRegistry.names()],
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


def test_every_text_of_a_task_has_our_vocabulary():
  assert len(ours()) > 25
  for name in ours():
    features = dict(seqio.TaskRegistry.get(name).output_features)
    if name.endswith('_class'):  # what an encoder classifies has no targets
      targets = (features.pop(n) for n in ('targets', 'targets_segmentation'))
      assert all(f.vocabulary != tasks.VOCABULARY for f in targets)
    for feature in features.values():
      assert feature.vocabulary == tasks.VOCABULARY
