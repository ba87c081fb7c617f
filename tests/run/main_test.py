"""T5's own main with our layer and tasks, in this process."""

import contextlib
import os
import pathlib
import re
import tempfile
from typing import Any
from unittest import mock

import numpy as np
import pytest
import seqio
import tensorflow.compat.v1 as tf
from absl import logging
from mesh_tensorflow.transformer import utils

import synth_mtf
from synth_mtf.checkpoints import folder as folders
from synth_mtf.checkpoints.files import Checkpoint
from synth_mtf.cpu import padding
from synth_mtf.errors import RunFailed, UserError
from synth_mtf.host import events
from synth_mtf.pjrt import devices
from synth_mtf.run import main
from synth_mtf.run.outcome import Outcome
from synth_mtf.run.output import Kept
from synth_mtf.tasks import vocabulary
from tests import harness

trains = pytest.mark.slow
OURS = f'{pathlib.Path(synth_mtf.__file__).parent}/tasks/mine.py'
LAYER = 'block_000/layer_000/SyntheticAttention'


def values(path) -> dict[str, Any]:
  checkpoint = Checkpoint(str(path))
  return {name: checkpoint[name] for name in checkpoint.variables}


@trains
def test_trains_without_an_import_flag_and_keeps_a_config_that_reloads(trained):
  assert tf.train.latest_checkpoint(str(trained)).endswith('model.ckpt-2')
  config = (trained / 'operative_config.gin').read_text()
  assert 'import synth_mtf\n' in config
  assert 'SyntheticAttention.synthesizers' in config


@trains
def test_random_weights_lose_the_logarithm_of_the_vocabulary(trained):
  """Half of these targets are padding, by which T5's own loss is divided."""
  scalars = events.read(str(trained))
  assert scalars['nats_per_token'][1] == pytest.approx(np.log(384), abs=1)
  assert scalars['loss'][1] < 0.8 * scalars['nats_per_token'][1]


@trains
def test_resumes_as_if_it_had_not_stopped(run, copy, tmp_path):
  straight = tmp_path / 'straight'
  assert run(copy, steps=4) == 0
  assert run(straight, steps=4) == 0
  for step in (2, 4):
    name = f'model.ckpt-{step}'
    np.testing.assert_equal(values(copy / name), values(straight / name))


@trains
def test_alpha_moves_at_the_learning_rate_where_it_is_set_free(
  run, trained, tmp_path
):
  """Some 0.01 a step, and 0.001 of that by T5's own Adafactor."""
  assert run(tmp_path, '--gin_file=common/free_alpha.gin') == 0
  for folder, far in ((trained, 2e-5), (tmp_path, 2e-2)):
    found = values(folder / 'model.ckpt-2')
    moved = [
      abs(v).max() for name, v in found.items() if name.endswith('alpha')
    ]
    assert len(moved) == 2, 'an encoder and a decoder of a layer each'
    assert 0.2 * far < max(moved) < 3 * far


@trains
@pytest.mark.parametrize(
  'more',
  [
    '--gin_param=utils.serialize_num_microbatches'
    '.tokens_per_microbatch_per_replica = 64',
    '--gin_param=transformer.LayerStack.recompute_grads = True',
  ],
  ids=['in a loop', 'layers recomputed'],
)
def test_products_without_padding_train_the_same_variables(
  run, tmp_path, monkeypatch, more
):
  variables = []
  for name, least in (('without', 0), ('with', 2**60)):
    monkeypatch.setattr(padding, '_LEAST', least)
    assert run(tmp_path / name, more) == 0
    variables.append(values(tmp_path / name))
  for found in variables:
    # The first token attends only to itself: this gradient is 0 or rounding,
    # which Adafactor turns into a whole step.
    found[f'decoder/{LAYER}/random/R'][:, 0, 0] = 0
  found, expected = variables
  harness.assert_close(found, expected, 'variable', 1e-3)


@trains
@pytest.mark.parametrize(
  ('words', 'message'),
  [
    (
      ["--gin_param=utils.run.mesh_shape = 'batch:2'"],
      r'mesh_devices = .* must name one device for each part',
    ),
    (
      ['--gin_param=utils.run.sequence_length = {"inputs": 99, "targets": 8}'],
      r'makes 22 targets, but utils.run.sequence_length allows 8',
    ),
  ],
)
def test_what_the_host_finds_is_one_message(refused, tmp_path, words, message):
  refused(tmp_path, *words, match=message)


