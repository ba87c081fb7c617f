"""Training hooks: show progress, save checkpoints, stop the run."""

import array
import collections
import functools
import math
import os
import statistics
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from synth_mtf.checkpoints.folder import Folder, step_of
from synth_mtf.errors import UserError
from synth_mtf.host import events, losses
from synth_mtf.pjrt.hosts import Hosts
from synth_mtf.run.outcome import Outcome
from synth_mtf.run.output import Console, duration
from synth_mtf.run.writing import Writing

_LAST_STEPS = 100  # the final loss is their mean
_MAX_SAVING_SHARE = 0.05  # of the time, for checkpoints saved by time
_STEP = 'synth_mtf_step'
# Between points of the curve: as the host writes its loss, or in a short run a
# twentieth of it.
_EVENT_STEPS = 100
_POINTS = 20
_FEWEST_STEPS = 50  # of which a tenth has a mean and a deviation
_SPEED_SECONDS = 60.0  # the speed is that of this time


def fed_step() -> tf.Tensor:
  """Returns the graph's step number, a tensor that `TrainingHook` feeds."""
  if not tf.get_collection(_STEP):
    with tf.device(None), tf.control_dependencies(None):
      step = tf.placeholder_with_default(tf.zeros([], tf.int64), [])
    tf.add_to_collection(_STEP, step)
  return tf.get_collection(_STEP)[0]


class Loss(NamedTuple):
  """The loss of a step.

  Attributes:
    host: T5's loss.
    token_share: see `host/losses.py`; 1 if it is unknown.
  """

  host: float
  token_share: float


