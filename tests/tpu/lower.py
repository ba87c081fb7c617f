"""Writes the training step of a TPU core as a serialized HloModule.

    python -m tests.tpu.lower --run pretrain_c4 FOLDER VARIANT [VARIANT ...]

writes FOLDER/VARIANT.hlo for each gin variant (SelfAttention is T5 itself): T5
(Base) as that file of gin/runs trains it except for the learning rate, with 32
sequences in one microbatch and bfloat16 activations. By default, two cores
share a copy of the model (batch:4,model:2 on v3-8). `tests/tpu/compile.py`
compiles them for a TPU.
"""

import argparse
import pathlib

import tensorflow.compat.v1 as tf
from absl import flags

from synth_mtf.pjrt.tpu_compiler import SLICES
from tests.tpu import replicas  # must precede the host's modules
from tests.tpu.program import BASE, TINY, Setting, Size, build, shipped


def write(
  variant: str,
  run: str,
  size: Size,
  layers: int,
  cores: int,
  mesh: str,
  folder: pathlib.Path,
) -> None:
  """Writes the program of one variant in a run."""
  _, packed = shipped(run)
  cores_per_chip = cores // 4
  flags.FLAGS.mark_as_parsed()
  flags.FLAGS.logical_cores_per_chip = cores_per_chip
  built = build(
    Setting(
      None if variant == 'SelfAttention' else variant,
      mesh=mesh,
      packed=packed,
      size=size,
      bindings=[
        f'num_layers = {layers}',
        # XLA counts the operations of a loop once, whatever its microbatches.
        'utils.serialize_num_microbatches.tokens_per_microbatch_per_replica = '
        'None',
      ],
      run=run,
    ),
    cores=cores_per_chip,
  )
  values = replicas.zeros(built)
  _, _, hlo = replicas.CoreProgram(built).lower(values, built.features)
  (folder / f'{variant}.hlo').write_bytes(hlo)


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.split('\n', 1)[0])
  parser.add_argument('folder', type=pathlib.Path)
  parser.add_argument('variants', nargs='+', metavar='VARIANT')
  parser.add_argument('--run', default='pretrain_c4')
  parser.add_argument('--slice', choices=SLICES, default='v3-8')
  parser.add_argument('--mesh', help='default: batch:CORES/2,model:2')
  parser.add_argument('--layers', type=int, default=12)
  parser.add_argument('--tiny', action='store_true', help='not T5 (Base)')
  arguments = parser.parse_args()
  tf.logging.set_verbosity(tf.logging.ERROR)
  arguments.folder.mkdir(parents=True, exist_ok=True)
  lengths, _ = shipped(arguments.run)
  size = TINY if arguments.tiny else BASE._replace(**lengths)
  cores = SLICES[arguments.slice].cores
  mesh = arguments.mesh or f'batch:{cores // 2},model:2'
  for variant in arguments.variants:
    write(
      variant,
      arguments.run,
      size,
      arguments.layers,
      cores,
      mesh,
      arguments.folder,
    )
    print(f'{variant}: lowered', flush=True)


if __name__ == '__main__':
  main()
