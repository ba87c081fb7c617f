"""What a training session counts, shows, checks, saves and repeats."""

import io
import itertools
import os
import random
import shutil
import signal
import threading
import time
import types

import mesh_tensorflow as mtf
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from mesh_tensorflow import placement_mesh_impl
from mesh_tensorflow.transformer import transformer

from synth_mtf.checkpoints import files
from synth_mtf.checkpoints.folder import Folder, is_complete, step_of
from synth_mtf.errors import UserError
from synth_mtf.host import events, losses, patches
from synth_mtf.pjrt.hosts import Hosts
from synth_mtf.run import current, hooks, training
from synth_mtf.run.outcome import Outcome
from synth_mtf.run.output import Console
from synth_mtf.run.writing import Writing, WritingBehind


@pytest.fixture(autouse=True)
def no_rest(monkeypatch):
  """A saving that takes long is no reason to wait here."""
  monkeypatch.setattr(hooks, '_MAX_SAVING_SHARE', 1e9)


def starting_at(step):
  """Makes a session start at a step, as a resumed one does."""
  counted = tf.train.get_or_create_global_step()
  return tf.train.Scaffold(
    init_fn=lambda _, session: counted.load(step, session)
  )


def shown_by(
  model_dir='',
  total=20,
  stop=lambda: None,
  stream=None,
  outcome=None,
  writing=None,
):
  console = Console(stream or io.StringIO())
  console.start('train')
  return hooks.TrainingHook(
    str(model_dir),
    total,
    console,
    stop,
    Hosts(),
    writing or Writing(),
    outcome or Outcome(),
  )


@pytest.mark.parametrize('total', [11, 20])
def test_losses_are_means_since_the_last_line_or_of_the_last_steps(
  monkeypatch, total, tmp_path
):
  monkeypatch.setattr(hooks, '_LAST_STEPS', 3)
  monkeypatch.setenv('SYNTH_MTF_PROGRESS_SECONDS', '1')
  stream = io.StringIO()
  tmp_path /= str(total)  # pytest may use a folder twice
  now = [0.0]
  with tf.Graph().as_default():
    scaffold = starting_at(7)
    step = tf.train.get_global_step()
    loss = tf.cast(step.read_value(), tf.float32)
    tf.add_to_collection(tf.GraphKeys.LOSSES, loss)
    with tf.control_dependencies([loss]):
      train = tf.assign_add(step, 1)
    monkeypatch.setattr(time, 'monotonic', lambda: now[0])
    outcome = Outcome()
    hook = shown_by(tmp_path, total=total, stream=stream, outcome=outcome)
    with tf.train.SingularMonitoredSession([hook], scaffold) as session:
      for _ in range(4):
        session.run(train)
        now[0] += 0.5
  assert stream.getvalue().splitlines()[1:] == [
    'Starts after step 7, that of its checkpoint, and ends at '
    f'step {total}: {total - 7} steps.',
    'train  first step, which takes longer ...',
    f"train  10/{total}  T5's loss 8.000  2.0/s"
    f'  {round((total - 10) / 2)} s left',
    f"train  11/{total}  T5's loss 9.000 (last 3 steps)  1.5/s"
    + f'  {round((total - 11) / 1.5)} s left' * (total > 11),
  ]
  assert events.read(str(tmp_path)) == {'loss': {11: 10.0}}
  assert outcome.result == "step 11, T5's loss 9.000"
  assert outcome.written()[-1] == f'Wrote {tmp_path}/model.ckpt-11'


def test_summaries_are_fetched_in_each_step():
  """Steps without them would be another graph, optimized once more."""
  computed = []

  def value():
    computed.append(1)
    return np.float32(0)

  with tf.Graph().as_default():
    scaffold = starting_at(0)
    tf.add_to_collection(tf.GraphKeys.LOSSES, tf.ones([]))
    tf.summary.scalar('value', tf.py_func(value, [], tf.float32))
    train = tf.assign_add(tf.train.get_global_step(), 1)
    with tf.train.SingularMonitoredSession([shown_by()], scaffold) as session:
      for _ in range(3):
        session.run(train)
  assert len(computed) == 3


