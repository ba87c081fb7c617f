"""One run on several hosts, which here are processes of this machine."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import jax
import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.errors import UserError
from synth_mtf.host import events
from synth_mtf.pjrt import hosts
from synth_mtf.pjrt.placement import Slicing
from tests import official_files
from tests.cli import t5_main
from tests.cli.command import PROGRAM

# Before JAX 0.5, a host of CPUs has one device.
DEVICES = 1 if jax.__version__.startswith('0.4.') else 4
MESH = f"--gin_param=utils.run.mesh_shape = 'model:2,batch:{DEVICES}'"


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  return official_files.write_text(tmp_path_factory.mktemp('data'))


def free_port():
  with socket.socket() as listening:
    listening.bind(('127.0.0.1', 0))
    return listening.getsockname()[1]


class Host:
  """A process of a run."""

  def __init__(self, program, model_dir, data, devices, steps, *flags):
    words = [
      *('transformer', '--device=cpu', f'--model_dir={model_dir}'),
      *(f'--data_dir={data}', '--vocabulary=bytes', *t5_main.REPEATABLE),
      '--gin_param=utils.run.batch_size = 8',
      '--gin_param=utils.run.save_checkpoints_steps = 3',
      '--gin_param=dropout_rate = 0.1',
      f'--gin_param=utils.run.train_steps = {steps}',
      *flags,
    ]
    environment = {
      **os.environ,
      'PYTHONHASHSEED': '0',
      'SYNTH_MTF_PROGRESS_SECONDS': '0.1',
      'XLA_FLAGS': (
        f'{os.environ["XLA_FLAGS"]} '
        f'--xla_force_host_platform_device_count={devices}'
      ),
    }
    self.process = subprocess.Popen(
      [*program, *words],
      env=environment,
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
    )

  def wait(self):
    """Returns what it printed, and its status."""
    output, _ = self.process.communicate(timeout=3000)
    return output, self.process.returncode


@pytest.fixture
def start(programs):
  """Starts a process for each folder of data."""

  def hosts(model_dir, *data, steps):
    port = free_port()
    return [
      Host(
        [programs / 'synth-mtf'],
        model_dir,
        folder,
        DEVICES,
        steps,
        MESH,
        f'--coordinator_address=localhost:{port}',
        f'--num_processes={len(data)}',
        f'--process_id={number}',
      )
      for number, folder in enumerate(data)
    ]

  return hosts


def losses(folder):
  found = events.read(str(folder))['loss']
  return [found[step] for step in sorted(found)]


def trained(checkpoint, name):
  """Returns a variable, without R[h, 0, 0] of this decoder.

  The first query sees one key alone, and the softmax of one logit is 1. The
  logit's gradient is rounding, which Adafactor makes as large as any other.
  """
  value = checkpoint.get_tensor(name)
  if name.endswith('/random/R'):
    value[:, 0, 0] = 0
  return value


@pytest.mark.slow
@pytest.mark.xla
def test_two_hosts_compute_what_one_does(start, data, tmp_path):
  """A run on two hosts that is continued, and one on the devices of both."""
  one = Host([PROGRAM], tmp_path / 'one', data, 2 * DEVICES, 6, MESH)
  for steps in (3, 6):
    for output, status in [
      host.wait() for host in start(tmp_path / 'two', data, data, steps=steps)
    ]:
      assert not status, output
  output, status = one.wait()
  assert not status, output
  assert losses(tmp_path / 'two')[-1] == pytest.approx(
    losses(tmp_path / 'one')[-1], rel=1e-5
  )
  found, expected = (
    tf.train.load_checkpoint(str(tmp_path / name / 'model.ckpt-6'))
    for name in ('two', 'one')
  )
  names = expected.get_variable_to_shape_map()
  assert found.get_variable_to_shape_map() == names
  for name in names:
    np.testing.assert_allclose(
      trained(found, name), trained(expected, name), 1e-4, 2e-5, name
    )


# A process whose checkpoints take long to read.
LATE = """
import sys, time
import tensorflow.compat.v1 as tf
from synth_mtf import cli

restore = tf.train.Saver.restore

def late(*arguments):
  time.sleep(8)
  restore(*arguments)

tf.train.Saver.restore = late
sys.exit(cli.main())
"""


# A session, then a perplexity on devices with JAX's service: a host alone does
# not join otherwise.
SESSION = """
import sys
from synth_mtf import cli
from synth_mtf.pjrt import hosts

