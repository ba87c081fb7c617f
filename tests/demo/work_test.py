"""What the workers of the demo do, in this process."""

import pytest

from synth_mtf.demo import corpus, work
from synth_mtf.demo.configuration import Configuration
from synth_mtf.demo.run_folder import RunFolder
from synth_mtf.demo.stages import stages
from synth_mtf.errors import UserError
from tests.results import made_runs


def check(tmp_path, variant='random', mixture='synth_en_mix', **changes):
  configuration = Configuration(size='tiny', mixture=mixture, **changes)
  folder = RunFolder(str(tmp_path), configuration)
  work.check_models(
    stages(variant, 0, configuration, folder), mixture, report=print
  )
  assert not list(tmp_path.iterdir())


@pytest.mark.slow  # builds the models of all stages
def test_models_are_built_and_nothing_is_written(tmp_path):
  check(tmp_path)


@pytest.mark.parametrize(
  'changes, message',
  [
    ({'mixture': 'synth_en_mx'}, "did you mean 'synth_en_mix'"),
    ({'variant': 'randm'}, "did you mean 'variants/random.gin'"),
    ({'gin_params': ('Unitransformer.d_modl = 3',)}, "did you mean 'd_model'"),
    (
      {'gin_params': ('SyntheticAttention.mixng = 3',)},
      "did you mean 'mixing'",
    ),
    (
      {
        'gin_params': (
          "utils.run.sequence_length = {'inputs': 129, 'targets': 32}",
        )
      },
      'length 129 exceeds max_length 128 of the Random table',
    ),
  ],
)
def test_a_mistake_is_found_in_the_first_stage(tmp_path, changes, message):
  with pytest.raises(UserError, match=message):
    check(tmp_path, **changes)


def test_the_embedded_data_are_written_whole(tmp_path, monkeypatch):
  monkeypatch.setattr(corpus, 'PACKAGES', ('seqio',))
  monkeypatch.setattr(corpus, 'LEAST_BYTES', 1000)
  left = tmp_path / '.data.partial' / 'half'  # of a killed process
  left.parent.mkdir()
  left.write_text('')
  work.make_data(tmp_path / 'data', report=print)
  assert [path.name for path in tmp_path.iterdir()] == ['data']
  assert {path.name for path in (tmp_path / 'data').iterdir()} == {
    *('glue', 'superglue', 'squad', 'corpus', 'GENERATED_SAMPLE.txt'),
  }


def test_the_table_is_of_the_variants_that_are_done(tmp_path):
  for variant in ('random', 'lightconv', 'dense'):
    made_runs.trained(tmp_path / variant / 'finetune', variant)
  variants = ['random', 'lightconv']
  grid = work.tabulate(str(tmp_path), variants, report=print)
  assert [row.label for row in grid.rows] == ['Syn (R)', 'LightConv']
  assert grid.headers == ['Steps/s', 'Params']