def test_the_speed_is_that_of_the_last_minute(monkeypatch):
  """A start that fills caches made the time left thirty times as long."""
  now = [0.0]
  monkeypatch.setattr(time, 'monotonic', lambda: now[0])
  monkeypatch.setenv('SYNTH_MTF_PROGRESS_SECONDS', '10')
  stream = io.StringIO()
  with tf.Graph().as_default():
    scaffold = starting_at(0)
    step = tf.train.get_global_step()
    tf.add_to_collection(tf.GraphKeys.LOSSES, tf.ones([]))
    train = tf.assign_add(step, 1)
    hook = shown_by(total=1000, stream=stream)
    with tf.train.SingularMonitoredSession([hook], scaffold) as session:
      for _ in range(20):
        session.run(train)
        now[0] += 50
      for _ in range(100):
        session.run(train)
        now[0] += 1
    *_, last, _ = stream.getvalue().splitlines()
  assert last.startswith('train  11')
  assert '  1.0/s  14 min' in last


def test_the_second_step_alone_gives_no_time_left(monkeypatch):
  monkeypatch.setenv('SYNTH_MTF_PROGRESS_SECONDS', '0')
  stream = io.StringIO()
  with tf.Graph().as_default():
    scaffold = starting_at(0)
    tf.add_to_collection(tf.GraphKeys.LOSSES, tf.ones([]))
    train = tf.assign_add(tf.train.get_global_step(), 1)
    hook = shown_by('', 9, stream=stream)
    with tf.train.SingularMonitoredSession([hook], scaffold) as session:
      for _ in range(3):
        session.run(train)
  lines = stream.getvalue().splitlines()
  assert "train  2/9  T5's loss 1.000" in lines
  assert 'left' in lines[-1] and lines[-1].startswith('train  3/9')


@pytest.mark.parametrize('steps', [1, 3])
def test_a_signal_ends_the_session_after_its_step(steps):
  signals = iter([None] * (steps - 1) + [15])
  stream = io.StringIO()
  with tf.Graph().as_default():
    scaffold = starting_at(0)
    step = tf.train.get_global_step()
    tf.add_to_collection(tf.GraphKeys.LOSSES, tf.ones([]))
    train = tf.assign_add(step, 1)
    hook = shown_by('', steps, lambda: next(signals), stream)
    creator = tf.train.ChiefSessionCreator(scaffold)
    with tf.train.MonitoredSession(creator, [hook]) as session:
      while not session.should_stop():
        session.run(train)
  assert hook.step == steps
  line = f"{steps}/{steps}  T5's loss 1.000\n"
  assert (line in stream.getvalue()) == (steps == 1)


@pytest.mark.parametrize('is_late', [False, True])
def test_the_loss_is_in_nats_per_token(monkeypatch, tmp_path, is_late):
  """Each step's T5 loss is 2 nats per token times its share of tokens."""
  monkeypatch.setattr(hooks, '_POINTS', 2)
  monkeypatch.setenv('SYNTH_MTF_PROGRESS_SECONDS', '0')
  stream = io.StringIO()
  shares = np.array([0.5, 0.1, 0.25, 0.9, 0.75], np.float32)
  returned = shares[[0, 0, 1, 2, 4] if is_late else [0, 1, 2, 3, 4]]
  tmp_path /= str(is_late)  # pytest may use a folder twice
  with tf.Graph().as_default():
    scaffold = starting_at(0)
    step = tf.train.get_global_step()
    now = step.read_value()
    tf.add_to_collection(tf.GraphKeys.LOSSES, 2 * tf.gather(returned, now))
    monkeypatch.setattr(losses, 'token_share', lambda: tf.gather(shares, now))
    if is_late:
      losses.mark_late()
    with tf.control_dependencies([now]):
      train = tf.assign_add(step, 1)
    hook = shown_by(tmp_path, total=5, stream=stream)
    with tf.train.SingularMonitoredSession([hook], scaffold) as session:
      for _ in shares:
        session.run(train)
  lines = stream.getvalue().splitlines()
  assert len(lines) == 2 + 4 + 1
  for line in lines[2:]:
    assert 'loss 2.000 nats/token' in line
  found = events.read(str(tmp_path))
  assert found['nats_per_token'] == pytest.approx({1: 2, 3: 2, 5: 2})
  assert found['loss'] == pytest.approx({5: 1.5})  # T5's own


