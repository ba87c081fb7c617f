"""The cost of models whose numbers are known."""

import re

import pytest

from benchmarks import tables as benchmark_tables
from synth_mtf import cli
from synth_mtf.cost import cost
from synth_mtf.errors import UserError
from synth_mtf.host import gin_files
from synth_mtf.results import paper
from tests import model

LENGTHS = {'inputs': 14, 'targets': 14}
QUERIES_AND_KEYS = 2 * 24 * 32  # of a layer


def cost_of(variant, mesh='', bindings=(), lengths=LENGTHS):
  gin_files.parse(
    model.files(variant), [*model.TINY, 'num_heads = 4', *bindings]
  )
  return cost(model.VOCAB, lengths, mesh)


def test_tables_of_random():
  vanilla, random = cost_of('vanilla'), cost_of('random')
  assert vanilla.tables == 0
  # 4 layers of 4 heads, and no queries and keys.
  assert random.tables == 4 * 4 * 14 * 14
  difference = random.parameters - vanilla.parameters
  assert difference == random.tables - 4 * QUERIES_AND_KEYS
  assert random.flops < vanilla.flops
  # No tensor of keys in Random has more than [heads, length, memory_length].
  assert random.table_bytes == 4 * (2 * random.tables + 4 * 4 * 2 * 14)


def test_vanilla_is_t5():
  ours, t5 = cost_of('vanilla'), cost_of(None)
  assert ours.parameters == t5.parameters
  assert ours.state_bytes == t5.state_bytes
  assert ours.flops <= t5.flops


def test_a_mesh_splits_what_has_heads():
  alone, split = cost_of('random'), cost_of('random', 'model:4')
  assert split.table_bytes * 4 == alone.table_bytes
  assert split.state_bytes < alone.state_bytes
  assert (split.parameters, split.flops) == (alone.parameters, alone.flops)
  with pytest.raises(UserError, match='heads = 4 is not a multiple of 8'):
    cost_of('vanilla', 'model:8', ['d_ff = 32'])


def test_a_convolution_has_no_attention():
  found = cost_of('lightconv', bindings=["utils.run.model_type = 'lm'"])
  assert found.attention_bytes == 0


def test_products_of_random_vanilla():
  """By hand: queries, keys and logits of 4 layers more than Random."""
  more = cost_of('random_vanilla').flops - cost_of('random').flops
  by_hand = 2 * 4 * 14 * (QUERIES_AND_KEYS + 14 * 32)
  # Beside them, alpha is multiplied into the queries and the tables.
  assert more == pytest.approx(by_hand, rel=0.05)


def test_tables_of_cross_attention():
  """A row for each target and a column for each input, in the decoder."""
  found = cost_of(
    'vanilla+cross_random',
    bindings=['decoder/Unitransformer.max_length = 6'],
    lengths={'inputs': 14, 'targets': 6},
  )
  assert found.tables == 2 * 4 * 6 * 14
  # No queries and keys in the cross-attention of two blocks.
  difference = found.parameters - cost_of('vanilla').parameters
  assert difference == found.tables - 2 * QUERIES_AND_KEYS


def test_what_is_kept_is_not_trained():
  fixed, random = cost_of('fixed_random'), cost_of('random')
  assert random.trained == random.parameters == fixed.parameters
  assert fixed.trained == random.parameters - random.tables


@pytest.mark.slow  # builds whole models of T5 base
def test_frozen_queries_and_keys_are_kept_but_not_trained():
  vanilla, frozen = cost_of('vanilla'), cost_of('frozen_vanilla')
  assert frozen.parameters == vanilla.parameters
  assert vanilla.trained - frozen.trained == 4 * QUERIES_AND_KEYS
  assert frozen.flops == vanilla.flops


def test_values_with_a_bias():
  bias = ['SyntheticAttention.value_bias = True']
  more = cost_of('random', bindings=bias).trained - cost_of('random').trained
  assert more == 4 * 32  # of 4 layers


@pytest.mark.slow  # builds the models of the paper at their size
def test_beside_the_paper(capsys):
  gin_files.parse(['sizes/base.gin'])
  assert round(cost(32128, LENGTHS).parameters / 1e6) == 223
  assert cli.main(['cost', '--paper']) == 0
  tables = capsys.readouterr().out.strip().split('\n\n')
  assert len(tables) == 6
  for table in tables:
    _, _, *lines = table.splitlines()
    rows = [line for line in lines if line[0] != ' ']
    reasons = '\n'.join(lines[len(rows) :])
    for line in rows:
      row, counted, printed, *_ = re.split(r' {2,}', line)
      if f'  {row}: ' not in reasons and 'do not fit one size' not in reasons:
        counts = (float(x.removesuffix(' M')) for x in (counted, printed))
        # Of the C4 models, 0.53 million are biases and learned positions.
        most = 1.1 if 'are biases' in reasons else 0.5
        assert abs(float.__sub__(*counts)) <= most, line
  for name, table in zip(('translation', 'lm1b', 'c4'), tables, strict=False):
    assert_as_counted(name, table)


def assert_as_counted(name, table):
  """Compares a table with the counts that benchmarks/verdicts.py judges."""
  functions = {row.about['row']: row.about['functions'] for row in paper.ROWS}
  found = {}
  for line in table.splitlines()[2:]:
    row, *cells = re.split(r' {2,}', line)
    if row and row in functions:
      trained, _, _, products, _ = cells
      found[functions[row]] = {'trained': trained, 'products': products}
  for model_name, counts in benchmark_tables.section('counts', name).items():
    for count in {*counts} & {'trained', 'products'}:
      number = float(found[model_name][count].removesuffix(' M'))
      assert number == counts[count], (name, model_name)
