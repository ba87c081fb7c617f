"""`synth-mtf doctor` on healthy and on broken machines and data."""

import functools
import importlib.metadata
import os
import subprocess
import sys

import pytest
import tensorflow as tf

from synth_mtf.cli import accelerators
from synth_mtf.errors import UserError
from synth_mtf.host import jax_support, tpu_runtime
from tests.cli.command import run
from tests.conftest import CHECKOUT
from tests.host import made_packages
from tests.run.process_test import MAIN, as_command
from tests.tasks.folder import write

QQP = b'id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n'
JAX = importlib.metadata.version('jax')
ROW = b'1\t2\t3\tWhy?\tHow?\t0\n'


def doctor(data_dir, vocabulary='bytes'):
  """Returns the status and what was printed."""
  words = f'--data_dir={data_dir}', f'--vocabulary={vocabulary}'
  return run('doctor', *words)[:2]


def jax_advice(kind):
  """Returns what `doctor` says of JAX's support."""
  if tpu_runtime.package() != 'tensorflow-tpu':
    return jax_support.advice(kind)
  command = jax_support.install(kind)
  return f'in another environment, as this libtpu is for TensorFlow, {command}'


def cells(report, name):
  return [line.split() for line in report.splitlines() if line.startswith(name)]


def test_a_healthy_machine(some_data, monkeypatch):
  monkeypatch.delenv('XLA_FLAGS', raising=False)  # of tests on several cores
  status, report = doctor(some_data)
  assert status == 0
  assert 'FAULT' not in report
  assert report.endswith('No faults.\n')
  assert f'ok     Python {sys.version_info.major}.' in report
  package = f'{tpu_runtime.package()} {tf.__version__}'
  assert f'ok     {package}, tensorflow-estimator ' in report
  assert 'mesh-tensorflow 0.1.21' in report
  assert 'TensorFlow sees: 1 CPU' in report
  assert f'ok     JAX {JAX} finds: 1 cpu (cpu)\n' in report
  assert 'TPU v' not in report  # this machine has none
  assert 'ok     vocabulary bytes: ' in report
  assert f'ok     data folder {some_data}: files of ' in report


def test_a_wrong_data_folder_and_vocabulary(tmp_path):
  empty = tmp_path / 'empty'
  empty.mkdir()
  vocabulary = tmp_path / 'broken.model'
  vocabulary.write_text('no vocabulary')
  status, report = doctor(empty, vocabulary)
  assert status == 1
  assert "FAULT  vocabulary '" in report
  assert f'FAULT  data folder {empty}: files of 0 tasks\n       -> ' in report
  assert report.endswith('2 faults.\n')


def test_folders_of_single_tasks(tmp_path, monkeypatch):
  write(tmp_path / 'glue/QQP/train.tsv', QQP + ROW)
  given = f'synth_glue_qqp*={tmp_path},synth_glue_rte*={tmp_path}'
  monkeypatch.setenv('SYNTH_MTF_TASK_DATA_DIRS', given)
  report = run('doctor')[1]
  assert f'ok     data folder {tmp_path}: files of 1 task\n' in report
  assert 'is set: other tasks read TensorFlow Datasets' in report
  assert 'synth_glue_rte_v002 train' in report.partition('missing: ')[2]


def test_text_of_a_file(tmp_path):
  path = write(tmp_path / 'my.txt', b'A boat.\n\nCaf\xe9.\n')
  status, out, _ = run('doctor', f'--text={path}')
  assert (status, f'text {path}, in place of corpus/' in out) == (1, True)
  assert f'{path}:3: the byte 0xe9' in out


def test_missing_settings_are_notes():
  status, report, _ = run('doctor')
  assert status == 0
  assert "note   no vocabulary is set, and T5's own, gs://" in report
  assert '--vocabulary=bytes' in report
  assert 'note   no data folder is set' in report


@pytest.mark.skipif(
  bool(tf.config.list_physical_devices('GPU')), reason='TensorFlow sees a GPU'
)
def test_a_gpu_that_tensorflow_does_not_see(monkeypatch, tmp_path):
  (tmp_path / 'nvidia-smi').touch(0o755)
  monkeypatch.setenv('PATH', str(tmp_path))
  report = doctor(tmp_path)[1]
  assert 'note   there is an NVIDIA driver, but TensorFlow sees no ' in report
  assert "pip install 'tensorflow[and-cuda]==2.20.0'\n" in report
  assert f'note   JAX {JAX} finds no gpu: ' in report
  assert f'for --device=gpu: {jax_advice("gpu")}\n' in report


