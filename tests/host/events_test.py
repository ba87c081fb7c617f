"""The event files that TensorBoard reads."""

import tensorflow.compat.v1 as tf
from tensorflow.compat.v1 import estimator as tf_estimator

from synth_mtf.host import events


def test_a_hook_writes_values_without_the_graph(tmp_path):
  for name in ('plain', 'spared'):
    folder = str(tmp_path / name)
    if name == 'spared':
      events.without_graph(folder)
      events.without_graph(folder)  # a second run in this process
    with tf.Graph().as_default():
      step = tf.train.get_or_create_global_step()
      counted = tf.assign_add(step, 1)
      hook = tf_estimator.StepCounterHook(every_n_steps=1, output_dir=folder)
      with tf.train.MonitoredSession(hooks=[hook]) as session:
        for _ in range(3):
          session.run(counted)
    tf.summary.FileWriterCache.clear()
    (path,) = (tmp_path / name).iterdir()
    found = list(tf.train.summary_iterator(str(path)))
    graphs = [e for e in found if e.graph_def or e.meta_graph_def]
    assert bool(graphs) == (name == 'plain')
    assert any(
      v.tag == 'global_step/sec' for e in found for v in e.summary.value
    )