@pytest.mark.parametrize(
  'falls, has_fallen', [(0.0, False), (0.001, False), (0.1, True), (-1, False)]
)
def test_a_loss_that_has_not_fallen_is_noted(
  falls, has_fallen, monkeypatch, tmp_path
):
  monkeypatch.setenv('SYNTH_MTF_PROGRESS_SECONDS', '60')
  stream = io.StringIO()
  noise = np.random.RandomState(0).normal(0, 0.1, 101)
  values = (6 + noise - falls * np.arange(101) / 10).astype(np.float32)
  tmp_path /= str(falls)  # pytest may use a folder twice
  with tf.Graph().as_default():
    scaffold = starting_at(1)
    step = tf.train.get_global_step()
    now = step.read_value()
    loss = tf.gather(values, now)
    tf.add_to_collection(tf.GraphKeys.LOSSES, loss)
    monkeypatch.setattr(losses, 'token_share', lambda: tf.ones_like(loss))
    with tf.control_dependencies([now]):
      train = tf.assign_add(step, 1)
    hook = shown_by(tmp_path, total=101, stream=stream)
    with tf.train.SingularMonitoredSession([hook], scaffold) as session:
      for _ in range(100):
        session.run(train)
  note = 'The loss has not fallen: loss '
  assert (note in stream.getvalue()) != has_fallen
  curve = events.read(str(tmp_path))['nats_per_token']
  assert [*curve] == [*range(2, 102, 5), 101]  # enough to draw
  assert curve[7] == pytest.approx(values[2:7].mean())


def test_a_few_steps_say_nothing_about_the_loss():
  assert hooks.has_fallen([1.0] * 49)
  assert not hooks.has_fallen([1.0] * 50)


@pytest.mark.parametrize('fall, has_fallen', [(0.9, False), (1.0, True)])
def test_a_fall_is_of_two_standard_errors(fall, has_fallen):
  """Of a mean of 10 losses, whose variance is 10 / 9."""
  noise = [1.0, -1.0] * 5
  losses_of_run = [*(x + fall for x in noise), *[0.0] * 80, *noise]
  assert pytest.approx(0.943, abs=0.001) == 2 * (2 / 9) ** 0.5
  assert hooks.has_fallen(losses_of_run) == has_fallen


class Recorded:
  """An estimator whose model function builds a part of T5's."""

  def __init__(self, model_fn):
    self._model_fn = model_fn

  def _call_model_fn(self, features, labels, mode, config):
    return self._model_fn(features)


@pytest.mark.parametrize('members', [None, 3])
@pytest.mark.parametrize('on_targets_only', [False, True])
def test_tokens_are_those_that_the_model_counts(members, on_targets_only):
  """Against the host's own loss of a model that knows nothing."""
  ids = np.array([[5, 1, 7, 8, 1, 0, 0], [5, 6, 1, 9, 1, 4, 1]])
  expected = 5 if on_targets_only else 12

  def model_fn(features):
    graph = mtf.Graph()
    mesh = mtf.Mesh(graph, 'mesh')
    batch, length = mtf.Dimension('batch', 2), mtf.Dimension('length', 7)
    model = transformer.Unitransformer(
      transformer.LayerStack([]),
      d_model=8,
      input_vocab_size=128,
      output_vocab_size=128,
      autoregressive=True,
      max_length=7,
      ensemble=members,
      loss_on_targets_only=on_targets_only,
    )
    dims = [*model.ensemble_dims, batch, length]
    targets = mtf.import_fully_replicated(
      mesh,
      tf.broadcast_to(features['targets'], [members or 1, 2, 7])
      if members
      else features['targets'],
      mtf.Shape(dims),
      'targets',
    )
    context = types.SimpleNamespace(
      activation_dtype=tf.float32, train=False, num_microbatches=1
    )
    vocab = mtf.Dimension('vocab', 128)
    logits = mtf.zeros(mesh, [*dims, vocab])
    loss = model._compute_loss(  # noqa: SLF001
      context, logits, targets, vocab
    )
    single = placement_mesh_impl.PlacementMeshImpl([], {}, [''])
    lowering = mtf.Lowering(graph, {mesh: single})
    return lowering.export_to_tf_tensor(loss)

  estimator = Recorded(model_fn)
  losses.count_tokens(estimator)
  with tf.Graph().as_default(), tf.Session() as session:
    features = {'targets': tf.constant(ids, tf.int32)}
    loss = estimator._call_model_fn(  # noqa: SLF001  as the host's does
      features, None, 'train', None
    )
    share = losses.token_share()
    loss, share = session.run([loss, share])
  assert share == pytest.approx(expected * (members or 1) / 14)
  assert loss / share == pytest.approx(np.log(128))


