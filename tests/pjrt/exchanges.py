"""Runs a program of four cores whose layout moves, shifts and joins slices.

    python -m tests.pjrt.exchanges

prints what XLA's program exchanges, and its results, as a line of JSON.
"""

import json
import os

os.environ['XLA_FLAGS'] = '--xla_force_host_platform_device_count=4'
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')

from synth_mtf.host import patches

patches.prepare_host()

import mesh_tensorflow as mtf
import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.compiler.xla.service import hlo_pb2

from synth_mtf.pjrt import devices, mesh, placement, program

SHAPE = (4, 8)
MESH = 'rows:2,columns:2'
LAYOUT = 'a:rows,d:rows'  # `a` is the first dimension, `d` the second


def main() -> None:
  found = placement.Devices(devices.find('cpu'))
  inputs = mesh.Inputs.placeholders()
  variables = placement.Variables(found)
  graph = mtf.Graph()
  with mesh.used(inputs, variables, len(found), found.platform):
    mesh_impl = mesh.DeviceMesh(
      mtf.convert_to_shape(MESH),
      mtf.convert_to_layout_rules(LAYOUT),
      inputs,
      variables,
      mesh.Loops(),
    )
    cores = mtf.Mesh(graph, 'mesh')
    first = mtf.Dimension('a', SHAPE[0])
    whole = tf.placeholder(tf.float32, SHAPE, name='whole')
    x = mtf.import_tf_tensor(
      cores, whole, [first, mtf.Dimension('b', SHAPE[1])]
    )
    results = {
      'moved': named(x, 'c', 'd') + 1,
      'turned': mtf.shift(x, 1, first, wrap=True),
      'shifted': mtf.shift(x, -3, first, wrap=False),
    }
    joined = {name: named(y, 'e', 'f') for name, y in results.items()}
    lowering = mtf.Lowering(graph, {cores: mesh_impl})
    fetches = [lowering.export_to_tf_tensor(y) for y in joined.values()]
  lowered = program.lower(tf.get_default_graph(), fetches, [])
  module = hlo_pb2.HloModuleProto.FromString(lowered.hlo)
  opcodes = {
    instruction.opcode
    for computation in module.computations
    for instruction in computation.instructions
  }
  value = np.arange(np.prod(SHAPE), dtype=np.float32).reshape(SHAPE)
  values = dict(zip(['whole'], found.replicate([value]), strict=True))
  outputs = program.Executable(lowered, found)(values, {})
  print(
    json.dumps(
      {
        'opcodes': sorted(opcodes),
        **{
          name: [np.asarray(core).tolist() for core in on_cores]
          for name, on_cores in zip(joined, outputs, strict=True)
        },
      }
    )
  )


def named(x: mtf.Tensor, *names: str) -> mtf.Tensor:
  """The same tensor with dimensions of other names, and their layout."""
  return mtf.reshape(
    x,
    [
      mtf.Dimension(name, size) for name, size in zip(names, SHAPE, strict=True)
    ],
  )


if __name__ == '__main__':
  tf.disable_v2_behavior()
  tf.logging.set_verbosity(tf.logging.ERROR)
  main()
