"""What of some models' attention a figure shows, where nobody has said."""

from collections.abc import Sequence
from typing import Optional

from synth_mtf.analysis.attention_file import SIDES, Attention
from synth_mtf.errors import UserError

_OF_THE_PAPER = (1, 3, 5)


def stacks_of(attentions: Sequence[Attention]) -> list[str]:
  """The stacks that at least one of them has, in their order."""
  return [name for name in SIDES if any(name in a.stacks for a in attentions)]


def layers_shown(
  attentions: Sequence[Attention], layers: Optional[Sequence[int]] = None
) -> list[int]:
  """The numbers of layers, from 1 on: those given, or the paper's 1, 3, 5.

  Where there are fewer than five, it is all of them.

  Raises:
    UserError: one is given that no stack has.
  """
  most = max(stack.layers for a in attentions for stack in a.stacks.values())
  return chosen(layers, most, 'layer') or [
    *(_OF_THE_PAPER if most >= _OF_THE_PAPER[-1] else range(1, most + 1))
  ]


def chosen(numbers: Optional[Sequence[int]], most: int, what: str) -> list[int]:
  """The given numbers, which count from 1.

  Raises:
    UserError: one is not there.
  """
  wrong = [number for number in numbers or () if not 1 <= number <= most]
  if wrong:
    raise UserError(f'there is no {what} {wrong[0]}; there are 1 to {most}')
  return list(numbers or ())