@pytest.mark.slow  # a process of its own
def test_flags_that_xla_does_not_know(monkeypatch):
  monkeypatch.setenv('XLA_FLAGS', '--xla_gpu_no_such_flag=true')
  report = reported(accelerators.jax_devices)
  assert report.startswith(f'FAULT JAX {JAX} does not take the environment ')
  assert 'in XLA_FLAGS: --xla_gpu_no_such_flag=true ' in report


@pytest.mark.slow  # a process of its own
def test_an_empty_installation(tmp_path):
  done = as_command(
    tmp_path,
    MAIN,
    'doctor',
    interpreter=['-S'],  # no site-packages
  )
  assert done.returncode == 1
  assert 'FAULT  not installed: tensorflow, tensorflow-estimator' in done.stdout
  assert 'FAULT  import fails: ModuleNotFoundError' in done.stdout
  assert 'pip install -c constraints.txt .' in done.stdout
  assert 'Traceback' not in done.stderr


def put_chips(monkeypatch, root, device='0x005e', devices=('accel0',)):
  """Puts a TPU chip, by default a v4, into this machine."""
  folder = root / 'sys' / 'bus' / 'pci' / 'devices' / '0000:00:05.0'
  folder.mkdir(parents=True)
  (folder / 'vendor').write_text('0x1ae0\n')
  (folder / 'device').write_text(f'{device}\n')
  for name in devices:
    path = root / 'dev' / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
  chips = functools.partial(tpu_runtime.chips, str(root))
  monkeypatch.setattr(tpu_runtime, 'chips', chips)


def reported(findings):
  return '\n'.join(' '.join(filter(None, finding)) for finding in findings())


class TestATpuVm:
  @pytest.fixture(autouse=True)
  def _free(self, monkeypatch):
    monkeypatch.delenv('TPU_LOAD_LIBRARY', raising=False)
    monkeypatch.setattr(tpu_runtime, 'lock_holder', lambda: None)
    monkeypatch.setattr(tpu_runtime, 'lock_owner', lambda: None)

  def test_with_this_tensorflow_and_jax(self, monkeypatch, tmp_path):
    put_chips(monkeypatch, tmp_path)
    status, report = doctor(tmp_path)
    assert status == 1  # no data
    assert (
      'ok     TPU v4: 1 chip (/dev/accel0); use --device=tpu (JAX) or '
      '--tpu=local (TensorFlow)\n'
    ) in report
    assert f'note   JAX {JAX} finds no tpu: ' in report
    assert f'for --device=tpu: {jax_advice("tpu")}\n' in report
    if tpu_runtime.package() == 'tensorflow':
      assert (
        f'note   TensorFlow {tf.__version__} was built without a TPU runtime\n'
        '       -> for --tpu=local: make env TPU=1 (docs/tpu.md)\n'
      ) in report

  def test_whose_chip_only_jax_reaches(self, monkeypatch, tmp_path):
    put_chips(monkeypatch, tmp_path, '0x0063', ['vfio/0', 'vfio/1'])
    assert reported(accelerators.chips) == (
      'ok TPU v5e: 1 chip (/dev/vfio/0, /dev/vfio/1); use --device=tpu (JAX); '
      "TensorFlow's Estimator does not reach it"
    )
    assert not reported(accelerators.tensorflow_runtime)

  def test_of_another_chip(self, monkeypatch, tmp_path):
    put_chips(monkeypatch, tmp_path, devices=())
    assert (
      'FAULT there is no /dev/accel* and no /dev/vfio/*, which lead to the '
      'chips create the VM with the software version for its chip'
    ) in reported(accelerators.chips)

  def test_that_another_process_uses(self, monkeypatch, tmp_path):
    put_chips(monkeypatch, tmp_path)
    monkeypatch.setattr(tpu_runtime, 'lock_holder', lambda: 123)
    assert (
      'note process 123 uses the TPU (it holds /tmp/libtpu_lockfile)'
    ) in reported(accelerators.chips)

  def test_that_somebody_has_left_locked(self, monkeypatch, tmp_path):
    put_chips(monkeypatch, tmp_path)
    monkeypatch.setattr(tpu_runtime, 'lock_owner', lambda: 'ann')
    report = reported(accelerators.chips)
    assert 'FAULT /tmp/libtpu_lockfile belongs to ann' in report
    assert 'sudo rm /tmp/libtpu_lockfile' in report

  @pytest.mark.parametrize(
    ('value', 'effect'),
    [('0', 'does not use'), ('1', 'uses it without a lock')],
  )
  def test_whose_library_is_not_loaded_as_usual(
    self, monkeypatch, tmp_path, value, effect
  ):
    put_chips(monkeypatch, tmp_path)
    monkeypatch.setenv('TPU_LOAD_LIBRARY', value)
    assert f'note TPU_LOAD_LIBRARY={value}: TensorFlow {effect}' in reported(
      accelerators.chips
    )


