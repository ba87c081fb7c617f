"""What a page says of runs, read off runs on disk."""

import gin
import pytest

from synth_mtf.report import contents
from synth_mtf.results.runs import Run
from tests import model

pytestmark = pytest.mark.slow  # builds whole models


@pytest.fixture(scope='module')
def runs(tmp_path_factory):
  """T5; R twice, mixed in two ways; R without its configuration."""
  made = []
  for name, variant, bindings in [
    ('v', 'vanilla', []),
    ('r', 'random', []),
    ('r2', 'random', ["SyntheticAttention.mixing = 'sum'"]),
  ]:
    folder = tmp_path_factory.mktemp('runs') / name
    folder.mkdir()
    model.write(folder, variant, bindings)
    (folder / 'operative_config.gin').write_text(gin.operative_config_str())
    made.append(Run(str(folder), [str(folder)]))
  bare = tmp_path_factory.mktemp('runs') / 'bare'
  bare.mkdir()
  model.write(bare, 'random')
  return [*made, Run(str(bare), [str(bare)])]


def test_names_are_told_apart_by_folders(runs):
  assert contents.names(runs) == [
    'T5 (V)',
    f'Syn (R), {runs[1].name}',
    f'Syn (R), {runs[2].name}',
    'bare',
  ]


def test_the_summary_has_a_row_for_each_run(runs):
  made = contents.summary(runs)
  assert made.caption == '4 runs'
  assert [row.label for row in made.rows] == [
    'T5 (V)', 'Syn (R)', 'Syn (R)', 'bare',
  ]  # fmt: skip
  step = made.headers.index('Last step')
  assert {row.cells[step][0].text for row in made.rows} == {'7'}
  seed = made.headers.index('Seed')
  assert made.rows[3].cells[seed][0].text == '-'
  params = made.headers.index('Params')
  assert made.rows[0].cells[params][0].text.endswith('M')


def test_what_differs_and_nothing_else(runs):
  found = {one.name: one.values for one in contents.differences(runs[1:])}
  assert list(found.values()) == len(found) * [["'softmax'", "'sum'"]]
  assert {name.rpartition('/')[2] for name in found} == {
    'SyntheticAttention.mixing'
  }
  assert contents.differences(runs[:1]) == []
  with_t5 = {one.name: one.values for one in contents.differences(runs)}
  assert with_t5['encoder/Random.max_length'][0] is None


def test_configurations_are_those_of_runs_that_have_one(runs):
  found = contents.configurations(runs)
  assert [one.name for one in found] == contents.names(runs)[:3]
  assert 'SyntheticAttention.synthesizers' in found[1].gin