def train(
  model_dir,
  steps,
  seconds=1e9,
  every=4,
  spoil_after=None,
  loss_shows_it=False,
  tick=lambda: None,
  by_step=0.0,
  writing=None,
):
  """Trains as the host does, and returns what was there after each step.

  Each step adds `by_step` to the weight, which begins at 1. The update of step
  `spoil_after` turns it NaN.
  """
  there = []
  hosts_own = tf.train.CheckpointSaverHook
  writing = writing or Writing()
  settings = {'hosts': Hosts(), 'seconds': seconds, 'writing': writing}
  saver = type('Saver', (hooks.Saver,), settings)
  with tf.Graph().as_default(), patches.savers_are(saver), writing:
    step = tf.train.get_or_create_global_step()
    weight = tf.get_variable('w', [], initializer=tf.ones_initializer())
    loss = tf.identity(weight if loss_shows_it else tf.ones([]))
    tf.add_to_collection(tf.GraphKeys.LOSSES, loss)
    with tf.control_dependencies([loss]):
      bad = tf.equal(step, (spoil_after or 0) - 1)
      update = tf.assign_add(weight, tf.where(bad, float('nan'), by_step))
    with tf.control_dependencies([update]):
      add = tf.assign_add(step, 1)
    hook = tf.train.CheckpointSaverHook(
      str(model_dir),
      save_steps=every,
      saver=tf.train.Saver(max_to_keep=3, save_relative_paths=True),
      listeners=[],
    )
    creator = tf.train.ChiefSessionCreator(checkpoint_dir=str(model_dir))
    used = [hook, shown_by(model_dir, steps, writing=writing)]
    with tf.train.MonitoredSession(creator, used) as session:
      for _ in range(steps):
        session.run(add)
        tick()
        there.append(saved(model_dir))
  assert tf.train.CheckpointSaverHook is hosts_own
  return there


def saved(model_dir):
  return [step_of(name) for name in Folder(str(model_dir)).checkpoints]