class TrainingHook(tf.estimator.SessionRunHook):
  """Shows step, loss and speed; stops on a signal, NaN or infinity.

  Attributes:
    step: the number of completed steps. Fetching the graph's own count would
      race with its increment.
    has_stopped: whether a signal ended the run.
  """

  def __init__(
    self,
    model_dir: str,
    total: int,
    console: Console,
    stop_signal: Callable[[], int | None],
    hosts: Hosts,
    writing: Writing,
    outcome: Outcome,
  ) -> None:
    self._model_dir = model_dir
    self._total = total
    self._console = console
    self._stop_signal = stop_signal
    self._hosts = hosts
    self._writing = writing
    self._outcome = outcome
    self.has_stopped = False
    self._since_line: list[Loss] = []
    self._since_event: list[Loss] = []
    self._last = collections.deque[Loss](maxlen=_LAST_STEPS)
    self._late_share: float | None = None
    self._losses = array.array('d')  # of each step
    # Step and time of the first step and of each line of the last minute.
    self._marks = collections.deque[tuple[int, float]]()

  def begin(self) -> None:
    self._counted = tf.train.get_or_create_global_step()
    # The estimator has added the loss to this collection.
    self._fetched = {'loss': tf.get_collection(tf.GraphKeys.LOSSES)[-1]}
    share = losses.token_share()
    self._format = "T5's loss {:.3f}"
    if share is not None:
      self._fetched['share'] = share
      self._format = 'loss {:.3f} nats/token'
    self._is_late = losses.is_late()
    self._fed = tf.get_collection(_STEP)

  def after_create_session(self, session: tf.Session, _coord: Any) -> None:
    # The host fetches summaries in some steps only, and TensorFlow would
    # optimize the whole graph twice: for steps with and without them.
    self._fetched['summaries'] = tf.get_collection(tf.GraphKeys.SUMMARY_OP)
    self.step = int(session.run(self._counted))
    self._first_step = self.step + 1
    part = (self._total - self.step) // _POINTS
    self._event_steps = min(max(part, 1), _EVENT_STEPS)
    if self.step:
      self._console.line(
        f'Starts after step {self.step}, that of its checkpoint, and ends at '
        f'step {self._total}: {self._total - self.step} steps.'
      )
    self._console.start('train', 'first step, which takes longer ...')

  def before_run(self, _run_context: Any) -> tf.estimator.SessionRunArgs:
    feed = dict.fromkeys(self._fed, self.step)
    return tf.estimator.SessionRunArgs(self._fetched, feed)

  def after_run(self, run_context: Any, run_values: Any) -> None:
    self.step += 1
    loss = self._loss(run_values.results)
    if not math.isfinite(loss.host):
      self._writing.wait()
      raise not_finite(
        f'the loss has been {loss.host} since step {self.step}',
        self._model_dir,
        self.step,
      )
    for steps in (self._since_line, self._since_event, self._last):
      steps.append(loss)
    self._losses.append(_mean([loss]))
    if (self.step - self._first_step) % self._event_steps == 0:
      self._write_event()
    if self.step == self._first_step:  # slow: it compiles and fills caches
      self._first_time = time.monotonic()
      self._marks.append((self.step, self._first_time))
    elif self._console.update(self._progress(self._since_line)):
      self._since_line.clear()
      self._mark()
    if self._stop_signal() is not None:
      self._hosts.stop.ask()
    if self._hosts.stop.take():
      self.has_stopped = True
      run_context.request_stop()  # also saves a checkpoint

  def end(self, _session: tf.Session) -> None:
    """Shows the last steps' mean loss; adds the last loss to the curves."""
    if not self._last:
      return
    steps = len(self._last)
    note = f' (last {steps} steps)' if steps > 1 else ''
    text = self._progress(self._last, note)
    self._outcome.result = (
      f'step {self.step}, {self._format.format(_mean(self._last))}'
    )
    if self._model_dir:
      self._outcome.add_written(
        os.path.join(self._model_dir, f'model.ckpt-{self.step}')
      )
    if self.step >= self._total:
      self._console.finish(text)
      self._note_unmoved()
    else:
      self._console.update(text)
    # The host writes the first step, then every hundredth.
    self._write_value('loss', self._last[-1].host)
    if self._since_event:
      self._write_event()
    if self._model_dir:
      tf.summary.FileWriterCache.get(self._model_dir).flush()

  def check_complete(self) -> None:
    """Raises a UserError if training has ended early.

    The host then ends it as if it were complete.
    """
    if self.step < self._total:
      raise UserError(
        f'training ended after step {self.step}, before step {self._total} '
        '(utils.run.train_steps): the data has no more examples. `synth-mtf '
        'tasks NAME` shows the rows of a task, and the rates of a mixture.'
      )

  def _note_unmoved(self) -> None:
    """Says so if the loss has not fallen."""
    if has_fallen(self._losses):
      return
    tenth = len(self._losses) // 10
    first, last = self._losses[:tenth], self._losses[-tenth:]
    before = self._format.format(statistics.mean(first))
    self._console.line(
      f'The loss has not fallen: {before} in the first {tenth} steps, '
      f'{statistics.mean(last):.3f} in the last {tenth}, no more than noise. '
      'If the model should have learnt more, try another learning rate: '
      '--gin_param="learning_rate = 0.05", or --learning_rate=0.05 of '
      '`synth-mtf pretrain` and `finetune` (docs/tutorial.md).'
    )

  def _loss(self, results: Any) -> Loss:
    """Returns what a step fetched, with the share of the loss's own step."""
    share = float(results.get('share', 1.0))
    late_share, self._late_share = self._late_share, share
    is_own = self.step in (self._first_step, self._total)
    if self._is_late and not is_own and late_share is not None:
      share = late_share
    return Loss(float(results['loss']), share)

  def _write_event(self) -> None:
    """Writes the mean since the last event, if tokens are counted."""
    if 'share' in self._fetched:
      self._write_value(events.NATS_PER_TOKEN, _mean(self._since_event))
    self._since_event.clear()

  def _write_value(self, tag: str, value: float) -> None:
    if not self._model_dir:
      return
    summary = tf.Summary.Value(tag=tag, simple_value=value)
    writer = tf.summary.FileWriterCache.get(self._model_dir)
    writer.add_summary(tf.Summary(value=[summary]), self.step)

  def _progress(self, steps: Collection[Loss], note: str = '') -> str:
    """Returns step, mean loss and speed as text.

    The speed is that of the last minute: a start is slow for many steps, as
    caches fill. At the end it is that of all steps but this process's first.
    The second step alone says nothing: it may take a hundred times as long as
    later ones.
    """
    shown = f'{self.step}/{self._total}  {self._format.format(_mean(steps))}'
    measured = self.step - self._first_step
    if not measured or measured == 1 and self.step < self._total:
      return shown
    since, first_time = self._marks[0]
    if self.step >= self._total:
      since, first_time = self._first_step, self._first_time
    elapsed = max(time.monotonic() - first_time, 1e-9)
    speed = (self.step - since) / elapsed
    shown = f'{shown}{note}  {speed:.1f}/s'
    if self.step >= self._total:
      return shown
    seconds_left = (self._total - self.step) / max(speed, 1e-9)
    return f'{shown}  {duration(seconds_left)} left'

  def _mark(self) -> None:
    """Notes step and time, and forgets all but one that are a minute old."""
    now = time.monotonic()
    self._marks.append((self.step, now))
    while self._marks[1][1] <= now - _SPEED_SECONDS:
      self._marks.popleft()


def _mean(steps: Collection[Loss]) -> float:
  """Returns the mean loss in nats per token; T5's if tokens are not counted."""
  share = sum(loss.token_share for loss in steps)
  return sum(loss.host for loss in steps) / max(share, 1e-9)


def has_fallen(losses: Sequence[float]) -> bool:
  """Whether the mean of the last tenth of the steps is below the first's.

  It must be by more than two standard errors of the difference. True for a run
  of few steps, which says nothing.
  """
  if len(losses) < _FEWEST_STEPS:
    return True
  tenth = len(losses) // 10
  first, last = losses[:tenth], losses[-tenth:]
  fall = statistics.mean(first) - statistics.mean(last)
  variances = statistics.variance(first) + statistics.variance(last)
  return fall > 2 * math.sqrt(variances / tenth)


