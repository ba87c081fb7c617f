"""What the benchmarks of layers and models let one choose."""

import argparse
from typing import Optional


def parser(
  description: Optional[str], rounds: int, batch: int = 4
) -> argparse.ArgumentParser:
  """Returns a parser of what all of them take.

  Args:
    description: what --help says.
    rounds: the default of --rounds.
    batch: the default of --batch.
  """
  made = argparse.ArgumentParser(
    description=description,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  add = made.add_argument
  add('--size', default='base', help='a file of gin/sizes; of ours alone')
  add('--batch', type=int, default=batch)
  add('--length', type=int, default=512, help='tokens of the encoder')
  add('--rounds', type=int, default=rounds, help='timed runs of each')
  add('--json', help='file to write')
  return made