class TestSaving:
  def test_by_steps_alone(self, tmp_path):
    train(tmp_path, 9)
    assert saved(tmp_path) == [4, 8, 9]  # the last 3
    assert not list(tmp_path.glob('*.pbtxt'))
    assert not list(tmp_path.glob('*.meta'))

  def test_by_time_each_lasts_until_the_next(self, tmp_path):
    there = train(tmp_path, 7, seconds=0)
    # Steps 0 and 4 are due; 1, 2, 3 and 5, 6 pass.
    assert there[:4] == [[0, step] for step in (1, 2, 3, 4)]
    assert there[4:] == [[0, 4, step] for step in (5, 6, 7)]
    state = tf.train.get_checkpoint_state(str(tmp_path))
    paths = state.all_model_checkpoint_paths
    assert [step_of(path) for path in paths] == [0, 4, 7]

  def test_it_takes_a_small_part_of_the_time(self, tmp_path, monkeypatch):
    monkeypatch.setattr(hooks, '_MAX_SAVING_SHARE', 0.05)
    now = [0.0]

    def wait(seconds, result=None):
      now[0] += seconds
      return result

    save = tf.train.Saver.save
    monkeypatch.setattr(
      tf.train.Saver,
      'save',
      lambda *args, **more: wait(30, save(*args, **more)),
    )
    monkeypatch.setattr(time, 'monotonic', lambda: now[0])
    there = train(tmp_path, 8, 60, every=1000, tick=lambda: wait(100))
    assert there[5:7] == [[0], [0, 7]]  # 600 seconds after step 0

  def test_nan_is_found_before_it_is_saved(self, tmp_path):
    # Update 5 spoils the weight, step 6 would show it in the loss.
    with pytest.raises(
      UserError, match='NaN or infinity at step 6, in 1 of 1 var'
    ) as caught:
      train(tmp_path, 10, every=2, spoil_after=5)
    last = f'The last finite checkpoint is {tmp_path}/model.ckpt-4;'
    assert last in str(caught.value)
    assert saved(tmp_path) == [0, 2, 4]
    train(tmp_path, 4)
    assert saved(tmp_path)[-1] == 8

  def test_the_loss_shows_it_between_checkpoints(self, tmp_path):
    with pytest.raises(UserError, match='the loss has been nan since step 6'):
      train(tmp_path, 10, every=100, spoil_after=5, loss_shows_it=True)

  def test_without_a_finite_checkpoint(self, tmp_path):
    error = hooks.not_finite('it', str(tmp_path), 0)
    assert 'No checkpoint was saved in' in str(error)


class Held(WritingBehind):
  """Writes once it is released."""

  def __init__(self):
    super().__init__(Hosts())
    self.released = threading.Event()

  def start(self, session, names, write):
    def write_later(session):
      assert self.released.wait(60)
      write(session)

    super().start(session, names, write_later)


class TestSavingBehind:
  """Checkpoints that are written while the next steps run."""

  def test_they_have_the_values_of_their_step(self, tmp_path):
    writing = Held()
    steps = itertools.count(1)

    def tick():
      if next(steps) == 3:
        assert writing.is_busy and not saved(tmp_path)
        assert not (tmp_path / 'checkpoint').exists()
        writing.released.set()

    train(tmp_path, 9, every=4, tick=tick, by_step=1.0, writing=writing)
    assert saved(tmp_path) == [4, 8, 9]  # the last 3, as in turn
    first, *_ = (tmp_path / 'checkpoint').read_text().splitlines()
    assert first == 'model_checkpoint_path: "model.ckpt-9"'
    for step in saved(tmp_path):
      reader = tf.train.load_checkpoint(str(tmp_path / f'model.ckpt-{step}'))
      assert reader.get_tensor('global_step') == step
      assert reader.get_tensor('w') == 1 + step

  def test_none_is_due_by_time_while_one_is_written(self, tmp_path):
    writing = Held()
    steps = itertools.count(1)

    def tick():
      if next(steps) == 5:
        assert writing.is_busy  # no step waited for it
        writing.released.set()

    train(tmp_path, 9, seconds=0, every=1000, tick=tick, writing=writing)
    assert saved(tmp_path) == [0, 9]

  @pytest.mark.parametrize(
    'broken, last', [(2, 3), (6, 7)], ids=['a step', 'the end']
  )
  def test_an_error_of_writing_ends_the_run(self, tmp_path, broken, last):
    writing = WritingBehind(Hosts())
    done: list[int] = []

    def tick():
      while writing.is_busy:
        time.sleep(0.01)
      done.append(len(done) + 1)
      if done[-1] == broken:
        shutil.rmtree(tmp_path)
        tmp_path.write_text('')  # not a folder

    with pytest.raises(ValueError, match=f'directory of {tmp_path}/model'):
      train(tmp_path, 7, every=3, tick=tick, writing=writing)
    assert done[-1] == last

  def test_an_error_of_a_step_lets_it_end(self, tmp_path):
    writing = Held()
    steps = itertools.count(1)

    def tick():
      if next(steps) == 3:
        threading.Timer(0.5, writing.released.set).start()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
      train(tmp_path, 9, every=1000, tick=tick, writing=writing)
    last = Folder(str(tmp_path)).latest()
    assert last and is_complete(last) and step_of(last) == 0

  def test_nan_is_found_before_it_is_written(self, tmp_path):
    writing = WritingBehind(Hosts())

    def tick():
      while writing.is_busy:
        time.sleep(0.01)

    with pytest.raises(UserError, match='infinity at step 6, .*ckpt-4;'):
      train(tmp_path, 10, 1e9, 2, spoil_after=5, tick=tick, writing=writing)
    assert saved(tmp_path) == [0, 2, 4]

  def test_a_loss_of_nan_names_what_was_being_written(self, tmp_path):
    writing = Held()
    steps = itertools.count(1)

    def tick():
      if next(steps) == 3:
        threading.Timer(0.5, writing.released.set).start()

    with pytest.raises(UserError, match='nan since step 4.*ckpt-0;'):
      train(
        tmp_path,
        9,
        every=1000,
        spoil_after=3,
        loss_shows_it=True,
        tick=tick,
        writing=writing,
      )