words, train, perplexity = ([*part.split('\\n')] for part in sys.argv[1:])
assert cli.main([*words, *train]) == 0
hosts._join = lambda kind, given: hosts._join_given(kind, *given)
sys.exit(cli.main([*words, *perplexity]))
"""


@pytest.fixture(scope='module')
def in_session(data, tmp_path_factory):
  """The folder of a session, and the process, which now evaluates it."""
  folder = tmp_path_factory.mktemp('session') / 'run'
  words = [
    *('transformer', f'--model_dir={folder}', f'--data_dir={data}'),
    *('--vocabulary=bytes', *t5_main.REPEATABLE),
    '--gin_param=utils.run.batch_size = 8',
  ]
  train = [
    "--gin_param=utils.run.mesh_shape = 'batch:2'",
    "--gin_param=utils.run.mesh_devices = ['cpu:0', 'cpu:0']",
    '--gin_param=utils.run.train_steps = 1',
  ]
  perplexity = [
    *('--device=cpu', f'--coordinator_address=localhost:{free_port()}'),
    *('--num_processes=1', '--process_id=0'),
    '--gin_file=runs/perplexity_text.gin',
    '--gin_param=utils.run.eval_checkpoint_step = -1',
    '--gin_param=utils.run.perplexity_eval_steps = 100000',
  ]
  with subprocess.Popen(
    [
      sys.executable,
      '-c',
      SESSION,
      *map('\n'.join, (words, train, perplexity)),
    ],
    env={**os.environ, 'PYTHONHASHSEED': '0'},
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  ) as process:
    assert process.stdout is not None
    for line in process.stdout:
      if line.startswith('perplexity, step 1'):
        break
    yield folder, process
    process.kill()


@pytest.mark.slow
@pytest.mark.xla
def test_a_signal_ends_a_perplexity_beside_the_service(in_session):
  """JAX's service takes SIGTERM for itself, and only notes it."""
  _, process = in_session
  time.sleep(3)  # it computes batches now
  process.send_signal(signal.SIGTERM)
  output, _ = process.communicate(timeout=9)  # 10 s later, a thread ends it
  assert process.returncode == 143
  assert output == 'SIGTERM: ending the run.\nsynth-mtf: terminated\n'


@pytest.mark.slow
@pytest.mark.xla
def test_a_late_host_reads_the_checkpoint_of_a_session(
  in_session, programs, data, tmp_path
):
  """A session saves in two parts; a run on devices, later, in one."""
  source, _ = in_session
  folder = shutil.copytree(source, tmp_path / 'run')
  assert (folder / 'model.ckpt-1.data-00001-of-00002').exists()
  port = free_port()
  commands = [programs / 'synth-mtf'], [sys.executable, '-c', LATE]
  started = [
    Host(
      command,
      *(folder, data, DEVICES, 2),
      f'--coordinator_address=localhost:{port}',
      '--num_processes=2',
      f'--process_id={number}',
    )
    for number, command in enumerate(commands)
  ]
  for output, status in [host.wait() for host in started]:
    assert not status, output
    # runs/cpu.gin, which is for one core, has named no other mesh.
    mesh = f'Mesh: batch:{2 * DEVICES}, all devices, in place of one core ('
    assert mesh in output
  assert (folder / 'model.ckpt-2.index').exists()


@pytest.mark.slow
@pytest.mark.xla
def test_data_that_one_host_lacks_ends_the_run_on_both(start, data, tmp_path):
  started = start(tmp_path / 'run', data, tmp_path, steps=6)
  for output, status in [host.wait() for host in started]:
    assert status == 2, output
    (message,) = re.findall('synth-mtf: error: (.*)', output)
    assert 'no file corpus/' in message


@pytest.mark.slow
@pytest.mark.xla
@pytest.mark.parametrize('lost', [0, 1])
def test_a_lost_host_ends_the_run(start, data, tmp_path, lost):
  started = start(tmp_path / 'run', data, data, steps=10**6)
  try:
    while not (tmp_path / 'run' / 'model.ckpt-3.index').exists():
      assert started[0].process.poll() is None
      time.sleep(0.1)
    started[lost].process.send_signal(signal.SIGKILL)
    output, status = started[1 - lost].wait()
  finally:
    for host in started:
      host.process.kill()
      host.wait()
  assert status
  (message,) = re.findall('synth-mtf: error: (.*)', output)
  assert 'give the same command on every host again' in message
  # JAX may abort the process that is left before it can tell which one is lost.
  assert re.search(
    f'process {lost} |another process of the run is lost', message
  )


@pytest.mark.slow
@pytest.mark.xla
def test_a_signal_to_one_host_stops_all(start, data, tmp_path):
  started = start(tmp_path / 'run', data, data, steps=10**6)
  try:
    while not (tmp_path / 'run' / 'model.ckpt-3.index').exists():
      assert started[0].process.poll() is None
      time.sleep(0.1)
    started[1].process.send_signal(signal.SIGTERM)
    ends = [host.wait() for host in started]
  finally:
    for host in started:
      host.process.kill()
  last = set()
  for output, status in ends:
    assert status == 128 + signal.SIGTERM, output
    last |= set(re.findall(r'Stopped\. (\S+) is saved', output))
  (name,) = last
  assert (tmp_path / 'run' / f'{name}.index').exists()


