"""Numbers published in the paper (arXiv 2005.00743, version 3).

Only numbers that could be verified are included: Table 2 for the models in this
package, parameters and speed from Table 4, and Tables 5 and 6 without the
DyConv rows, whose printed averages do not follow from their cells. Table 3,
Table 7 and the rest of Table 4 are left out.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Optional

from synth_mtf.cost import Cost
from synth_mtf.results import printing
from synth_mtf.results.layouts import VANILLA


class System(NamedTuple):
  """A row of a table: the paper's name, and a cell per column or none at all.

  `size` and `variant` name gin files. Systems that have them are compared by
  trained parameters (in `millions`) and by `products`, as a multiple of the
  table's first system.
  """

  name: str
  scores: str = ''
  size: str = ''
  variant: str = ''
  millions: Optional[int] = None
  products: Optional[float] = None
  bindings: Sequence[str] = ()


class Table(NamedTuple):
  """A table of the paper; `columns` are keys of columns in `layouts`."""

  title: str
  columns: Sequence[str]
  systems: Sequence[System]
  inputs: int = 0
  targets: int = 0

  @property
  def costed(self) -> list[System]:
    """The systems whose costs are compared with the cost of the first."""
    return [system for system in self.systems if system.size]


# Kernels of seven taps, each shared by three channels; see dyconv.gin.
_SHARED_KERNELS = (
  'transformer_layers.DynamicConv1DLocalAttn.num_unique_depth_filters = 3'
)
_T5, _R, _D, _DV, _RV = 'T5', 'Syn (R)', 'Syn (D)', 'Syn (D+V)', 'Syn (R+V)'
_GLUE_COLUMNS = (
  'GLUE', 'CoLA', 'SST', 'MRPC', 'STSB', 'QQP', 'MNLI', 'QNLI', 'GLUE RTE',
)  # fmt: skip
_SUPER_GLUE_COLUMNS = (
  'SuperGLUE', 'BoolQ', 'CB', 'CoPA', 'MultiRC', 'ReCoRD', 'SuperGLUE RTE',
  'WiC', 'WSC',
)  # fmt: skip
_GLUE = {
  _T5: '83.5 53.1 92.2 92.0/88.7 89.1/88.9 88.2/91.2 84.7/85.0 91.7 76.9',
  _R: '75.1 41.2 91.2 85.9/79.4 74.0/74.3 85.5/89.0 77.6/78.1 87.6 59.2',
  _D: '72.0 18.9 89.9 86.4/79.4 75.3/75.5 85.2/88.3 77.4/78.1 86.9 57.4',
  _DV: '82.6 48.6 92.4 91.2/87.7 88.9/89.0 88.6/91.5 84.3/84.8 91.7 75.1',
  _RV: '84.1 53.3 92.2 91.2/87.7 89.3/88.9 88.6/91.4 85.0/84.6 92.3 81.2',
}
_SUPER_GLUE = {
  _T5: '70.3 78.2 72.1/83.9 59.0 73.1/32.1 71.1/70.3 77.3 65.8 80.8',
  _R: '61.1 69.5 54.6/73.2 60.0 63.0/15.7 58.4/57.4 67.5 64.4 66.3',
  _D: '58.5 69.5 51.7/71.4 51.0 66.0/15.8 54.1/53.0 67.5 65.2 58.7',
  _DV: '69.7 79.3 74.3/85.7 64.0 73.8/33.7 69.9/69.2 78.7 64.3 68.3',
  _RV: '72.2 79.3 82.7/91.1 64.0 74.3/34.9 70.8/69.9 82.7 64.6 75.0',
}

TABLES = (
  Table(
    "Table 2, translation of WMT'14 (6 + 6 layers of T2T's base)",
    ('En-De', 'En-Fr', 'LM1B'),
    (
      System('Transformer', '27.67 41.57 38.21', 'small', 'vanilla', 67),
      System('Transformer (Control)', '', 'small_plus', 'vanilla', 73),
      System('Syn (Fix)', '23.89 38.31 50.52', 'small', 'fixed_random', 61),
      System('Syn (R)', '27.27 41.12 40.60', 'small', 'random', 67),
      System('Syn (FR)', '27.30 41.12 42.40', 'small', 'factorized_random', 61),
      System('Syn (D)', '27.43 41.39 40.88'),
      System('Syn (FD)', '27.32 41.57 41.20'),
      System('Syn (R+D)', '27.68 41.21 42.35'),
      System('Syn (D+V)', '27.57 41.38 37.27'),
      System('Syn (R+V)', '28.47 41.85 40.05', 'small', 'random_vanilla', 73),
    ),
    inputs=256,
    targets=256,
  ),
  Table(
    'Table 4, pretraining on C4 (T5 Base)',
    ('x T5',),
    (
      System('T5 (Base)', '1.00', 'base', 'vanilla'),
      System('T5 (Base+)', '', 'base_plus', 'vanilla', 292),
      System('LightConv', '', 'base', 'lightconv', 224),
      System('DyConv', '', 'base', 'dyconv', 257, 1.06, [_SHARED_KERNELS]),
      System('DyConv, a kernel per channel', '', 'base', 'dyconv'),
      System('Syn (R)', '1.09'),
      System('Syn (D+V)', '0.86'),
      System('Syn (R+V)', '0.97'),
    ),
    inputs=512,
    targets=114,
  ),
  Table(
    'Table 5, GLUE',
    _GLUE_COLUMNS,
    [System(name, scores) for name, scores in _GLUE.items()],
  ),
  Table(
    'Table 6, SuperGLUE',
    _SUPER_GLUE_COLUMNS,
    [System(name, scores) for name, scores in _SUPER_GLUE.items()],
  ),
)

# The paper's numbers for a column's measures, by column key and model label.
SCORES: Mapping[tuple[str, str], tuple[float, ...]] = {
  (column, label): tuple(map(float, cell.split('/')))
  for table in TABLES
  for name, scores, *_ in table.systems
  for label in (
    VANILLA if name in ('Transformer', 'T5 (Base)', _T5) else [name]
  )
  for column, cell in zip(table.columns, scores.split())
}


def text(table: Table, costs: Sequence[Cost]) -> str:
  """Returns a text table of our costs, the paper's, and their differences."""
  rows = []
  for system, cost in zip(table.costed, costs):
    trained, products = cost.trained / 1e6, cost.flops / costs[0].flops
    row = [system.name, f'{trained:.1f} M', '-', '-', f'{products:.2f}', '-']
    if system.millions is not None:
      difference = trained - system.millions
      row[2:4] = f'{system.millions} M', f'{difference:+.1f} M'
    if system.products is not None:
      row[5] = f'{system.products:.2f}'
    rows.append(row)
  headers = ['', 'trained', 'paper', 'difference', 'products', 'paper']
  return f'{table.title}\n{printing.plain(headers, rows, "lrrrrr")}'