def draws(first_step, steps):
  """What each step draws, in a run that starts at a step."""
  with (
    tf.Graph().as_default(),
    patches.random_by_step(hooks.fed_step),
    patches.step_counted_last(),
  ):
    tf.set_random_seed(1)
    random.seed(1)
    scaffold = starting_at(first_step)
    graph = mtf.Graph()
    mesh = mtf.Mesh(graph, 'mesh')
    shape = mtf.Shape([mtf.Dimension('batch', 4), mtf.Dimension('length', 3)])
    drawn = mtf.random_uniform(mesh, shape, dtype=tf.float32)
    mesh_impl = mtf.placement_mesh_impl.PlacementMeshImpl(
      'batch:2', 'batch:batch', ['', '']
    )
    lowering = mtf.Lowering(graph, {mesh: mesh_impl})
    value = lowering.export_to_tf_tensor(drawn)
    tf.add_to_collection(tf.GraphKeys.LOSSES, tf.reduce_sum(value))
    with tf.control_dependencies([value]):
      train_op = tf.assign_add(tf.train.get_global_step(), 1)
    with tf.train.SingularMonitoredSession([shown_by()], scaffold) as session:
      return [session.run([value, train_op])[0] for _ in range(steps)]


def test_a_resumed_run_draws_what_a_straight_one_draws():
  straight, resumed = draws(0, 4), draws(2, 2)
  np.testing.assert_array_equal(straight[2:], resumed)
  everything = np.concatenate([x.ravel() for x in straight])
  assert len(np.unique(everything)) == len(everything), 'steps or parts agree'
  assert 0 <= everything.min() < 0.5 < everything.max() < 1


def test_a_step_is_counted_when_all_have_read_its_number():
  with tf.Graph().as_default() as graph, patches.step_counted_last():
    step = tf.train.get_or_create_global_step()
    before = set(graph.get_operations())
    mtf.optimize.adafactor_decay_rate_pow()
    tf.cast(step, tf.float32)  # a schedule of the learning rate
    reads = {
      operation
      for operation in set(graph.get_operations()) - before
      if operation.type == 'ReadVariableOp'
    }
    other = tf.assign_add(tf.get_variable('w', []), 1.0).op
    counted = tf.assign_add(step, 1).op
  assert len(reads) == 2
  assert reads <= _behind(counted)
  assert reads.isdisjoint(_behind(other))


def _behind(operation):
  """The operations that one waits for, directly or through its inputs."""
  found = set(operation.control_inputs)
  for tensor in operation.inputs:
    found |= {tensor.op} | _behind(tensor.op)
  return found


@pytest.mark.parametrize('hash_seed', [None, 'random'])
def test_a_seed_needs_the_hash_seed(monkeypatch, hash_seed):
  monkeypatch.delenv('PYTHONHASHSEED', raising=False)
  if hash_seed:
    monkeypatch.setenv('PYTHONHASHSEED', hash_seed)
  with pytest.raises(UserError, match='PYTHONHASHSEED=0'):
    training.train_with_progress(None, None, None, 1, None, 1, None, seed=3)


