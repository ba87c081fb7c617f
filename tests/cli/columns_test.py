"""Lines of a table."""

from synth_mtf.cli import columns


def test_cells_side_by_side():
  assert columns.line(['ab', '1', 'c'], [4, -3, 5]) == 'ab      1  c'
  assert columns.line(['longer', '1234'], [4, -3]) == 'longer  1234'


def test_numbers():
  assert columns.count(1234567) == '1,234,567'
  assert columns.count(0) == '0'
  assert columns.count(None) == '?'
