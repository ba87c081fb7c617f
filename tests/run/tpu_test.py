"""What is refused of a run with --tpu before its model is built."""

import contextlib
import importlib.util
import socket

import gin
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.errors import UserError
from synth_mtf.host import gin_files, tpu_checks, tpu_runtime
from synth_mtf.host.run_config import RunConfig
from tests.cli import t5_main
from tests.host import made_packages

# The tests run where TensorFlow has no TPU runtime, as from PyPI, ...
without_runtime = pytest.mark.skipif(
  tpu_runtime.package() == 'tensorflow-tpu', reason='it has a TPU runtime'
)
# ... and without what t5's extra [gcp] brings.
without_google_api = pytest.mark.skipif(
  bool(importlib.util.find_spec('googleapiclient')),
  reason='the Google API client is installed',
)


@pytest.fixture(scope='module')
def server():
  """The address of a TensorFlow server that has a CPU alone."""
  server = tf.distribute.Server.create_local_server()
  return server.target.replace('localhost', '127.0.0.1')


@pytest.fixture
def on_chips(monkeypatch):
  """Puts chips into this machine, and a TPU runtime into TensorFlow."""

  def put(generation):
    chips = tpu_runtime.Chips(generation, 4, ['/dev/accel0'])
    monkeypatch.setattr(tpu_runtime, 'chips', lambda: chips)
    monkeypatch.setattr(tpu_runtime, 'has_runtime', lambda: True)
    monkeypatch.setattr(tpu_runtime, 'lock_holder', lambda: None)

  return put


@without_google_api
def test_a_name_of_the_cloud_tpu_api():
  with pytest.raises(
    UserError, match='--tpu=mytpu is a name, .* 2025-04-25. .*--tpu=local, or'
  ):
    tpu_checks.check_address('mytpu')


@without_runtime
class TestATensorFlowWithoutATpuRuntime:
  def test_this_one(self):
    with pytest.raises(
      UserError,
      match=rf'TensorFlow {tf.__version__} was built without .* TPU=1',
    ):
      tpu_checks.check_address('local')

  def test_one_that_overwrote_the_other(self, tmp_path, monkeypatch):
    made_packages.install(tmp_path, 'tensorflow-tpu')
    made_packages.install(tmp_path, 'tensorflow')
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
      UserError, match='tensorflow; it overwrote tensorflow-t'
    ):
      tpu_checks.check_address('local')


@pytest.mark.parametrize('generation', ['v5e', 'v5p', 'v6e'])
def test_a_chip_without_a_stream_executor(on_chips, generation):
  on_chips(generation)
  with pytest.raises(
    UserError, match=f'TPU {generation}, which .* --device=tpu in place'
  ):
    tpu_checks.check_address('local')


class TestAChipWithAStreamExecutor:
  @pytest.fixture(autouse=True)
  def _chip(self, on_chips, monkeypatch):
    monkeypatch.delenv('TPU_LOAD_LIBRARY', raising=False)
    on_chips('v4')

  def test_that_is_free(self):
    tpu_checks.check_address('local')

  def test_that_another_process_uses(self, monkeypatch):
    monkeypatch.setattr(tpu_runtime, 'lock_holder', lambda: 123)
    with pytest.raises(UserError, match='process 123 uses the TPU .* kill 123'):
      tpu_checks.check_address('local')

  def test_that_tensorflow_must_not_use(self, monkeypatch):
    monkeypatch.setenv('TPU_LOAD_LIBRARY', '0')
    with pytest.raises(UserError, match='TPU_LOAD_LIBRARY=0 keeps'):
      tpu_checks.check_address('local')


class TestWorkersOfASlice:
  def test_one_that_does_not_answer(self, server):
    with pytest.raises(
      UserError, match=r'no TensorFlow server answers at localhost:1 \('
    ):
      tpu_checks.check_address(f'{server},grpc://localhost:1')

  def test_one_that_is_silent(self, monkeypatch):
    monkeypatch.setattr(tpu_checks, '_SECONDS', 0.2)
    with contextlib.ExitStack() as stack:
      silent = stack.enter_context(socket.socket())
      silent.bind(('127.0.0.1', 0))
      silent.listen(0)
      host, port = silent.getsockname()
      for _ in range(8):  # fill its queue, which it never reads
        waiting = stack.enter_context(socket.socket())
        waiting.setblocking(False)
        waiting.connect_ex((host, port))
      with pytest.raises(UserError, match=r'no TensorFlow server answers'):
        tpu_checks.check_address(f'grpc://{host}:{port}')

  def test_an_address_without_a_number(self):
    with pytest.raises(UserError, match='answers at localhost:port'):
      tpu_checks.check_address('grpc://localhost:port')

  def test_those_without_a_tpu(self, server):
    tpu_checks.check_address(server)
    with pytest.raises(
      UserError, match=f'--tpu={server}: .*finds no TPU cores'
    ):
      tpu_checks.check_run(RunConfig(tpu=server))


def test_a_layout_of_another_slice():
  gin_files.parse(['layouts/v3-8.gin', 'layouts/data_parallel.gin'])
  run = RunConfig(tpu='local')
  tpu_checks.check_cores(run, 8)
  with pytest.raises(
    UserError,
    match=r'the mesh Shape\[batch=8\] is for 8 cores, and --tpu=local has 4: .*'
    'layouts/',
  ):
    tpu_checks.check_cores(run, 4)


@pytest.mark.parametrize(
  ('file', 'part'),
  [
    ('runs/cpu.gin', 'synth_mtf.train_with_progress'),
    ('common/fast_cpu.gin', 'synth_mtf.EmbeddingByIndex'),
  ],
)
def test_a_gin_file_for_cpus(file, part):
  gin_files.parse([file])
  with pytest.raises(UserError, match='is for CPUs .*Leave out runs/cpu.gin'):
    tpu_checks.check_run(RunConfig(tpu='mytpu'))
  assert part in gin.config_str()


@without_runtime
@without_google_api
@pytest.mark.parametrize(
  ('address', 'message'),
  [
    ('mytpu', '--tpu=mytpu is a name'),
    ('local', '--tpu=local: TensorFlow'),
    ('grpc://localhost:1', '--tpu: no TensorFlow server'),
    ('{server}', '--tpu: @synth_mtf.* is for CPUs'),  # as by runs/cpu.gin
  ],
)
def test_a_run_is_refused_before_its_model_is_built(
  refused, tmp_path, monkeypatch, server, address, message
):
  monkeypatch.setattr(
    'synth_mtf.run.checks.build', lambda *_: pytest.fail('it was built')
  )
  new = tmp_path / 'new'
  refused(new, f'--tpu={address.format(server=server)}', match=message)
  assert not new.exists()


class TestUnderTheStockCommand:
  pytestmark = [pytest.mark.slow, *t5_main.STOCK]

  def test_it_is_refused_in_the_same_words(self, command_line, tmp_path):
    with (
      t5_main.t5_mesh_transformer(tmp_path) as command,
      pytest.raises(
        Exception, match=r'UserError: --tpu=mytpu is a name.* 2025-04-25'
      ),
    ):
      command(*command_line(tmp_path / 'new', '--tpu=mytpu'))
