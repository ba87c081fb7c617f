"""What of some models' attention a figure shows, where nobody has said."""

from collections.abc import Sequence
from typing import Optional

from synth_mtf.attention.file import SIDES, Attention
from synth_mtf.results.figures import style

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
  return style.chosen(layers, most, 'layer') or [
    *(_OF_THE_PAPER if most >= _OF_THE_PAPER[-1] else range(1, most + 1))
  ]


def looks(
  attentions: Sequence[Attention],
) -> list[tuple[str, style.Look]]:
  """Name and look of each: colours are variants, dashes steps, if several."""
  labels = list(dict.fromkeys(one.label for one in attentions))
  steps = sorted({one.step for one in attentions}, reverse=True)
  found = []
  for one in attentions:
    name, of_it = one.label, style.look(labels.index(one.label))
    if len(steps) > 1:
      name = f'{name}, step {one.step}'
      dash = style.DASHES[steps.index(one.step) % len(style.DASHES)]
      of_it = of_it._replace(linestyle=dash)
    found.append((name, of_it))
  return found
