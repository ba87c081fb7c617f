"""What a test leaves in its process, no other test finds."""

import logging
import os
import random
import signal

import absl.logging
import gin
import pytest
import seqio
import tensorflow.compat.v1 as tf
from absl import flags

from synth_mtf import tasks
from synth_mtf.run import current

TASK = """
name: left
files: {train: a.tsv}
inputs: '{q}'
targets: '{a}'
metrics: [accuracy]
"""


def state():
  """What tests of a process share."""
  return {
    'outcome': current.run().outcome.result,
    'environment': {n: v for n, v in os.environ.items() if 'SYNTH_MTF' in n},
    'gin': gin.config_str(),
    'caches': [*seqio.get_global_cache_dirs()],
    'tasks': [n for n in seqio.TaskRegistry.names() if n == 'left'],
    'graph': len(tf.get_default_graph().get_operations()),
    'flags': flags.FLAGS.is_parsed(),
    'signals': [*map(signal.getsignal, (signal.SIGINT, signal.SIGTERM))],
    'handlers': [
      type(handler).__name__
      for handler in logging.root.handlers
      if handler is absl.logging.get_absl_handler()
    ],
    'verbosity': [absl.logging.get_verbosity(), tf.logging.get_verbosity()],
    'random': hash(random.getstate()),
  }


@pytest.fixture(scope='module')
def found():
  return []


@pytest.mark.parametrize('case', [0, 1])
def test_each_test_finds_the_same(found, tmp_path, case):
  found.append(state())
  assert found[-1] == found[0]

  current.run().outcome.result = 'step 1'
  os.environ['SYNTH_MTF_DATA_DIR'] = str(tmp_path)
  (tmp_path / 'task.yaml').write_text(TASK)
  (tmp_path / 'a.tsv').write_text('q\ta\none\ttwo\n')
  os.environ['SYNTH_MTF_TASK_FILE'] = str(tmp_path / 'task.yaml')
  assert tasks.get('left')
  gin.bind_parameter('utils.run.batch_size', 8)
  seqio.add_global_cache_dirs([str(tmp_path)])
  tf.constant(1)
  flags.FLAGS.mark_as_parsed()
  signal.signal(signal.SIGTERM, signal.default_int_handler)
  absl.logging.use_absl_handler()
  absl.logging.set_verbosity(absl.logging.FATAL)
  tf.logging.set_verbosity(tf.logging.DEBUG)
  random.random()
  left = state()
  assert not [name for name in left if left[name] == found[0][name]]
