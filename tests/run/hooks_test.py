"""Which step a training session is at."""

import tensorflow.compat.v1 as tf

from synth_mtf.run.hooks import CountingHook


def test_it_counts_from_where_the_session_starts():
  hook, seen = CountingHook(), []
  with tf.Graph().as_default():
    step = tf.train.get_or_create_global_step()
    counted = tf.assign_add(step, 1)
    resumed = tf.train.Scaffold(
      init_fn=lambda _, session: step.load(7, session)
    )
    creator = tf.train.ChiefSessionCreator(resumed)
    with tf.train.MonitoredSession(creator, hooks=[hook]) as session:
      seen.append(hook.step)
      for _ in range(2):
        session.run(counted)
        seen.append(hook.step)
  assert seen == [7, 8, 9]
