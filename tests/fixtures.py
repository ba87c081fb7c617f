"""Fixtures of all tests: a clean process, and data in the official formats."""

import collections
import gc
import logging as python_logging
import os
import pathlib
import random
import signal
import tempfile
from collections.abc import Iterator
from unittest import mock

import pytest

gc.set_threshold(200_000, 10, 10)  # imports make no garbage
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
# Without it, a TensorFlow for TPUs waits for the TPU of this machine.
os.environ.setdefault('TPU_LOAD_LIBRARY', '0')
# XLA compiles a training step in a quarter of the time, and the programs of
# tests are small. `tests/pjrt/losses.py` has XLA's own level.
_QUICK_XLA = '--xla_backend_optimization_level=0'
os.environ.setdefault('XLA_FLAGS', _QUICK_XLA)

from synth_mtf.host import patches, tpu_runtime, xla_flags

patches.prepare_host()

import gin
import numpy as np
import seqio
import tensorflow.compat.v1 as tf
from absl import flags, logging

# `import synth_mtf.checked` patches T5's main, which has to be there by then.
from t5.models import mesh_transformer_main  # noqa: F401

from synth_mtf.cpu import padding
from synth_mtf.results import standard_error
from synth_mtf.run import current, output
from synth_mtf.storage import remembered
from synth_mtf.tasks import cache_record, dialogue_metrics, vocabulary
from tests import forks, official_files
from tests.conftest import REAL_DATA

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_FAST_CASES = 2  # of a sampled test, in `make test-fast`
_cases_by_test: dict[str, list[pytest.Item]] = collections.defaultdict(list)

tf.logging.set_verbosity(tf.logging.ERROR)
tf.disable_v2_behavior()
tf.enable_resource_variables()
_VERBOSITY = logging.get_verbosity()  # some commands log errors only


@pytest.fixture(scope='session', autouse=True)
def _no_settings_of_the_user():
  """Hides the user's environment, and treats small products like T5's."""
  with pytest.MonkeyPatch.context() as patch:
    _remove_settings(patch)
    patch.setattr(padding, '_LEAST', 0)
    # No metric of a few examples is slow, however busy this machine is.
    patch.setattr(standard_error, '_MOST_SECONDS', 60.0)
    patch.setattr(xla_flags, 'fault', _fault_of_flags)
    yield


def _fault_of_flags(name, fault=xla_flags.fault):
  """Spares the processes that try the flags of these tests."""
  return None if os.environ.get(name) == _QUICK_XLA else fault(name)


@pytest.fixture(autouse=True)
def _no_settings_of_other_tests(monkeypatch):
  _remove_settings(monkeypatch)
  folder = pathlib.Path(tempfile.mkdtemp())  # inside that of all tests
  monkeypatch.setattr(remembered, 'folder', lambda: folder)
  random.seed(0)  # Mesh-TensorFlow and metrics draw from them
  np.random.seed(0)
  # seqio leaves it as it was when a data set failed.
  monkeypatch.setattr(seqio.utils, '_NEXT_MAP_SEED', None)
  # By path: the folders of tests that passed are removed, and their names used
  # again.
  vocabulary.load.cache_clear()
  seqio.vocabularies._load_model_internal.cache_clear()  # noqa: SLF001
  cache_record._read_once.cache_clear()  # noqa: SLF001
  dialogue_metrics._word_vectors.cache_clear()  # noqa: SLF001
  tf.summary.FileWriterCache.clear()
  cache_dirs = [*seqio.get_global_cache_dirs()]
  handlers = {number: signal.getsignal(number) for number in _SIGNALS}
  gin.clear_config()
  seqio.MixtureRegistry.names()  # removes the tasks of another test's files
  tf.reset_default_graph()  # random operations are seeded by their number
  tf.enable_resource_variables()
  # T5's main adds it, for good; then warnings also go to stderr.
  python_logging.root.removeHandler(logging.get_absl_handler())
  logging.set_verbosity(_VERBOSITY)
  tf.logging.set_verbosity(tf.logging.ERROR)
  flags.FLAGS.unparse_flags()
  with (
    mock.patch.dict(os.environ),  # commands set some for their processes
    current.begun(current.Run()),
  ):
    yield
  output.end_wait()  # of a command that failed
  for number, handler in handlers.items():
    signal.signal(number, handler)
  seqio.set_global_cache_dirs(cache_dirs)
  gin.clear_config()


def _remove_settings(patch):
  for name in list(os.environ):
    if name.startswith('SYNTH_MTF_') and not name.startswith('SYNTH_MTF_TEST_'):
      patch.delenv(name)


def pytest_collection_finish():
  """Keeps the garbage collector from scanning permanent objects."""
  gc.collect()
  gc.freeze()


def pytest_itemcollected(item):
  """Marks all but the first few cases of a sampled test as slow."""
  if not item.get_closest_marker('sampled'):
    return
  cases = _cases_by_test[item.nodeid.partition('[')[0]]
  cases.append(item)
  if len(cases) > _FAST_CASES:
    item.add_marker(pytest.mark.slow)


def pytest_collection_modifyitems(config, items):
  """Begins with slow files, and leaves out what cannot run here.

  Otherwise some workers would wait at the end for one with a slow file.
  """
  items.sort(key=lambda item: not item.parent.get_closest_marker('slow'))
  if tpu_runtime.has_runtime():
    skip = pytest.mark.skip(reason='no XLA for CPUs in a TensorFlow for TPUs')
    for item in items:
      if item.get_closest_marker('xla'):
        item.add_marker(skip)
  if REAL_DATA:
    return
  deselected = [item for item in items if 'real_data' in item.fixturenames]
  config.hook.pytest_deselected(items=deselected)
  items[:] = [item for item in items if item not in set(deselected)]


@pytest.fixture(scope='session')
def made_data(tmp_path_factory) -> pathlib.Path:
  """A folder of small files in the official formats."""
  folder = tmp_path_factory.mktemp('made')
  official_files.write(folder)
  return folder


@pytest.fixture(scope='session')
def real_data() -> pathlib.Path:
  """The folder of real benchmark files; without it, no test requests them."""
  assert REAL_DATA
  return REAL_DATA


_REAL = pytest.param('real_data', marks=pytest.mark.slow, id='real')
_MADE = pytest.param('made_data', id='made')


@pytest.fixture(
  scope='session', params=[_MADE, _REAL] if REAL_DATA else [_MADE]
)
def official_data(request) -> pathlib.Path:
  """Official files: generated ones, and the real ones if present."""
  return request.getfixturevalue(request.param)


@pytest.fixture(scope='session')
def some_data(request) -> pathlib.Path:
  """The real files if present, otherwise generated ones."""
  return request.getfixturevalue('real_data' if REAL_DATA else 'made_data')


@pytest.fixture(scope='session')
def programs() -> Iterator[pathlib.Path]:
  """A folder of `synth-mtf` and `t5_mesh_transformer`, which start at once.

  Like those in `cli.command.PROGRAM`'s folder, but for the time that imports
  take. One command of a file is that of the user, PROGRAM.
  """
  with forks.programs(*forks.IMPORTS) as folder:
    yield folder


@pytest.fixture(scope='session')
def t5(tmp_path_factory) -> str:
  """A checkpoint of a tiny plain T5."""
  from tests import model

  return model.write(tmp_path_factory.mktemp('t5'))
