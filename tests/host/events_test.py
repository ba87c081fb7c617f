"""The event files that TensorBoard reads."""

import struct

import pytest
import tensorflow.compat.v1 as tf
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

from synth_mtf.host import events
from tests.results import made_runs


def test_an_event_that_asks_for_more_memory_than_there_is(tmp_path):
  """A record beyond its file's end, and a tensor of one value named 2^40."""
  made_runs.events(tmp_path, (1, {'loss': 5.0}))
  (path,) = tmp_path.iterdir()
  summary = tf.Summary()
  value = summary.value.add(tag='loss', tensor=tf.make_tensor_proto(2.0))
  for _ in range(2):
    value.tensor.tensor_shape.dim.add(size=2**20)
  event = tf.Event(step=2, summary=summary).SerializeToString()
  with tf.io.TFRecordWriter(str(tmp_path / 'record')) as writer:
    writer.write(event)
  with open(path, 'ab') as stream:
    stream.write((tmp_path / 'record').read_bytes())
    length = struct.pack('<Q', 2**40)
    stream.write(length + struct.pack('<I', masked_crc32c(length)))
  assert events.read(str(tmp_path)) == {'loss': {1: 5.0}}


@pytest.mark.parametrize(
  'changes',
  [
    *({'tensor_content': b'abc'}, {'tensor_content': b'abcdefgh'}),
    *(
      {'float_val': [1.0, 2.0, 3.0]},
      {'tensor_shape': {'dim': [{'size': -5}]}},
    ),
    *({'dtype': n} for n in (0, 99, tf.resource.as_datatype_enum)),
    {'dtype': tf.complex64.as_datatype_enum, 'scomplex_val': [1.0, 2.0]},
    {'dtype': tf.string.as_datatype_enum, 'string_val': [b'1.5']},
  ],
)
def test_a_tensor_that_is_no_number_is_skipped(tmp_path, changes):
  tensor = {'dtype': 1, 'tensor_shape': {'dim': [{'size': 1}]}, **changes}
  summary = tf.Summary(value=[{'tag': 'loss', 'tensor': tensor}])
  made_runs.events(tmp_path, (1, {'loss': 5.0}))
  (path,) = tmp_path.iterdir()
  with tf.io.TFRecordWriter(f'{path}.more') as writer:
    writer.write(tf.Event(step=2, summary=summary).SerializeToString())
  assert events.read(str(tmp_path)) == {'loss': {1: 5.0}}


@pytest.mark.parametrize('number', [2.5, [2.5]], ids=['scalar', 'of one'])
def test_numbers_that_tpus_write_as_tensors_are_read(tmp_path, number):
  tensor = tf.make_tensor_proto(number, tf.float32)
  pair = tf.make_tensor_proto([1.0, 2.0], tf.float32)
  summary = tf.Summary()
  summary.value.add(tag='loss', tensor=tensor)
  summary.value.add(tag='pair', tensor=pair)
  path = str(tmp_path / 'events.out.tfevents.1.host')
  with tf.io.TFRecordWriter(path) as writer:
    writer.write(tf.Event(step=2, summary=summary).SerializeToString())
  assert events.read(str(tmp_path)) == {'loss': {2: 2.5}}
