"""Writes the training program of a TPU core as XLA's input.

    python -m tests.tpu.hlo FOLDER VARIANT [VARIANT ...]

writes FOLDER/VARIANT.hlo for T5 (Base), in bfloat16, on batch:4,model:2 of 8
cores; `tests/tpu/compile_hlo.py` gives them to the TPU compiler.
"""

import dataclasses
import pathlib
import sys

import numpy as np
import tensorflow.compat.v1 as tf

from tests.tpu import program, replicas

_LAYERS = 12


def write(variant: str, folder: pathlib.Path) -> None:
  """Writes the program of one variant."""
  size = dataclasses.replace(
    program.BASE,
    bindings=[*program.BASE.bindings, f'num_layers = {_LAYERS}'],
  )
  built = program.build(program.Setting(variant, size=size))
  with built.graph.as_default():
    variables = [*tf.global_variables(), *tf.get_collection('TPU_VAR')]
  # Only their shapes matter.
  values = {
    v.handle.op.name: np.zeros(v.shape, v.dtype.as_numpy_dtype)
    for v in variables
  }
  _, _, hlo = replicas.CoreProgram(built).lower(values, built.features)
  (folder / f'{variant}.hlo').write_bytes(hlo)


def main(words: list[str]) -> None:
  """Writes one program after the other."""
  tf.logging.set_verbosity(tf.logging.ERROR)
  folder = pathlib.Path(words[0])
  folder.mkdir(parents=True, exist_ok=True)
  for variant in words[1:]:
    write(variant, folder)
    print(f'{variant}: written', flush=True)


if __name__ == '__main__':
  main(sys.argv[1:])
