"""Where a training run starts, given a checkpoint and its steps."""

import os
import types
from typing import Any

import gin
import numpy as np
import pytest

from synth_mtf.checkpoints import files
from synth_mtf.checkpoints.folder import Folder
from synth_mtf.errors import UserError
from synth_mtf.host import gin_files
from synth_mtf.run import checks


def start(path, steps, folder):
  gin_files.parse([], ["utils.get_variable_dtype.master_dtype = 'float32'"])
  run: Any = types.SimpleNamespace(
    init_checkpoint=path, dataset_split='train', train_steps=steps
  )
  return checks.training_start(run, Folder(str(folder)))


@pytest.fixture
def path(tmp_path):
  yield files.write(str(tmp_path / 'run'), 5, {'a': np.ones([2], np.float32)})
  gin.clear_config()


def test_a_run_that_starts_from_a_checkpoint_needs_more_steps(path, tmp_path):
  new = tmp_path / 'new'
  assert start(path, 6, new) == (path, True)
  for steps in (4, 5):
    with pytest.raises(UserError, match='already at step 5.*more than 5'):
      start(path, steps, new)


def test_a_run_at_its_last_step_resumes_and_ends(path):
  folder = os.path.dirname(path)
  assert start(None, 5, folder) == (path, False)
  with pytest.raises(UserError, match='already at step 5.*more than 5'):
    start(None, 4, folder)
