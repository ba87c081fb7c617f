"""The protocol messages of a checkpoint's files.

TensorFlow's own modules for them import all of TensorFlow. The names, numbers
and types of the fields are those of its tensor_bundle.proto and
checkpoint_state.proto.
"""

from typing import Any

from google.protobuf import (
  descriptor_pb2,
  descriptor_pool,
  message_factory,
)
from tensorboard.compat.proto import (
  tensor_shape_pb2,
  versions_pb2,
)

_Field = descriptor_pb2.FieldDescriptorProto
_SHAPE, _VERSIONS = 'tensorboard.TensorShapeProto', 'tensorboard.VersionDef'
_SLICE = 'tensorboard.TensorSliceProto'
_FIELDS = {
  'BundleHeaderProto': [
    _Field(name='num_shards', number=1, type=_Field.TYPE_INT32),
    _Field(name='endianness', number=2, type=_Field.TYPE_INT32),
    _Field(
      name='version', number=3, type=_Field.TYPE_MESSAGE, type_name=_VERSIONS
    ),
  ],
  'BundleEntryProto': [
    _Field(name='dtype', number=1, type=_Field.TYPE_INT32),
    _Field(name='shape', number=2, type=_Field.TYPE_MESSAGE, type_name=_SHAPE),
    _Field(name='shard_id', number=3, type=_Field.TYPE_INT32),
    _Field(name='offset', number=4, type=_Field.TYPE_INT64),
    _Field(name='size', number=5, type=_Field.TYPE_INT64),
    _Field(name='crc32c', number=6, type=_Field.TYPE_FIXED32),
    _Field(
      name='slices',
      number=7,
      type=_Field.TYPE_BYTES,
      label=_Field.LABEL_REPEATED,
    ),
  ],
  'CheckpointState': [
    _Field(name='model_checkpoint_path', number=1, type=_Field.TYPE_STRING),
    _Field(
      name='all_model_checkpoint_paths',
      number=2,
      type=_Field.TYPE_STRING,
      label=_Field.LABEL_REPEATED,
    ),
    _Field(
      name='all_model_checkpoint_timestamps',
      number=3,
      type=_Field.TYPE_DOUBLE,
      label=_Field.LABEL_REPEATED,
    ),
    _Field(name='last_preserved_timestamp', number=4, type=_Field.TYPE_DOUBLE),
  ],
}


def _classes() -> dict[str, Any]:
  """Makes a class of each message."""
  file = descriptor_pb2.FileDescriptorProto(
    name='synth_mtf/checkpoints.proto',
    package='synth_mtf',
    syntax='proto3',
    dependency=[
      tensor_shape_pb2.DESCRIPTOR.name,
      versions_pb2.DESCRIPTOR.name,
    ],
  )
  for name, fields in _FIELDS.items():
    file.message_type.add(name=name, field=fields)
  pool = descriptor_pool.Default()
  pool.Add(file)
  return {
    name: message_factory.GetMessageClass(
      pool.FindMessageTypeByName(f'{file.package}.{name}')
    )
    for name in _FIELDS
  }


_CLASSES = _classes()
BundleHeader = _CLASSES['BundleHeaderProto']
BundleEntry = _CLASSES['BundleEntryProto']
CheckpointState = _CLASSES['CheckpointState']
