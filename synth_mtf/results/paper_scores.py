"""The paper's scores (arXiv 2005.00743, version 3), by column and model.

Tables 5 and 6 are here but for their DyConv rows, whose averages do not follow
from their cells; the averages of all others do, to the last digit but one. Of
the left half of Table 2 and of LM1B all rows are here whose models this package
has, and of Table 4 the speed over T5's of three. Tables 3, 7 and the rest of 4
are left out, since their figures could not be verified.
"""

from collections.abc import Mapping, Sequence

_T5 = ('T5 (V)', 'T5')
_R, _D, _DV, _RV = 'Syn (R)', 'Syn (D)', 'Syn (D+V)', 'Syn (R+V)'

_GLUE = (
  'GLUE', 'CoLA', 'SST', 'MRPC', 'STSB', 'QQP', 'MNLI', 'QNLI', 'GLUE RTE',
)  # fmt: skip
_SUPER_GLUE = (
  'SuperGLUE', 'BoolQ', 'CB', 'CoPA', 'MultiRC', 'ReCoRD', 'SuperGLUE RTE',
  'WiC', 'WSC',
)  # fmt: skip
_TRANSLATION = ('En-De', 'En-Fr')
_LM1B = ('LM1B',)
_SPEED = ('x T5',)

# Columns, and a row for each model.
_TABLES: Sequence[tuple[Sequence[str], Mapping[str, str]]] = (
  (
    _GLUE,
    {
      'T5': '83.5 53.1 92.2 92.0/88.7 89.1/88.9 88.2/91.2 84.7/85.0 91.7 76.9',
      _R: '75.1 41.2 91.2 85.9/79.4 74.0/74.3 85.5/89.0 77.6/78.1 87.6 59.2',
      _D: '72.0 18.9 89.9 86.4/79.4 75.3/75.5 85.2/88.3 77.4/78.1 86.9 57.4',
      _DV: '82.6 48.6 92.4 91.2/87.7 88.9/89.0 88.6/91.5 84.3/84.8 91.7 75.1',
      _RV: '84.1 53.3 92.2 91.2/87.7 89.3/88.9 88.6/91.4 85.0/84.6 92.3 81.2',
    },
  ),
  (
    _SUPER_GLUE,
    {
      'T5': '70.3 78.2 72.1/83.9 59.0 73.1/32.1 71.1/70.3 77.3 65.8 80.8',
      _R: '61.1 69.5 54.6/73.2 60.0 63.0/15.7 58.4/57.4 67.5 64.4 66.3',
      _D: '58.5 69.5 51.7/71.4 51.0 66.0/15.8 54.1/53.0 67.5 65.2 58.7',
      _DV: '69.7 79.3 74.3/85.7 64.0 73.8/33.7 69.9/69.2 78.7 64.3 68.3',
      _RV: '72.2 79.3 82.7/91.1 64.0 74.3/34.9 70.8/69.9 82.7 64.6 75.0',
    },
  ),
  (
    _TRANSLATION,
    {
      'T5': '27.67 41.57',
      'Syn (Fix)': '23.89 38.31',
      _R: '27.27 41.12',
      'Syn (FR)': '27.30 41.12',
      _D: '27.43 41.39',
      'Syn (FD)': '27.32 41.57',
      'Syn (R+D)': '27.68 41.21',
      _DV: '27.57 41.38',
      _RV: '28.47 42.05',
    },
  ),
  (
    _LM1B,
    {
      'T5': '38.21',
      'Syn (Fix)': '50.52',
      _R: '40.60',
      'Syn (FR)': '42.40',
      _D: '40.88',
      'Syn (FD)': '41.20',
      'Syn (R+D)': '42.35',
      _DV: '37.27',
      _RV: '40.05',
    },
  ),
  (_SPEED, {'T5': '1.00', _R: '1.09', _DV: '0.86', _RV: '0.97'}),
)


def _scores() -> dict[tuple[str, str], tuple[float, ...]]:
  return {
    (column, name): tuple(map(float, cell.split('/')))
    for columns, rows in _TABLES
    for model, cells in rows.items()
    for name in (_T5 if model == 'T5' else (model,))
    for column, cell in zip(columns, cells.split())
  }


# The figures of a column's measures, by the column's key and the model's name.
SCORES: Mapping[tuple[str, str], tuple[float, ...]] = _scores()