@pytest.mark.parametrize('total', [2, 3])
def test_the_last_line_of_a_complete_run_does_not_wait_for_its_turn(
  monkeypatch, total
):
  monkeypatch.setenv('SYNTH_MTF_PROGRESS_SECONDS', '1000')
  stream = io.StringIO()
  with tf.Graph().as_default():
    scaffold = starting_at(0)
    tf.add_to_collection(tf.GraphKeys.LOSSES, tf.ones([]))
    train = tf.assign_add(tf.train.get_global_step(), 1)
    hook = shown_by(total=total, stream=stream)
    with tf.train.SingularMonitoredSession([hook], scaffold) as session:
      for _ in range(2):
        session.run(train)
  is_complete = total == 2
  assert ('2/2' in stream.getvalue()) == is_complete
  # Two lines say that it begins.
  assert len(stream.getvalue().splitlines()) == 2 + is_complete


def _one_weight(features, labels, mode, config):
  weight = tf.get_variable('w', [], initializer=tf.ones_initializer())
  loss = weight * tf.reduce_mean(features['targets'])
  train = tf.assign_add(tf.train.get_global_step(), 1)
  saver = tf.train.CheckpointSaverHook(config.model_dir, save_steps=10**6)
  return tf.estimator.EstimatorSpec(
    mode, loss=loss, train_op=train, training_chief_hooks=[saver]
  )


def train_on(rows, estimator, steps=10**6):
  def dataset(sequence_length, vocabulary, dataset_split):
    return tf.data.Dataset.from_generator(
      rows, output_signature={'targets': tf.TensorSpec([4], tf.float32)}
    )

  training.train_with_progress(
    estimator, None, {'targets': 4}, 1, dataset, steps, None
  )


def test_training_without_examples_is_an_error(tmp_path):
  """The host ends it as if it were complete."""
  estimator = tf.estimator.Estimator(_one_weight, str(tmp_path))
  message = 'ended after step 0, before step 1000000 .*no more examples'
  with pytest.raises(UserError, match=message):
    train_on(list, estimator)


def test_a_run_that_becomes_complete_returns(tmp_path):
  def rows():
    for _ in range(9):
      yield {'targets': np.ones([4], np.float32)}

  train_on(rows, tf.estimator.Estimator(_one_weight, str(tmp_path)), steps=2)
  assert current.run().outcome.result == "step 2, T5's loss 1.000"
  assert Folder(str(tmp_path)).checkpoints[-1] == 'model.ckpt-2'


def test_a_run_that_is_complete_trains_no_more(tmp_path, capsys):
  path = files.write(str(tmp_path), 5, {'global_step': np.array(5, np.int64)})

  def rows():
    raise AssertionError('a batch is read')

  train_on(rows, tf.estimator.Estimator(_one_weight, str(tmp_path)), steps=5)
  assert current.run().outcome.result == 'already at step 5'
  assert 'train  already at step 5' in capsys.readouterr().err
  assert Folder(str(tmp_path)).checkpoints == [os.path.basename(path)]


@pytest.mark.parametrize(
  'asks, status',
  [
    (lambda _: os.kill(os.getpid(), signal.SIGINT), 130),
    (lambda _: os.kill(os.getpid(), signal.SIGTERM), 143),
    (lambda hosts: hosts.stop.ask(), 143),  # the wish of another host
  ],
  ids=['SIGINT', 'SIGTERM', 'another host'],
)
def test_a_stopped_run_exits_with_the_status_of_its_signal(
  tmp_path, capsys, asks, status
):
  estimator = tf.estimator.Estimator(_one_weight, str(tmp_path))
  hosts = current.run().way.hosts  # a thread would find another run

  def rows():
    for number in range(1000):
      if number == 3:
        asks(hosts)
      yield {'targets': np.ones([4], np.float32)}

  with pytest.raises(SystemExit) as stopped:
    train_on(rows, estimator)
  assert stopped.value.code == status
  last = Folder(str(tmp_path)).latest()
  assert last
  assert (
    f'Stopped. {os.path.basename(last)} is saved' in capsys.readouterr().err
  )
  assert 0 < step_of(last) < 1000
