"""Checks of arguments before TensorFlow is imported, which takes seconds.

`argparse` calls them as the `type` of an argument.
"""

import argparse
import os
import re
from collections.abc import Callable

from synth_mtf.errors import UserError, nearest
from synth_mtf.paths import gin_names


def at_least(least: int) -> Callable[[str], int]:
  """Returns a check that a number is whole and not below `least`."""

  def parse(text: str) -> int:
    if not text.isdecimal() or int(text) < least:
      raise argparse.ArgumentTypeError(
        f'{text!r}: expected a number, {least} or more'
      )
    return int(text)

  return parse


def existing(path: str) -> str:
  """Checks that a run or a checkpoint exists; a bucket is not checked."""
  is_bucket = '://' in path
  if is_bucket or os.path.lexists(path) or os.path.lexists(f'{path}.index'):
    return path
  parent, name = os.path.split(os.path.normpath(path))
  parent = parent or '.'
  siblings = os.listdir(parent) if os.path.isdir(parent) else []
  raise UserError(
    f'{path} does not exist{nearest(name, siblings)}; expected a model folder, '
    'the folder of a demo, or a checkpoint or file in one'
  )


def add_runs(
  parser: argparse.ArgumentParser,
  what: str = 'model folders of any command, folders of `synth-mtf demo`',
) -> None:
  """Adds the runs that a command reads."""
  parser.add_argument(
    'runs', nargs='+', type=existing, metavar='RUN', help=what
  )


def gin_name(folder: str) -> Callable[[str], str]:
  """Returns a check of names of gin files, joined by commas or `+`."""

  def check(names: str) -> str:
    known = gin_names(folder)
    for name in re.split('[,+]', names):
      file = f'{folder}/{name}.gin'
      if name not in known and not os.path.exists(file):
        hint = nearest(file, [f'{folder}/{other}.gin' for other in known])
        raise UserError(f"gin file '{file}' does not exist{hint}")
    return names

  return check
