"""Progress of T5's own training."""

import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.errors import UserError
from synth_mtf.run import training
from synth_mtf.run.console import TrainingProgress


def test_the_hook_counts_steps_and_averages_the_loss(monkeypatch):
  monkeypatch.setattr(training, '_SECONDS_BETWEEN_REPORTS', 1e9)
  reports: list[TrainingProgress] = []
  with tf.Graph().as_default():
    step = tf.train.get_or_create_global_step()
    loss = tf.cast(step, tf.float32)
    tf.add_to_collection(tf.GraphKeys.LOSSES, loss)
    with tf.control_dependencies([loss]):
      train = tf.assign_add(step, 1)
    hook = training.ProgressHook(total=20, listener=reports.append)
    scaffold = tf.train.Scaffold(
      init_fn=lambda _, session: step.load(7, session)
    )
    with tf.train.SingularMonitoredSession([hook], scaffold) as session:
      for _ in range(4):
        session.run(train)
  (report,) = reports
  assert (report.step, report.total) == (11, 20)
  assert report.loss == pytest.approx((7 + 8 + 9 + 10) / 4, abs=1.0)
  assert report.steps_per_second > 0


def test_a_seed_needs_the_hash_seed(monkeypatch):
  monkeypatch.delenv('PYTHONHASHSEED', raising=False)
  with pytest.raises(UserError, match='PYTHONHASHSEED=0'):
    training.train_with_progress(None, None, None, 1, None, 1, None, seed=3)
