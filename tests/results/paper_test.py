"""Figures of the paper beside those that are counted."""

import pathlib

import pytest

from synth_mtf.cost import Cost
from synth_mtf.host import gin_files
from synth_mtf.paths import gin_path
from synth_mtf.results import paper

SYSTEMS = [system for table in paper.TABLES for system in table.systems]


def cost(trained, flops):
  return Cost(
    parameters=trained,
    trained=trained,
    tables=0,
    flops=flops,
    state_bytes=0,
    table_bytes=0,
    attention_bytes=0,
  )


@pytest.mark.parametrize('system', SYSTEMS, ids=lambda s: f'{s.size} {s.name}')
def test_its_files_are_there(system):
  for file in (f'sizes/{system.size}.gin', f'variants/{system.variant}.gin'):
    assert pathlib.Path(gin_path(), file).exists()
  if system.bindings:
    gin_files.parse([f'variants/{system.variant}.gin'], system.bindings)


def test_a_table_beside_the_papers():
  table = paper.Table(
    'Table 9',
    {'inputs': 2, 'targets': 2},
    2,
    (
      paper.System('One', 'base', 'vanilla', 100),
      paper.System('Two', 'base', 'random', 101, 1.25),
      paper.System('Three', 'base', 'dense'),
    ),
  )
  costs = [cost(100_000_000, 400), cost(99_040_000, 600), cost(1_000_000, 200)]
  title, head, *rows = paper.text(table, costs).splitlines()
  assert title == 'Table 9'
  assert head.split() == [
    *('trained', 'paper', 'difference', 'products', 'paper'),
  ]
  assert [row.split() for row in rows] == [
    ['One', '100.0', 'M', '100', 'M', '+0.0', 'M', '1.00', '-'],
    ['Two', '99.0', 'M', '101', 'M', '-2.0', 'M', '1.50', '1.25'],
    ['Three', '1.0', 'M', '-', '-', '0.50', '-'],
  ]
  assert len({len(row) for row in [head, *rows]}) == 1, 'it is aligned'
