"""A table as Markdown that is aligned as text, too."""

from synth_mtf.demo import table

COLUMNS = [
  ('Model', ['V', 'R']),
  ('CoLA', ['1.0', '22.0']),
  ('SST', ['3', '4']),
]


def test_markdown():
  assert table.markdown(COLUMNS).splitlines() == [
    '| Model | CoLA | SST |',
    '|-------|-----:|----:|',
    '| V     |  1.0 |   3 |',
    '| R     | 22.0 |   4 |',
  ]


def test_a_narrow_terminal_gets_pieces_with_the_models_names():
  assert table.folded(COLUMNS, 80) == table.markdown(COLUMNS)
  pieces = table.folded(COLUMNS, 18).split('\n\n')
  assert pieces == [
    table.markdown([COLUMNS[0], COLUMNS[1]]),
    table.markdown([COLUMNS[0], COLUMNS[2]]),
  ]
