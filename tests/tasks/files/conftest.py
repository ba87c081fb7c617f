"""The folder of the official files that a test writes."""

import pathlib

import gin
import pytest


@pytest.fixture
def data_dir(tmp_path) -> pathlib.Path:
  folder = tmp_path / 'data'
  gin.bind_parameter('synth_mtf.tasks.settings.data_dir', str(folder))
  return folder
