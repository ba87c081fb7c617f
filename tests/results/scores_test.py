"""Which runs are of one model, and what it is called."""

import pytest

import synth_mtf.progress  # noqa: F401  registers a name with gin
from synth_mtf.results import runs, scores
from tests.results import made_runs


def names(*folders):
  return list(scores.by_model(runs.read(*map(str, folders))))


@pytest.mark.parametrize(
  ('starts', 'models'),
  [
    (['a/seed_0/model.ckpt-9', 'a/seed_1/model.ckpt-9'], 1),
    (['a_s0/model.ckpt-9', 'a_s1/model.ckpt-9'], 1),
    (['a/seed_0/model.ckpt-9', 'a/seed_1/model.ckpt-8'], 2),
    (['lr0/model.ckpt-9', 'lr1/model.ckpt-9'], 2),
  ],
)
def test_seeds_may_start_from_seeds(tmp_path, starts, models):
  for number, start in enumerate(starts):
    binding = f"utils.run.init_checkpoint = '/runs/{start}'"
    made_runs.trained(tmp_path / str(number), bindings=[binding])
  assert len(names(tmp_path / '0', tmp_path / '1')) == models


def test_a_folder_inside_another_is_told_apart(tmp_path):
  outer, inner = tmp_path / 'a', tmp_path / 'a' / 'b'
  made_runs.trained(outer, bindings=['d_ff = 8'])
  made_runs.trained(inner, bindings=['d_ff = 16'])
  assert names(outer, inner) == ['Syn (R), a', 'Syn (R), a/b']


def test_models_of_one_folder_have_names_of_their_own(tmp_path):
  folders = [tmp_path / f'{d_ff}_{seed}' for d_ff in (8, 16) for seed in (0, 1)]
  for folder in folders:
    d_ff, seed = folder.name.split('_')
    seed = f'synth_mtf.train_with_progress.seed = {seed}'
    made_runs.trained(folder, bindings=[f'd_ff = {d_ff}', seed])
  assert names(*folders) == ['Syn (R), 8_0', 'Syn (R), 16_0']


def test_runs_without_configuration_are_a_model_each(tmp_path):
  folders = [tmp_path / name / 'run' for name in ('x', 'y')]
  for folder in folders:
    made_runs.events(folder, (1, {'loss': 5.0}))
  assert names(*folders) == ['run, x/run', 'run, y/run']
