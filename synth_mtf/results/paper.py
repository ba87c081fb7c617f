"""Figures of arXiv 2005.00743 that a model's cost can be held against.

Only those that were read in the paper or follow from it; the others of these
tables are left out.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Optional

from synth_mtf.cost import Cost


@dataclasses.dataclass(frozen=True)
class System:
  """A row of a table.

  Attributes:
    name: of the system, as the paper has it.
    size: its gin file in `sizes/`.
    variant: its gin file in `variants/`.
    millions: of trained parameters.
    products: operations, over those of the table's first system.
    bindings: gin's, beside its files.
  """

  name: str
  size: str
  variant: str
  millions: Optional[int] = None
  products: Optional[float] = None
  bindings: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Table:
  """Some rows of a table of the paper.

  Attributes:
    title: what it is.
    lengths: of inputs and targets.
    max_length: of the tables.
    systems: the rows; the first one is what the others are compared with.
  """

  title: str
  lengths: Mapping[str, int]
  max_length: int
  systems: Sequence[System]


_SHARED_KERNELS = (
  'transformer_layers.DynamicConv1DLocalAttn.num_unique_depth_filters'
)

TABLES = (
  Table(
    "Table 2, translation of WMT'14 (6 + 6 layers of T2T's base)",
    {'inputs': 256, 'targets': 256},
    256,
    (
      System('Transformer', 'small', 'vanilla', 67),
      System('Transformer (Control)', 'small_plus', 'vanilla', 73),
      System('Syn (Fix)', 'small', 'fixed_random', 61),
      System('Syn (R)', 'small', 'random', 67),
      System('Syn (FR)', 'small', 'factorized_random', 61),
      System('Syn (R+V)', 'small', 'random_vanilla', 73),
    ),
  ),
  Table(
    'Table 4, pretraining on C4 (T5 Base)',
    {'inputs': 512, 'targets': 114},
    512,
    (
      System('T5 (Base)', 'base', 'vanilla'),
      System('T5 (Base+)', 'base_plus', 'vanilla', 292),
      System('LightConv', 'base', 'lightconv', 224),
      # Seven taps, each with a kernel for three channels: see dyconv.gin.
      System('DyConv', 'base', 'dyconv', 257, 1.06, [f'{_SHARED_KERNELS} = 3']),
      System('DyConv, a kernel a channel', 'base', 'dyconv'),
    ),
  ),
)


def text(table: Table, costs: Sequence[Cost]) -> str:
  """A table beside the costs of its systems, with the difference."""
  first = costs[0]
  lines = [
    table.title,
    f'{"":28}{"trained":>10}{"paper":>10}{"difference":>12}'
    f'{"products":>10}{"paper":>10}',
  ]
  for system, cost in zip(table.systems, costs):
    ours = cost.trained / 1e6
    there, apart = '-', '-'
    if system.millions is not None:
      there, apart = f'{system.millions} M', f'{ours - system.millions:+.1f} M'
    ratio = '-' if system.products is None else f'{system.products:.2f}'
    lines.append(
      f'{system.name:28}{ours:>8.1f} M{there:>10}{apart:>12}'
      f'{cost.flops / first.flops:>10.2f}{ratio:>10}'
    )
  return '\n'.join(lines)
