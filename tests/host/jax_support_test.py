"""What brings JAX's support of GPUs and TPUs, and what to do if it lacks."""

import importlib
import sys

import pytest

from synth_mtf.host import jax_support, tpu_runtime
from tests.host import made_packages

CHIPS = tpu_runtime.Chips('v5e', 1, ['/dev/vfio/0'])
CUDA = 'jax-cuda12-plugin'


@pytest.fixture(autouse=True)
def packages(tmp_path, monkeypatch):
  """The folder of all installed packages."""
  monkeypatch.delenv('TPU_LIBRARY_PATH', raising=False)
  monkeypatch.delitem(sys.modules, 'libtpu', raising=False)
  monkeypatch.setattr(sys, 'path', [str(tmp_path)])
  importlib.invalidate_caches()
  return tmp_path


def test_the_command_without_jax():
  assert jax_support.install('tpu') == 'pip install "jax[tpu]"'


@pytest.mark.parametrize(
  ('kind', 'extra', 'version', 'links'),
  [
    ('tpu', 'tpu', '0.12.0.1', ''),
    ('tpu', 'tpu', '0.5.1', ''),
    (
      'tpu',
      'tpu',
      '0.4.30',
      ' -f https://storage.googleapis.com/jax-releases/libtpu_releases.html',
    ),
    ('gpu', 'cuda12', '0.4.30', ''),
  ],
)
def test_the_command_that_installs_it(packages, kind, extra, version, links):
  made_packages.describe(packages, 'jax', version)
  command = f'pip install "jax[{extra}]=={version}"{links}'
  assert jax_support.install(kind) == command
  assert jax_support.advice(kind) == (
    f"JAX's support of {kind.upper()}s is not installed: {command}"
  )


@pytest.mark.parametrize(
  ('installed', 'expected'),
  [
    ([], ['cuda', 'rocm']),
    ([CUDA], ['cuda', 'rocm']),
    (['jax-cuda13-plugin', 'jax-rocm7-plugin'], ['cuda', 'rocm']),
    (['jax-rocm60-plugin'], ['rocm', 'cuda']),
  ],
)
def test_which_gpus_are_likely(packages, installed, expected):
  for name in installed:
    made_packages.describe(packages, name, '0.6.2')
  assert jax_support.platforms('gpu') == expected
  assert jax_support.platforms('cpu') == ['cpu']
  assert jax_support.platforms('tpu') == ['tpu']


@pytest.mark.parametrize(
  ('name', 'version', 'advice'),
  [
    (CUDA, '0.6.2', 'is installed. Check that `nvidia-smi` lists'),
    (CUDA, '0.6.2.dev1', 'is installed. Check that `nvidia-smi` lists'),
    (CUDA, '0.6.1', 'with jaxlib 0.6.2: pip install "jax[cuda12]==0.6.2"'),
    ('jax-rocm60-plugin', '0.6.0', 'is installed. Check that `rocm-smi` lists'),
  ],
)
def test_installed_support_of_gpus(packages, name, version, advice):
  made_packages.describe(packages, 'jax', '0.6.2')
  made_packages.describe(packages, 'jaxlib', '0.6.2')
  made_packages.describe(packages, name, version)
  text = jax_support.advice('gpu')
  assert f'{name} {version} ' in text
  assert advice in text


@pytest.mark.parametrize(
  ('owner', 'chips', 'advice'),
  [
    (
      'ann',
      CHIPS,
      ', but /tmp/libtpu_lockfile belongs to ann. If ann does not',
    ),
    (None, None, ', but this machine has no TPU chip.'),
    (None, CHIPS, '. `synth-mtf doctor` lists the chips'),
  ],
)
def test_installed_support_of_tpus(packages, monkeypatch, owner, chips, advice):
  made_packages.install_libtpu(packages, '0.0.52', ())
  monkeypatch.setattr(tpu_runtime, 'lock_owner', lambda: owner)
  monkeypatch.setattr(tpu_runtime, 'chips', lambda: chips)
  text = jax_support.advice('tpu')
  assert text.startswith(f'libtpu 0.0.52 is installed{advice}')
  assert 'pip install' not in text
