"""What this machine has for TPUs, found without importing TensorFlow."""

import fcntl
import importlib
import os
import subprocess
import sys

import pytest

from synth_mtf.errors import UserError
from synth_mtf.host import tpu_runtime
from tests.host import made_packages


@pytest.fixture
def packages(tmp_path, monkeypatch):
  """The folder of all installed packages; TensorFlow is not imported yet."""
  for name in ('TPU_LOAD_LIBRARY', 'TPU_LIBRARY_PATH', 'TPU_ACCELERATOR_TYPE'):
    monkeypatch.delenv(name, raising=False)
  monkeypatch.setenv('TPU_SKIP_MDS_QUERY', '')
  monkeypatch.delenv('TPU_SKIP_MDS_QUERY')  # restored after the test
  monkeypatch.delitem(sys.modules, 'tensorflow')
  monkeypatch.delitem(sys.modules, 'libtpu', raising=False)
  monkeypatch.setattr(sys, 'path', [str(tmp_path)])
  importlib.invalidate_caches()
  return tmp_path


@pytest.mark.parametrize(
  ('version', 'functions', 'lacks'),
  [
    ('0.0.21', made_packages.FUNCTIONS, ''),
    ('0.0.33', made_packages.FUNCTIONS[1:], 'TpuExecutable_FreeMaybe'),
    ('0.0.43', (), 'TpuExecutable_FreeMaybe'),
    # A longer name is another function.
    (
      '0.0.33',
      (made_packages.FUNCTIONS[0] + b'2', made_packages.FUNCTIONS[1]),
      'TpuExecutable_FreeMaybe',
    ),
    (
      '0.0.33',
      made_packages.FUNCTIONS[:1],
      'ConfigureDistributedTpuOp_DoWork',
    ),
  ],
)
def test_a_libtpu_that_would_abort_the_import(
  packages, version, functions, lacks
):
  made_packages.install(packages, 'tensorflow-tpu')
  made_packages.install_libtpu(packages, version, functions)
  if not lacks:
    tpu_runtime.prepare_import()
    return
  with pytest.raises(
    UserError,
    match=rf'^libtpu {version} lacks {lacks}.*TensorFlow 2\.20\.0.*pip install '
    r'libtpu==0\.0\.21\. .*TPU_LOAD_LIBRARY=0\.$',
  ):
    tpu_runtime.prepare_import()


class TestAnImportThatDoesNotAbort:
  @pytest.fixture(autouse=True)
  def _new_libtpu(self, packages):
    made_packages.install_libtpu(packages, '0.0.52', ())

  def test_without_a_tpu_runtime(self, packages):
    made_packages.install(packages, 'tensorflow')
    tpu_runtime.prepare_import()

  def test_that_was_overwritten(self, packages):
    made_packages.install(packages, 'tensorflow-tpu')
    made_packages.install(packages, 'tensorflow')
    assert tpu_runtime.are_mixed()
    assert tpu_runtime.package() == 'tensorflow'
    tpu_runtime.prepare_import()
    made_packages.install(packages, 'tensorflow-tpu')
    assert tpu_runtime.package() == 'tensorflow-tpu'
    with pytest.raises(UserError, match='would abort'):
      tpu_runtime.prepare_import()

  def test_that_does_not_load_libtpu(self, packages, monkeypatch):
    made_packages.install(packages, 'tensorflow-tpu')
    monkeypatch.setenv('TPU_LOAD_LIBRARY', '0')
    tpu_runtime.prepare_import()

  def test_that_loads_another_libtpu(self, packages, monkeypatch):
    made_packages.install(packages, 'tensorflow-tpu')
    other = made_packages.install_libtpu(
      packages / 'other', '0.0.21', made_packages.FUNCTIONS
    )
    monkeypatch.setenv('TPU_LIBRARY_PATH', str(other))
    tpu_runtime.prepare_import()
    assert tpu_runtime.described_libtpu(other) == str(other)
    other.write_bytes(b'\0')
    with pytest.raises(UserError, match=f'^{other} lacks '):
      tpu_runtime.prepare_import()

  @pytest.mark.parametrize('files', [[], ['/dev/accel0']])
  def test_without_a_tpu_asks_no_metadata_server(
    self, packages, monkeypatch, files
  ):
    made_packages.install(packages, 'tensorflow-tpu')
    made_packages.install_libtpu(packages, '0.0.21', made_packages.FUNCTIONS)
    monkeypatch.setattr(tpu_runtime, '_device_files', lambda root: files)
    tpu_runtime.prepare_import()
    expected = None if files else '1'
    assert os.environ.get('TPU_SKIP_MDS_QUERY') == expected

  def test_that_has_happened(self, packages, monkeypatch):
    made_packages.install(packages, 'tensorflow-tpu')
    monkeypatch.setitem(sys.modules, 'tensorflow', pytest)
    tpu_runtime.prepare_import()


