"""Prepares each process of the tests; `tests/fixtures.py` has the fixtures."""

import os
import pathlib
import shutil
import signal
import tempfile
from multiprocessing import util

import pytest

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent
_DATA_VARIABLE = 'SYNTH_MTF_TEST_DATA'
_given = os.environ.get(_DATA_VARIABLE)
REAL_DATA = pathlib.Path(_given).resolve() if _given else None

# Background processes ignore Ctrl-C, and so would every process that a test
# starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
  signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
  """Loads the fixtures, which import TensorFlow, where tests are collected.

  With `-n`, these are the processes that run them. The first process makes a
  temporary folder for all and removes it at exit. What they start runs this
  checkout, whatever is installed or on PYTHONPATH.
  """
  if REAL_DATA and not REAL_DATA.is_dir():
    raise pytest.UsageError(f'{_DATA_VARIABLE}={REAL_DATA} is not a folder')
  if 'PYTEST_XDIST_WORKER' not in os.environ:
    _make_a_temporary_folder()
  is_collected_elsewhere = (
    config.getoption('dist', 'no') != 'no' and not config.option.collectonly
  )
  if not is_collected_elsewhere:
    config.pluginmanager.import_plugin('tests.fixtures')


def _make_a_temporary_folder():
  paths = [str(CHECKOUT), os.environ.get('PYTHONPATH')]
  os.environ['PYTHONPATH'] = os.pathsep.join(filter(None, paths))
  os.environ.setdefault('PYTEST_DEBUG_TEMPROOT', tempfile.gettempdir())
  folder = tempfile.mkdtemp(prefix='synth-mtf-tests-')
  os.environ['TMPDIR'] = tempfile.tempdir = folder
  # After multiprocessing, which has folders inside.
  util.Finalize(None, shutil.rmtree, [folder, True], exitpriority=-1000)
