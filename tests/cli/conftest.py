"""Keeps the row counts of the tests' files."""

import pytest


@pytest.fixture(autouse=True)
def _index(tmp_path_factory, monkeypatch):
  index = tmp_path_factory.getbasetemp() / 'index'
  monkeypatch.setenv('SYNTH_MTF_INDEX_DIR', str(index))