def test_nothing_is_installed(packages):
  assert tpu_runtime.package() is None
  assert not tpu_runtime.are_mixed()
  assert tpu_runtime.libtpu() is None


def add_device(root, address, vendor, device):
  folder = root / 'sys' / 'bus' / 'pci' / 'devices' / address
  folder.mkdir(parents=True)
  (folder / 'vendor').write_text(f'{vendor}\n')
  (folder / 'device').write_text(f'{device}\n')


@pytest.mark.parametrize(
  ('device', 'generation', 'has_stream_executor'),
  [
    ('0x0027', 'v2 or v3', True),
    ('0x005e', 'v4', True),
    ('0x0062', 'v5p', False),
    ('0x0063', 'v5e', False),
    ('0x006f', 'v6e', False),
    ('0x0076', 'TPU7x', False),
  ],
)
def test_chips_on_the_bus(tmp_path, device, generation, has_stream_executor):
  add_device(tmp_path, '0000:00:03.0', '0x8086', device)  # not Google's
  add_device(tmp_path, '0000:00:04.0', '0x1ae0', '0x0042')  # a network card
  assert tpu_runtime.chips(str(tmp_path)) is None
  for number in (5, 6):
    add_device(tmp_path, f'0000:00:0{number}.0', '0x1ae0', device)
    (tmp_path / 'dev').mkdir(exist_ok=True)
    (tmp_path / 'dev' / f'accel{number - 5}').touch()
  chips = tpu_runtime.chips(str(tmp_path))
  assert chips == (generation, 2, ['/dev/accel0', '/dev/accel1'])
  assert chips.has_stream_executor is has_stream_executor


@pytest.mark.parametrize(
  ('given', 'generation'),
  [
    ('v3-8', 'v2 or v3'),
    ('v4-16', 'v4'),
    ('v5litepod-8', 'v5e'),
    ('v5p-8', 'v5p'),
    ('v6e-8', 'v6e'),
    ('', None),
    ('gpu', None),
  ],
)
def test_chips_named_by_the_environment(
  tmp_path, monkeypatch, given, generation
):
  monkeypatch.setenv('TPU_ACCELERATOR_TYPE', given)
  (tmp_path / 'dev' / 'vfio').mkdir(parents=True)
  for name in ('0', 'vfio'):
    (tmp_path / 'dev' / 'vfio' / name).touch()
  chips = tpu_runtime.chips(str(tmp_path))
  assert chips == ((generation, 0, ['/dev/vfio/0']) if generation else None)


@pytest.mark.slow  # a process that holds the lock
def test_the_process_that_holds_the_lock(tmp_path):
  lock = str(tmp_path / 'lock')
  assert tpu_runtime.lock_holder(lock) is None
  hold = (
    'import fcntl, sys\n'
    f'file = open({lock!r}, "w")\n'
    'fcntl.lockf(file, fcntl.LOCK_EX)\n'
    'print("held", flush=True)\n'
    'sys.stdin.read()\n'
  )
  with subprocess.Popen(
    [sys.executable, '-c', hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE
  ) as process:
    assert process.stdout and process.stdout.readline() == b'held\n'
    assert tpu_runtime.lock_holder(lock) == process.pid
    process.communicate(b'')
  assert tpu_runtime.lock_holder(lock) is None
  with open(lock, 'w') as file:  # a process does not exclude itself
    fcntl.lockf(file, fcntl.LOCK_EX)
    assert tpu_runtime.lock_holder(lock) is None


def test_the_owner_of_a_lock_that_others_cannot_open(tmp_path, monkeypatch):
  lock = tmp_path / 'lock'
  assert tpu_runtime.lock_owner(str(lock)) is None
  lock.touch()
  assert tpu_runtime.lock_owner(str(lock)) is None
  monkeypatch.setattr(os, 'access', lambda *_: False)  # root opens every file
  assert tpu_runtime.lock_owner(str(lock)) == lock.owner()


def test_whether_tensorflow_has_a_tpu_runtime():
  is_for_tpus = tpu_runtime.package() == 'tensorflow-tpu'
  assert tpu_runtime.has_runtime() is is_for_tpus
