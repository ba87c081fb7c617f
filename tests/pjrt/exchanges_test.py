"""What cores exchange, in a program of several devices."""

import json
import os
import sys

import numpy as np
import pytest

from tests.checkout import run


@pytest.mark.xla
@pytest.mark.slow  # in a process of its own, whose CPU has 4 devices
def test_slices_are_moved_shifted_and_joined():
  environment = {**os.environ, 'CUDA_VISIBLE_DEVICES': ''}
  done = run(sys.executable, '-m', 'tests.pjrt.exchanges', env=environment)
  found = json.loads(done.stdout.splitlines()[-1])
  assert {'all-reduce', 'all-to-all', 'collective-permute'} <= {
    *found.pop('opcodes')
  }
  whole = np.arange(32.0).reshape(4, 8)
  padded = np.concatenate([whole[3:], np.zeros([3, 8])])
  expected = {
    'moved': whole + 1,
    'turned': np.roll(whole, 1, axis=0),
    'shifted': padded,
  }
  for name, value in expected.items():
    assert len(found[name]) == 4
    for core in found[name]:
      np.testing.assert_array_equal(core, value, name)