def not_finite(what: str, model_dir: str, step: int) -> UserError:
  """Returns the error that ends a run; saved checkpoints are all finite."""
  names = [n for n in Folder(model_dir).checkpoints if step_of(n) < step]
  if names:
    path = os.path.join(model_dir, names[-1])
    advice = (
      f'The last finite checkpoint is {path}; the same command resumes from '
      'it. A lower learning rate (learning_rate_schedules in gin) is most '
      'likely to help.'
    )
  else:
    advice = (
      f'No checkpoint was saved in {model_dir}. If the run starts from '
      'utils.run.init_checkpoint, check that checkpoint for NaN.'
    )
  return UserError(f'{what}: the run has ended. {advice}')


class Saver(tf.train.CheckpointSaverHook):
  """Extends the host's saver: also saves by time, and never saves NaN.

  The host saves only by steps, so a killed run of few or slow steps loses all
  of them. Here checkpoints due by steps, and the last one, are kept; one saved
  by time is removed once the next one is complete. The host also stops a run
  whose loss is NaN, but may first save weights that are already NaN.

  The host writes the whole graph as text to the event file and next to each
  checkpoint: 40 MB each time, with the input pipelines of a mixture. This class
  does not write the graph.

  Attributes:
    hosts: the processes of the run.
    writing: writes, or starts to.
    seconds: minimum time between checkpoints that are not due by steps.
  """

  hosts: Hosts
  writing: Writing
  seconds = 60.0

  def __init__(self, checkpoint_dir: str, **more: Any) -> None:
    super().__init__(checkpoint_dir, save_graph_def=False, **more)
    self._set_steps_per_run(1)
    self._due = math.inf  # when to save by time
    self._temporary = ''  # the last checkpoint that was saved by time

  def begin(self) -> None:
    super().begin()
    self._finite = {
      variable.op.name: tf.reduce_all(tf.is_finite(variable)).name
      for variable in tf.global_variables()
      if variable.dtype.base_dtype.is_floating
    }
    self.writing.add_to_graph()

  def after_create_session(self, session: tf.Session, _coord: Any) -> None:
    """Saves the step at which this process starts, unless it was restored.

    The host saves it in any case. Another process of the run, a little later,
    may still read the files that it would replace.
    """
    step = session.run(self._global_step_tensor)
    if f'model.ckpt-{step}' in Folder(self._checkpoint_dir).checkpoints:
      self._due = time.monotonic() + self.seconds
    else:
      self._save(session, step)
    self._timer.update_last_triggered_step(step)

  def after_run(self, run_context: Any, run_values: Any) -> None:
    self.writing.check()
    super().after_run(run_context, run_values)  # saves what is due by steps
    is_due = time.monotonic() >= self._due and not self.writing.is_busy
    if self.hosts.is_first and is_due:
      self.hosts.save.ask()
      self._due = math.inf  # until it is saved
    if self.hosts.save.take():
      step = run_context.session.run(self._global_step_tensor)
      if step == self._timer.last_triggered_step():
        self._due = time.monotonic()  # ask again after the next step
      else:
        self._save(run_context.session, step)
        self._temporary = f'{self._save_path}-{step}'

  def _save(self, session: tf.Session, step: int) -> bool:
    """Brings the variables to the session, and starts to write them."""
    start = time.monotonic()
    self.writing.wait()
    for listener in self._listeners:
      listener.before_save(session, step)  # reads the values on the devices
    if self.hosts.is_first:
      outdated, self._temporary = self._temporary, ''
      self.writing.start(
        session,
        [self._get_saver().saver_def.save_tensor_name, *self._finite.values()],
        functools.partial(self._write, step=step, outdated=outdated),
      )
    elapsed = time.monotonic() - start
    self._due = start + max(self.seconds, elapsed / _MAX_SAVING_SHARE)
    return False  # whether to stop

  def _write(self, session: tf.Session, step: int, outdated: str) -> None:
    """Writes a checkpoint, and then removes an outdated one if there is one.

    It is not the run's own session where steps go on.
    """
    finite = session.run(self._finite)
    spoiled = sorted(name for name in finite if not finite[name])
    if spoiled:
      raise not_finite(
        f'the weights contain NaN or infinity at step {step}, in '
        f'{len(spoiled)} of {len(finite)} variables ({spoiled[0]}, ...)',
        self._checkpoint_dir,
        step,
      )
    saver = self._get_saver()
    if outdated:  # the list written with the new checkpoint must not include it
      kept = [path for path in saver.last_checkpoints if path != outdated]
      saver.recover_last_checkpoints(kept)
    saver.save(
      session, self._save_path, global_step=step, write_meta_graph=False
    )
    if outdated and outdated != f'{self._save_path}-{step}':
      tf.train.remove_checkpoint(outdated)