@pytest.fixture
def task_of(monkeypatch):
  """Registers a task that reads lines; returns how a run names it."""

  def register(source):
    monkeypatch.setattr(seqio.TaskRegistry, '_REGISTRY', {})
    seqio.TaskRegistry.add(
      'lines',
      source,
      preprocessors=[
        lambda lines: lines.map(lambda line: {'inputs': line, 'targets': line}),
        seqio.preprocessors.tokenize,
        seqio.preprocessors.append_eos,
      ],
      output_features=vocabulary.OUTPUT_FEATURES,
    )
    return "--gin_param=MIXTURE_NAME = 'lines'"

  return register


def test_a_file_that_is_not_there_when_the_run_begins(
  refused, tmp_path, task_of
):
  source = seqio.TextLineDataSource({'train': '/no/lines.txt'})
  refused(tmp_path, task_of(source), match='^no file matches /no/lines.txt')


@trains
def test_a_file_that_is_not_there_when_it_is_read(run, tmp_path, task_of):
  def lines(split, shuffle_files, seed=None):
    return tf.data.TextLineDataset('/no/lines.txt')

  task = task_of(seqio.FunctionDataSource(lines, ['train']))
  with pytest.raises(
    UserError, match='^/no/lines.txt could not be read: .*removed or renamed'
  ):
    run(tmp_path, task)


