"""The programs of `make tpu-compile` reach XLA."""

import subprocess
import sys

import pytest

from tests.conftest import CHECKOUT

pytestmark = pytest.mark.slow  # compiles or runs TPU programs


def test_a_layer_is_lowered(tmp_path):
  subprocess.run(
    [sys.executable, '-m', 'tests.tpu.lower', tmp_path, 'random']
    + ['--layers', '1'],
    cwd=CHECKOUT,
    capture_output=True,
    check=True,
  )
  hlo = (tmp_path / 'random.hlo').read_bytes()
  assert b'all-reduce' in hlo  # the sums across cores
