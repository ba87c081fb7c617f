"""Compiles programs for the cores of a TPU without one, and prints their costs.

    python -m tests.tpu.compile [--slice v3-8] FOLDER VARIANT [VARIANT ...]

reads FOLDER/VARIANT.hlo, written by `tests/tpu/lower.py` for that slice, and
prints a table of the compiler's figures for one core. The compiler is in an
environment of its own, with tests/tpu/requirements.txt.
"""

import argparse
import pathlib

from synth_mtf.pjrt import fitting
from synth_mtf.pjrt.tpu_compiler import SLICES


def main() -> None:
  """Prints a row for each program."""
  parser = argparse.ArgumentParser(description=__doc__.split('\n', 1)[0])
  parser.add_argument('folder', type=pathlib.Path)
  parser.add_argument('variants', nargs='+', metavar='VARIANT')
  parser.add_argument('--slice', choices=SLICES, default='v3-8')
  arguments = parser.parse_args()
  print('| variant | GFLOP | GB accessed | MB of temporary memory | s |')
  print('|---|---|---|---|---|')
  for variant in arguments.variants:
    hlo = (arguments.folder / f'{variant}.hlo').read_bytes()
    (found,) = fitting.figures([hlo], arguments.slice)
    if 'error' in found:
      print(f'| {variant} | {found["error"]} |', flush=True)
      continue
    print(
      f'| {variant} | {found["flops"] / 1e9:.1f} | '
      f'{found["bytes_accessed"] / 1e9:.2f} | '
      f'{found["temporary"] / 1e6:.0f} | {found["seconds"]:.0f} |',
      flush=True,
    )


if __name__ == '__main__':
  main()
