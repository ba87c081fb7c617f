"""What a training session counts, reports and checks."""

import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.checkpoints import folder
from synth_mtf.errors import UserError
from synth_mtf.run import hooks, saving
from synth_mtf.run.console import TrainingProgress

trains = pytest.mark.slow


def test_steps_are_counted_from_where_the_session_starts():
  hook, seen = hooks.CountingHook(), []
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


def test_the_loss_is_averaged_over_steps(monkeypatch):
  monkeypatch.setattr(hooks, '_SECONDS_BETWEEN_REPORTS', 1e9)
  reports: list[TrainingProgress] = []
  with tf.Graph().as_default():
    step = tf.train.get_or_create_global_step()
    loss = tf.cast(step, tf.float32)
    tf.add_to_collection(tf.GraphKeys.LOSSES, loss)
    with tf.control_dependencies([loss]):
      train = tf.assign_add(step, 1)
    hook = hooks.LossHook('', total=20, listener=reports.append)
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


def train(model_dir, spoil_after, loss_shows_it, steps=10, every=2):
  """Trains a weight that turns NaN in the update of a step."""
  with (
    tf.Graph().as_default(),
    saving.also_by_time(1e9, hooks.FiniteWeightsListener(str(model_dir))),
  ):
    step = tf.train.get_or_create_global_step()
    weight = tf.get_variable('w', [], initializer=tf.ones_initializer())
    loss = weight if loss_shows_it else tf.ones([])
    loss = tf.identity(loss)
    tf.add_to_collection(tf.GraphKeys.LOSSES, loss)
    with tf.control_dependencies([loss]):
      bad = tf.equal(step, spoil_after - 1)
      spoilt = tf.where(bad, float('nan'), 0.0)
      update = tf.assign_add(weight, spoilt)
    with tf.control_dependencies([update]):
      add = tf.assign_add(step, 1)
    saver = tf.train.CheckpointSaverHook(
      str(model_dir),
      save_steps=every,
      saver=tf.train.Saver(save_relative_paths=True),
      listeners=[],
    )
    used = [saver, hooks.LossHook(str(model_dir), steps, lambda progress: None)]
    with tf.train.MonitoredSession(
      tf.train.ChiefSessionCreator(checkpoint_dir=str(model_dir)), used
    ) as session:
      for _ in range(steps):
        session.run(add)


@trains
def test_the_loss_tells_since_when_and_what_is_whole(tmp_path):
  # Update 5 spoils the weight, step 6 would show it in the loss and be saved.
  with pytest.raises(UserError, match='since step 6|at step 6') as caught:
    train(tmp_path, spoil_after=5, loss_shows_it=True)
  assert f'The last finite checkpoint is {tmp_path}/model.ckpt-4' in str(
    caught.value
  )


@trains
def test_between_two_checkpoints_the_loss_tells(tmp_path):
  with pytest.raises(UserError, match='the loss is nan since step 6'):
    train(tmp_path, spoil_after=5, loss_shows_it=True, every=100)


@trains
def test_spoilt_weights_are_never_written(tmp_path):
  with pytest.raises(UserError, match='NaN or infinity at step 6, in 1 of 1'):
    train(tmp_path, spoil_after=5, loss_shows_it=False)
  assert folder.written(tmp_path)[-1] == 'model.ckpt-4'
  reader = tf.train.load_checkpoint(str(tmp_path / 'model.ckpt-4'))
  assert reader.get_tensor('w') == 1.0


@trains
def test_from_a_whole_checkpoint_it_goes_on(tmp_path):
  with pytest.raises(UserError):
    train(tmp_path, spoil_after=5, loss_shows_it=False)
  train(tmp_path, spoil_after=99, loss_shows_it=False, steps=4)
  assert folder.written(tmp_path)[-1] == 'model.ckpt-8'


@trains
def test_no_whole_checkpoint_is_said(tmp_path):
  with tf.Graph().as_default(), tf.Session() as session:
    tf.get_variable('w', initializer=float('nan'))
    session.run(tf.global_variables_initializer())
    tf.train.Saver().save(session, str(tmp_path / 'model.ckpt'), global_step=1)
  assert 'No checkpoint in' in str(hooks.not_finite('it', str(tmp_path)))