class TestPackagesOfTensorFlow:
  @pytest.fixture(autouse=True)
  def _alone(self, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, 'path', [str(tmp_path)])
    monkeypatch.delenv('TPU_LIBRARY_PATH', raising=False)  # set by JAX
    monkeypatch.delitem(sys.modules, 'libtpu', raising=False)

  def test_both(self, tmp_path):
    made_packages.install(tmp_path, 'tensorflow-tpu')
    made_packages.install_libtpu(tmp_path, '0.0.21', made_packages.FUNCTIONS)
    assert reported(accelerators.packages) == (
      'ok libtpu 0.0.21 has the stream executor for TensorFlow'
    )
    made_packages.install(tmp_path, 'tensorflow')
    report = reported(accelerators.packages)
    assert 'which has the files of tensorflow: --tpu finds no TPU' in report
    made_packages.install(tmp_path, 'tensorflow-tpu')
    report = reported(accelerators.packages)
    assert report.startswith('ok tensorflow and tensorflow-tpu are both')
    assert 'which has the files of tensorflow-tpu\n' in report

  def test_without_libtpu(self, tmp_path):
    made_packages.install(tmp_path, 'tensorflow-tpu')
    assert reported(accelerators.packages) == (
      'FAULT tensorflow-tpu is installed without libtpu make env TPU=1 '
      '(docs/tpu.md)'
    )

  def test_libtpu_for_jax(self, tmp_path):
    made_packages.install(tmp_path, 'tensorflow')
    made_packages.install_libtpu(tmp_path, '0.0.52', ())
    assert reported(accelerators.packages) == (
      'ok libtpu 0.0.52, for JAX only: it has no stream executor'
    )


@pytest.mark.slow  # a process of its own
@pytest.mark.parametrize(
  'words',
  ['doctor', 'transformer --model_dir=run --gin_file=sizes/tiny.gin'],
)
def test_an_import_that_would_abort(tmp_path, words):
  """Importing the made TensorFlow aborts the process, as the real one does."""
  folder = tmp_path / 'packages'
  made_packages.install(folder, 'tensorflow-tpu')
  made_packages.install_libtpu(folder, '0.0.52', ())
  done = as_command(
    tmp_path,
    MAIN,
    *words.split(),
    interpreter=['-S'],
    PYTHONPATH=f'{CHECKOUT}:{folder}',
    PYTHONHASHSEED='0',
  )
  output = done.stdout + done.stderr
  assert 'libtpu 0.0.52 lacks TpuExecutable_FreeMaybeOwningDevice' in output
  assert 'Traceback' not in output
  assert done.returncode == (1 if words == 'doctor' else 2)


@pytest.mark.slow  # processes of their own
@pytest.mark.parametrize(
  ('seconds', 'jax', 'finding'),
  [
    (1, 'import time\ntime.sleep(600)', 'has not listed its devices in 1 sec'),
    (300, 'import os\nos.abort()', 'fails with status -6: no message'),
    (300, 'raise OSError("no libtpu")', 'fails with status 1: OSError: no lib'),
  ],
)
def test_a_jax_that_does_not_answer(
  monkeypatch, tmp_path, seconds, jax, finding
):
  (tmp_path / 'jax.py').write_text(jax)
  monkeypatch.setenv('PYTHONPATH', str(tmp_path))
  monkeypatch.setattr(accelerators, '_SECONDS', seconds)
  assert f'note JAX {JAX} {finding}' in reported(accelerators.jax_devices)


