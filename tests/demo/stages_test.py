"""The stages of a run, each a command line of T5's main."""

import pytest

from synth_mtf.demo.configuration import Configuration
from synth_mtf.demo.run_folder import RunFolder
from synth_mtf.demo.stages import stages, task_settings


def made(tmp_path, **changes):
  configuration = Configuration(**changes)
  folder = RunFolder(str(tmp_path), configuration)
  return stages('random', 3, configuration, folder), folder


def test_their_order_and_files(tmp_path):
  found, folder = made(tmp_path, size='tiny', gin_files=('mine.gin',))
  assert [(s.name, s.trains, s.model_dir.name) for s in found] == [
    ('pretrain', True, 'pretrain'),
    ('perplexity', False, 'pretrain'),
    ('finetune', True, 'finetune'),
    ('evaluate', False, 'finetune'),
  ]
  for stage in found:
    assert stage.model_dir.parent == folder.path / 'random'
    assert stage.gin_files == (
      'sizes/tiny.gin',
      'variants/random.gin',
      f'runs/demo_{stage.name}.gin',
      'mine.gin',
    )


def test_each_of_several_seeds_has_a_folder(tmp_path):
  found, folder = made(tmp_path, seeds=(3, 4))
  assert {stage.model_dir.parent for stage in found} == {
    folder.path / 'random' / 'seed_3'
  }
  for stage in found:
    assert stage.trains == (
      'mesh_train_dataset_fn.seed = 3' in stage.gin_params
    )


def test_finetuning_starts_where_pretraining_ends(tmp_path):
  found, folder = made(tmp_path, pretrain_steps=20, finetune_steps=30)
  pretrain, _, finetune, _ = found
  assert 'utils.run.train_steps = 20' in pretrain.gin_params
  start = folder.path / 'random' / 'pretrain' / 'model.ckpt-20'
  for binding in (
    f"utils.run.init_checkpoint = '{start}'",
    'utils.run.train_steps = 50',
    'utils.run.seen_data_init_step = 20',
  ):
    assert binding in finetune.gin_params


def test_pretraining_may_start_from_a_checkpoint(tmp_path):
  (pretrain, _, finetune, _), _ = made(
    tmp_path, init_checkpoint='/t5/model.ckpt-7', pretrain_steps=20
  )
  assert pretrain.gin_files[-1] == 'common/warm_start.gin'
  for binding in (
    "utils.run.init_checkpoint = '/t5/model.ckpt-7'",
    'utils.run.train_steps = 27',
    'utils.run.seen_data_init_step = 7',
  ):
    assert binding in pretrain.gin_params
  assert any('model.ckpt-27' in one for one in finetune.gin_params)


def test_without_pretraining_finetuning_starts_from_the_checkpoint(tmp_path):
  found, _ = made(
    tmp_path,
    init_checkpoint='/t5/model.ckpt-7',
    pretrain_steps=0,
    finetune_steps=20,
  )
  assert [stage.name for stage in found] == ['finetune', 'evaluate']
  assert 'utils.run.train_steps = 27' in found[0].gin_params


@pytest.mark.parametrize(
  'steps, between', [(1, 1), (4, 1), (20, 4), (100_000, 1000)]
)
def test_a_kill_loses_a_fifth_of_a_run_at_most(tmp_path, steps, between):
  (pretrain, *_), _ = made(tmp_path, pretrain_steps=steps)
  assert f'utils.run.save_checkpoints_steps = {between}' in pretrain.gin_params


def test_bindings_of_the_user_come_last(tmp_path):
  found, _ = made(tmp_path, gin_params=('d_model = 8',))
  for stage in found:
    assert stage.gin_params[-1] == 'd_model = 8'
    assert stage.flags[-1] == '--gin_param=d_model = 8'
    assert stage.flags[0] == f'--model_dir={stage.model_dir}'


def test_settings_of_the_data(tmp_path):
  _, folder = made(tmp_path)
  assert task_settings(Configuration(), folder) == {
    'data_dir': str(folder.data),
    'vocabulary': str(folder.vocabulary),
    'index_dir': str(folder.index),
  }
  given = Configuration(
    data_dir='/data', vocabulary='/a.model', skip_bad_rows=True
  )
  assert task_settings(given, folder) == {
    'data_dir': '/data',
    'vocabulary': '/a.model',
    'index_dir': str(folder.index),
    'skip_bad_rows': 'true',
  }
