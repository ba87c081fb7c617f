"""Which checkpoints a training leaves."""

import time

import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.checkpoints import folder
from synth_mtf.run import saving

pytestmark = pytest.mark.slow  # trains


def train(model_dir, steps, seconds, every=4, stop_at=None):
  """Trains as the host does, and returns what was there after each step."""
  there = []
  with (
    tf.Graph().as_default(),
    saving.also_by_time(seconds),
  ):
    step = tf.train.get_or_create_global_step()
    tf.get_variable('w', [3])
    saver = tf.train.Saver(max_to_keep=3, save_relative_paths=True)
    hook = tf.train.CheckpointSaverHook(
      str(model_dir), save_steps=every, saver=saver, listeners=[]
    )
    add = tf.assign_add(step, 1)
    with tf.train.MonitoredSession(
      tf.train.ChiefSessionCreator(checkpoint_dir=str(model_dir)), [hook]
    ) as session:
      for _ in range(steps):
        session.run(add)
        there.append([folder.step_of(n) for n in folder.written(model_dir)])
  return there


def final(model_dir):
  return [folder.step_of(name) for name in folder.written(model_dir)]


@pytest.fixture(autouse=True)
def no_rest(monkeypatch):
  """A saving that takes long is no reason to wait here."""
  monkeypatch.setattr(saving, '_MOST_OF_THE_TIME', 1e9)


def test_by_steps_alone(tmp_path):
  train(tmp_path, 9, seconds=1e9)
  assert final(tmp_path) == [4, 8, 9]  # the last 3


def test_by_time_each_lasts_until_the_next(tmp_path):
  there = train(tmp_path, 7, seconds=0)
  # Steps 0 and 4 are due; 1, 2, 3 and 5, 6 pass.
  assert there == [
    [0, 1],
    [0, 2],
    [0, 3],
    [0, 4],
    [0, 4, 5],
    [0, 4, 6],
    [0, 4, 7],
  ]
  state = tf.train.get_checkpoint_state(str(tmp_path))
  assert [folder.step_of(p) for p in state.all_model_checkpoint_paths] == [
    0,
    4,
    7,
  ]


def test_a_resumed_run_saves_at_the_steps_at_which_it_would_have(tmp_path):
  train(tmp_path, 6, seconds=1e9)
  train(tmp_path, 4, seconds=1e9)
  assert 8 in final(tmp_path)


def test_saving_takes_a_small_part_of_the_time(monkeypatch):
  monkeypatch.setattr(saving, '_MOST_OF_THE_TIME', 0.05)
  now = [1000.0]
  monkeypatch.setattr(time, 'monotonic', lambda: now[0])
  schedule = saving.Schedule(every_steps=1000, least_seconds=60)
  schedule.start(0, 0)
  schedule.saved(30)
  now[0] += 599
  assert not schedule.should_trigger_for_step(5)
  now[0] += 2
  assert schedule.should_trigger_for_step(5)


def test_the_graph_is_not_written(tmp_path):
  train(tmp_path, 2, seconds=1e9)
  assert not list(tmp_path.glob('*.pbtxt'))
  assert not list(tmp_path.glob('*.meta'))


def test_the_hosts_own_saver_comes_back():
  before = tf.train.CheckpointSaverHook
  with saving.also_by_time(1):
    assert tf.train.CheckpointSaverHook is not before
    assert issubclass(tf.train.CheckpointSaverHook, before)
  assert tf.train.CheckpointSaverHook is before