SERVE = """
import sys
{}
import tensorflow as tf
print(tf.distribute.Server.create_local_server().target, flush=True)
sys.stdin.read()
"""


@pytest.mark.slow  # a process of its own
@pytest.mark.parametrize('imported', ['', 'import tensorflow_text'])
def test_a_worker_of_a_slice(monkeypatch, imported):
  assert not reported(accelerators.worker)  # there is none here
  with subprocess.Popen(
    [sys.executable, '-c', SERVE.format(imported)],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,
    text=True,
  ) as process:
    assert process.stdout is not None
    port = int(process.stdout.readline().rpartition(':')[2])
    monkeypatch.setattr(accelerators, '_WORKER', ('localhost', port))
    try:
      if imported:
        assert f'ok the TensorFlow server at localhost:{port}' in reported(
          accelerators.worker
        )
      else:
        with pytest.raises(UserError, match='import tensorflow_text'):
          reported(accelerators.worker)
    finally:
      process.kill()


def test_rows_are_compared_with_the_released(tmp_path):
  cb = b'{"premise": "a", "hypothesis": "b", "label": "neutral", "idx": 0}\n'
  write(tmp_path / 'superglue/CB/train.jsonl', cb * 250)
  write(tmp_path / 'superglue/CB/val.jsonl', cb * 50)
  write(tmp_path / 'glue/QQP/train.tsv', QQP + ROW + b'2\t3\t4\tA\t\t1\n')
  status, report = doctor(tmp_path)
  assert status == 0
  train, validation = cells(report, 'synth_super_glue_cb')
  assert train[1:6] == ['train', '250', 'as', 'released', '0']
  assert len(train[6]) == 16
  assert train[7:] == ['superglue/CB/train.jsonl']
  assert validation[2:6] == ['50', '6', 'missing', '0']
  assert "train.tsv:3: an empty 'question2'; kept" in report
  assert 'odd    ' in report
  assert 'synth_glue_qqp_v002 validation' in report.partition('missing: ')[2]
  assert report.count('released') == 2  # one line of headers
  assert report.endswith('No faults.\n')


def test_faults_are_listed(tmp_path):
  rows = QQP + ROW + ROW.replace(b'0\n', b'7\n') * 25
  path = write(tmp_path / 'glue/QQP/train.tsv', rows)
  broken = write(tmp_path / 'glue/RTE/train.tsv', b'sentence\tlabel\n')
  (tmp_path / 'corpus').mkdir()
  os.mkfifo(tmp_path / 'corpus/a.txt')
  status, report = doctor(tmp_path)
  assert status == 1
  (qqp,) = cells(report, 'synth_glue_qqp')
  assert qqp[2:6] == ['1', '363,848', 'missing', '25']
  assert f"{path}:3: the label '7'" in report
  assert f"{path}:22: the label '7'" in report
  assert f'{path}:23' not in report
  assert f'{path}: 25 faults; without the bad rows, 1 examples' in report
  assert f'{broken}:1: a first line' in report
  assert f'{tmp_path}/corpus/a.txt is a pipe' in report
  assert 'FAULT  the malformed rows above\n       -> Fix the file' in report
  assert report.endswith('\n1 fault.\n')


def test_many_files_are_one_line(tmp_path):
  for i in range(9):
    write(tmp_path / f'corpus/{i}.txt', b'A text, number %d.\n' % i)
  status, report = doctor(tmp_path)
  assert status == 0
  train, validation = cells(report, 'synth_text_span_corruption')
  names = [f'corpus/{i}.txt' for i in range(4)]
  assert train[-7:] == [*names, 'and', '5', 'more']
  assert int(train[2]) + int(validation[2]) == 9
  write(tmp_path / 'corpus/8.txt', b'A text, number 9.\n')
  again = cells(doctor(tmp_path)[1], 'synth_text_span_corruption')
  assert len(again[0][4]) == len(train[4]) == 16
  assert again[0][4] != train[4]
