"""Puts back what commands set in the environment of this process."""

import os
from unittest import mock

import pytest


@pytest.fixture(autouse=True)
def _environment(tmp_path_factory):
  index = tmp_path_factory.getbasetemp() / 'index'
  with mock.patch.dict(os.environ, SYNTH_MTF_INDEX_DIR=str(index)):
    yield