# A process of two, outside training: it waits in C, as for a program.
JOINED = """
import sys, time
from synth_mtf import cli
from synth_mtf.cli import demo
from synth_mtf.pjrt import hosts
from synth_mtf.run import stopping

def work(_):
  say = lambda text: print(text, flush=True)
  given = 'localhost:{port}', hosts.Group(2, {number})
  with stopping.acknowledged(say, 'ending.'), hosts.joined('cpu', given):
    say('ready')
    while True:
      time.sleep(0.1)

demo.run = work
sys.exit(cli.main(['demo', '--out=unused']))
"""


@pytest.mark.slow
@pytest.mark.xla
@pytest.mark.parametrize('receiver', [0, 1])
def test_a_signal_outside_training_ends_all_hosts(receiver):
  port = free_port()
  started = [
    subprocess.Popen(
      [sys.executable, '-c', JOINED.format(port=port, number=number)],
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
    )
    for number in range(2)
  ]
  try:
    for process in started:
      assert process.stdout is not None
      assert process.stdout.readline() == 'ready\n'
    started[receiver].send_signal(signal.SIGTERM)
    ends = [process.communicate(timeout=60) for process in started]
  finally:
    for process in started:
      process.kill()
  messages = [error for _, error in ends]
  assert ends[receiver][0] == 'SIGTERM: ending.\n'
  assert started[receiver].returncode == 143
  assert started[1 - receiver].returncode == 2
  reason = 'terminated by SIGTERM'
  assert messages[receiver] == f'synth-mtf: error: {reason}\n'
  assert messages[1 - receiver] == (
    f'synth-mtf: error: process {receiver} has ended: {reason}\n'
  )


@pytest.mark.parametrize(
  'flags, match',
  [
    (('a:1', None, 0), 'also needs --num_processes'),
    (('a', 2, 0), 'expected host:port'),
    (('a:1', 2, 2), 'expected 0 to 1'),
    (('a:1', 2, -1), 'expected whole numbers'),
  ],
)
def test_wrong_flags_are_refused(flags, match):
  with pytest.raises(UserError, match=match):
    hosts.address(*flags)


def test_flags_or_the_environment_name_the_processes(monkeypatch):
  assert hosts.address(None, None, None) is None
  monkeypatch.setenv('JAX_COORDINATOR_ADDRESS', 'a:1')
  monkeypatch.setenv('JAX_NUM_PROCESSES', '2')
  assert hosts.address(None, None, 1) == ('a:1', hosts.Group(2, 1))


def test_a_process_without_others_grants_its_own_wish_once():
  wish = hosts.Hosts().stop
  assert not wish.take()
  wish.ask()
  assert wish.take() and not wish.take()


def test_an_end_on_another_host_lets_a_checkpoint_be_finished(monkeypatch):
  ends = []
  is_written = threading.Event()
  monkeypatch.setattr(
    os, '_exit', lambda status: ends.append((status, is_written.is_set()))
  )
  joined = hosts.Hosts(hosts.Group(2, 1))
  watch = hosts._Watch(joined)  # noqa: SLF001
  joined.unfinished.acquire()

  def write():
    time.sleep(0.5)
    is_written.set()
    joined.unfinished.release()

  threading.Thread(target=write).start()
  watch._exit('process 0 is lost', 2)  # noqa: SLF001
  assert ends == [(2, True)]


def test_slices_of_other_hosts_are_missing():
  slicing = Slicing(((0,), (2,), (0,), (2,)), slice_shape=(2,), shape=(4,))
  assert slicing.distinct == {(0,): 0, (2,): 1}
  whole = slicing.join({1: np.ones(2), 3: np.ones(2)})
  np.testing.assert_array_equal(whole, [0, 0, 1, 1])


def test_other_processes_see_the_latest_checkpoint(tmp_path):
  source, own = tmp_path / 'run', tmp_path / 'own'
  own.mkdir()
  (source / 'commands').mkdir(parents=True)
  for name in ('model.ckpt-2.index', 'model.ckpt-4.index', 'log', 'model.json'):
    (source / name).write_text(name)
  (source / 'model.ckpt-4.data-00000-of-00001').write_text('')
  (source / 'checkpoint').write_text('model_checkpoint_path: "model.ckpt-4"\n')
  hosts.show_files(str(source), str(own))
  assert sorted(os.listdir(own)) == [
    'checkpoint',
    'model.ckpt-4.data-00000-of-00001',
    'model.ckpt-4.index',
    'model.json',
  ]
  assert tf.train.latest_checkpoint(str(own)) == str(own / 'model.ckpt-4')
