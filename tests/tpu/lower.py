"""Writes the training step of a TPU core as a serialized HloModule.

    python -m tests.tpu.lower --run pretrain_c4 FOLDER VARIANT [VARIANT ...]

writes FOLDER/VARIANT.hlo for each gin variant (SelfAttention is T5 itself): T5
(Base) as that file of gin/runs trains it except for the learning rate, with 32
sequences in one microbatch and bfloat16 activations, on batch:4,model:2 of 8
cores. `tests/tpu/compile.py` compiles them for a TPU.
"""

import argparse
import pathlib

import numpy as np
import tensorflow.compat.v1 as tf

from tests.tpu import replicas  # must precede the host's modules
from tests.tpu.program import BASE, Setting, build, shipped


def write(variant: str, run: str, layers: int, folder: pathlib.Path) -> None:
  """Writes the program of one variant in a run."""
  lengths, packed = shipped(run)
  built = build(
    Setting(
      None if variant == 'SelfAttention' else variant,
      packed=packed,
      size=BASE._replace(**lengths),
      bindings=[
        f'num_layers = {layers}',
        # XLA counts the operations of a loop once, whatever its microbatches.
        'utils.serialize_num_microbatches.tokens_per_microbatch_per_replica = '
        'None',
      ],
      run=run,
    )
  )
  variables = replicas.variables(built)
  # Only their shapes matter.
  values = {
    v.handle.op.name: np.zeros(v.shape, v.dtype.as_numpy_dtype)
    for v in variables
  }
  _, _, hlo = replicas.CoreProgram(built).lower(values, built.features)
  (folder / f'{variant}.hlo').write_bytes(hlo)


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.split('\n', 1)[0])
  parser.add_argument('folder', type=pathlib.Path)
  parser.add_argument('variants', nargs='+', metavar='VARIANT')
  parser.add_argument('--run', default='pretrain_c4')
  parser.add_argument('--layers', type=int, default=12)
  arguments = parser.parse_args()
  tf.logging.set_verbosity(tf.logging.ERROR)
  arguments.folder.mkdir(parents=True, exist_ok=True)
  for variant in arguments.variants:
    write(variant, arguments.run, arguments.layers, arguments.folder)
    print(f'{variant}: lowered', flush=True)


if __name__ == '__main__':
  main()
