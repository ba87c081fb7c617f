"""What `synth-mtf doctor` prints: one finding for each check."""

from typing import NamedTuple


class Finding(NamedTuple):
  """What a check found: a mark ('ok', 'note' or 'FAULT'), and how to fix it."""

  mark: str
  text: str
  fix: str = ''


def counted(number: int | str, noun: str) -> str:
  """Returns a number and its noun, in the plural unless the number is 1."""
  return f'{number} {noun}' if number == 1 else f'{number} {noun}s'
