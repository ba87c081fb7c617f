"""Memory and disk that run out: real ones, and what TensorFlow says of them."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.errors import UserError
from synth_mtf.host import errors


@pytest.mark.slow
def test_a_tensor_that_no_memory_holds():
  with (
    tf.Graph().as_default(),
    tf.Session() as session,
    pytest.raises(UserError, match='(?s)out of memory.*batch_size') as told,
    errors.explained(),
  ):
    size = tf.placeholder(tf.int64)
    session.run(tf.ones([size, size, size]), {size: 1 << 16})
  assert len(str(told.value).splitlines()) == 2


def test_memory_of_python():
  message = 'out of memory'
  with pytest.raises(UserError, match=message), errors.explained():
    np.ones(1 << 50)
  assert str(errors.explain(MemoryError())).startswith('out of memory')


def test_a_disk_that_is_full():
  with (
    pytest.raises(UserError, match=r'disk is full: .*No space left'),
    errors.explained(),
    open('/dev/full', 'w') as full,
  ):
    full.write('x' * 100_000)


def test_a_checkpoint_on_a_full_disk():
  """As TensorFlow's writer says it."""
  error = tf.errors.ResourceExhaustedError(
    None,
    None,
    'Graph execution error:\n\nDetected at node save/MergeV2Checkpoints\n'
    'runs/a/model.ckpt-7_temp/part-00000; No space left on device\n'
    '\t [[{{node save/MergeV2Checkpoints}}]]\n',
  )
  first, second = str(errors.explain(error)).splitlines()
  assert first == (
    'the disk is full: runs/a/model.ckpt-7_temp/part-00000; No space left on '
    'device'
  )
  assert 'keep_checkpoint_max' in second
