"""Where a training run starts, given a checkpoint and its steps."""

import types
from typing import Any

import gin
import numpy as np
import pytest

from synth_mtf.checkpoints import files
from synth_mtf.errors import UserError
from synth_mtf.host import gin_files
from synth_mtf.run import checks


def start(path, steps, latest=None):
  gin_files.parse([], ["utils.get_variable_dtype.master_dtype = 'float32'"])
  run: Any = types.SimpleNamespace(
    init_checkpoint=path, dataset_split='train', train_steps=steps
  )
  folder: Any = types.SimpleNamespace(latest=lambda: latest)
  return checks.training_start(run, folder)


@pytest.fixture
def path(tmp_path):
  yield files.write(str(tmp_path / 'run'), 5, {'a': np.ones([2], np.float32)})
  gin.clear_config()


def test_a_run_that_starts_from_a_checkpoint_needs_more_steps(path):
  assert start(path, 6) == (path, True)
  for steps in (4, 5):
    with pytest.raises(UserError, match='already at step 5.*more than 5'):
      start(path, steps)
