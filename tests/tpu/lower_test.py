"""XLA accepts the programs of `make tpu-compile`."""

import subprocess
import sys

import pytest

from tests.conftest import CHECKOUT
from tests.tpu import program

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


def test_programs_are_of_runs_as_shipped():
  lengths, packed = program.shipped('pretrain_c4')
  assert (lengths, packed) == ({'inputs': 512, 'targets': 114}, False)
  lengths, packed = program.shipped('finetune_en_mix')
  assert lengths['inputs'] == 512 and not packed
  _, packed = program.shipped('translate')  # which leaves it to the host
  assert packed