@trains
@pytest.mark.parametrize('damage', ['truncated', 'flipped'])
def test_a_damaged_checkpoint_and_the_complete_one(refused, copy, damage):
  for path in copy.glob('model.ckpt-2.data*'):
    content = bytearray(path.read_bytes())
    if damage == 'truncated':
      content = content[: len(content) // 2]
    elif content:
      content[len(content) // 2] ^= 1
    path.write_bytes(content)
  match = 'damaged in .*: model.ckpt-2 .*Complete: model.ckpt-0'
  refused(copy, match=match, steps=4)


@trains
@pytest.mark.xla
@pytest.mark.parametrize('device', [(), ('--device=cpu',)])
def test_no_name_of_the_host_is_replaced_twice(
  run, tmp_path, monkeypatch, device
):
  """Otherwise the order of two contexts would decide who is inside whom."""
  all_of = devices.find  # other tests may have asked JAX for several
  monkeypatch.setattr(devices, 'find', lambda kind: all_of(kind)[:1])
  host_patch = mock.patch.object
  active, replaced = [], set()

  @contextlib.contextmanager
  def once(target, name, new):
    assert (target, name) not in active
    active.append((target, name))
    replaced.add(name)
    with host_patch(target, name, new):
      yield
    active.remove((target, name))

  monkeypatch.setattr(mock.patch, 'object', once)
  assert run(tmp_path / 'run', *device) == 0
  of_way = {'random'} if not device else {'while_loop', 'simd_mesh_impl'}
  always = {'assign_add', 'CheckpointSaverHook', 'loss_denominator'}
  assert replaced >= always | of_way


@trains
def test_the_folder_of_a_resumed_run_is_listed_once_before_its_first_step(
  run, copy, monkeypatch
):
  listed = []
  list_files = folders._files_in  # noqa: SLF001

  def note(path):
    listed.append(path)
    return list_files(path)

  monkeypatch.setattr(folders, '_files_in', note)

  def train_model(*_args, **_more):
    assert listed == [str(copy)]

  monkeypatch.setattr(utils, 'train_model', train_model)
  assert run(copy, steps=4) == 0
  assert listed


def shown_in(folder, outcome=None):
  return main.shown(str(folder), outcome or Outcome(), Kept())


@pytest.fixture
def shown(tmp_path, capfd):
  """Runs something; returns what a user has seen of it, and the log."""

  def run_shown(body, error=None, outcome=None):
    with (
      open(2, 'w', closefd=False) as stderr,  # here it is a file of pytest's
      contextlib.redirect_stderr(stderr),
      pytest.raises(error) if error else contextlib.nullcontext() as caught,
      shown_in(tmp_path, outcome),
    ):
      body()
    if error is RunFailed:
      assert caught and str(tmp_path / 'log') in str(caught.value)
    return capfd.readouterr().err, (tmp_path / 'log').read_text()

  verbosity = logging.get_verbosity()
  logging.set_verbosity(logging.INFO)
  yield run_shown
  logging.set_verbosity(verbosity)


def test_the_last_lines_say_what_was_measured_and_written(shown, tmp_path):
  outcome = Outcome()

  def body():
    outcome.result = 'step 7, loss 2.5 nats/token'
    outcome.add_written('a/outputs.txt-100')
    for number in range(5):
      outcome.add_written(f'b/{number}')

  seen, _ = shown(body, outcome=outcome)
  assert seen.splitlines()[2:4] == [
    'Wrote a/outputs.txt-100',
    'Wrote 5 files in b',
  ]
  last = seen.splitlines()[4]
  assert re.fullmatch(r'Done in \d+ s: step 7, loss 2.5 nats/token', last)
  again, _ = shown(lambda: None)
  assert again.splitlines()[-1].endswith(' s.')
  assert 'Wrote' not in again


def test_many_paths_are_few_lines():
  outcome = Outcome()
  for number in range(9):
    outcome.add_written(f'eval_{number}/metrics.json')
  assert outcome.written()[3:] == [
    'Wrote eval_3/metrics.json',
    '... and 5 more',
  ]


def test_a_run_line_by_line(shown, tmp_path):
  seen, log = shown(lambda: os.write(1, b'said by C++\n'))
  lines = seen.splitlines()
  assert lines[:2] == [
    f'Log: {tmp_path}/log',
    'prepare  check data, settings and model ...',
  ]
  assert re.fullmatch(r'Done in \d+ s\.', lines[2])
  assert log == 'said by C++\n'


@pytest.fixture
def elsewhere(monkeypatch, tmp_path):
  """The temporary folder, where logs of buckets go."""
  folder = tmp_path / 'temporary'
  folder.mkdir()
  monkeypatch.setattr(tempfile, 'tempdir', str(folder))
  return folder


def test_a_log_elsewhere_has_a_name_that_nobody_can_know(elsewhere, tmp_path):
  """A link of the name of an earlier release led the log to another file."""
  other = tmp_path / 'other'
  other.touch()
  (elsewhere / f'synth-mtf-{os.getpid()}.log').symlink_to(other)
  for _ in range(2):
    with shown_in('gs://bucket/run'):
      os.write(1, b'said by C++\n')
  assert other.read_bytes() == b''
  logs = [path for path in elsewhere.iterdir() if not path.is_symlink()]
  assert [path.read_text() for path in logs] == ['said by C++\n'] * 2
  assert {path.stat().st_mode & 0o777 for path in logs} == {0o600}


def test_a_log_elsewhere_without_content_is_removed(elsewhere):
  def fail(error):
    raise error

  with shown_in('gs://bucket/run'):
    pass
  with pytest.raises(UserError), shown_in('gs://bucket/run'):
    fail(UserError('another folder'))
  assert not list(elsewhere.iterdir())
  with pytest.raises(RunFailed) as caught, shown_in('gs://bucket/run'):
    fail(ValueError('unknown'))
  (log,) = elsewhere.iterdir()
  assert str(log) in str(caught.value)


def test_a_log_is_no_link(shown, tmp_path):
  (tmp_path / 'other').touch()
  (tmp_path / 'log').symlink_to(tmp_path / 'other')
  with pytest.raises(OSError, match='symbolic links'):
    shown(lambda: None)


def test_our_warnings_are_shown_once_and_no_others(shown):
  def warn(file, message):
    """Warns as the code of a file does."""
    exec(compile(f'warning({message!r})', file, 'exec'), vars(logging))

  def body():
    for message in ('a row', 'a row', 'another row'):
      warn(OURS, message)
    warn('/elsewhere/theirs.py', 'of the host')

  handlers = len(logging.get_absl_logger().handlers)
  seen, _ = shown(body)
  assert seen.splitlines()[2:4] == ['warning: a row', 'warning: another row']
  assert 'of the host' not in seen
  assert len(logging.get_absl_logger().handlers) == handlers


def test_an_unknown_error_of_a_graph_shows_its_cause(tmp_path):
  def fail():
    raise KeyError('no such row')

  with (
    pytest.raises(
      RunFailed, match="^UnknownError: KeyError: 'no such row'\nThe "
    ),
    shown_in(tmp_path),
    tf.Graph().as_default(),
    tf.Session() as session,
  ):
    session.run(tf.py_func(fail, [], tf.int64))


def test_a_long_message_is_shortened(tmp_path):
  lines = [f'line {number}' for number in range(9)]
  with (
    pytest.raises(
      RunFailed, match='ValueError: line 0\n(line .\n){4}[.]{3}\nThe'
    ),
    shown_in(tmp_path),
  ):
    raise ValueError('\n'.join(lines))


@pytest.mark.parametrize(
  ('error', 'raised'),
  [
    (UserError('give another one'), UserError),
    (ValueError(''), RunFailed),
    (ValueError('two\nlines'), RunFailed),
  ],
)
def test_the_traceback_of_an_error_is_in_the_log(shown, error, raised):
  def body():
    raise error

  seen, log = shown(body, raised)
  assert 'Done' not in seen and 'Traceback' not in seen
  assert 'Traceback' in log and type(error).__name__ in log
