"""Runs on disk, whichever command wrote them, and which are of one model."""

import json
import os
import re
from unittest import mock

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import synth_mtf.progress  # noqa: F401  registers a name with gin
from synth_mtf.checkpoints import files
from synth_mtf.errors import UserError
from synth_mtf.figures import of_runs
from synth_mtf.results import records, runs
from tests.results import made_runs
from tests.results.made_runs import COLA, only, result


def test_event_files_alone_will_do(tmp_path):
  folder = made_runs.evaluated(tmp_path, COLA, 100, {'matthews_corrcoef': 12.5})
  assert only(tmp_path).results == [result()]
  assert only(folder).results == [result()]
  run = only(tmp_path)
  assert (run.gin, run.checkpoint, run.seed) == (None, None, None)
  assert (run.parameters, run.products, run.steps_per_second) == (None,) * 3
  assert run.label == tmp_path.name


def test_metrics_json_is_believed_before_event_files(tmp_path):
  folder = made_runs.evaluated(
    tmp_path, COLA, 100, {'matthews_corrcoef': 1.0, 'other': 2.0}
  )
  known = result(value=3.0, n=4, standard_error=5.0)
  records.add_results(folder, [known], {'versions': {}, 'gin': ''})
  assert only(tmp_path).results == [known, result(metric='other', value=2.0)]


def test_numbers_beyond_float32_are_not_defined(tmp_path):
  made_runs.trained(tmp_path)
  folder = str(tmp_path)
  for step, value in enumerate([1e308, -1e308, 3e38]):
    found = result(step=step, value=value, standard_error=abs(value))
    records.add_results(folder, [found], {'versions': {}, 'gin': ''})
  run = only(tmp_path)
  assert [found.value for found in run.results] == [None, None, 3e38]
  assert [found.standard_error for found in run.results] == [None, None, 3e38]
  assert run.results[0].reason == '1e+308 is outside the range of float32'
  (figure,) = of_runs.curves([run])
  figure.canvas.draw()  # matplotlib fails where ticks overflow
  # What the file says is kept.
  records.add_results(folder, [result(step=9)], {'versions': {}, 'gin': ''})
  assert records.read(folder)[0][0].value == pytest.approx(1e308)


def test_origins_are_each_named_once_and_by_date(tmp_path):
  late, early = (
    {'environment': {}, 'date': day, 'versions': {}, 'gin': ''} for day in '21'
  )
  (tmp_path / records.ORIGINS).write_text(json.dumps([late, {'date': '0'}]))
  folder = made_runs.evaluated(tmp_path, COLA, 100, {'matthews_corrcoef': 1.0})
  for step, origin in ((1, early), (2, late)):
    records.add_results(folder, [result(step=step)], origin)
  assert [origin['date'] for origin in only(tmp_path).origins] == ['1', '2']


def test_scores_may_be_in_a_folder_of_any_name(tmp_path):
  folder = made_runs.evaluated(tmp_path, COLA, 100, {'matthews_corrcoef': 12.5})
  elsewhere = tmp_path / 'elsewhere'
  os.rename(folder, elsewhere)
  assert only(elsewhere).results == [result(split='unknown')]


def test_log_perplexity(tmp_path):
  found = {'neg_log_perplexity': -2.5, 'num_eval_tokens': 123, 'mean_label': 3}
  made_runs.measured(tmp_path, 'mine', 100, found)
  about = {'metric': 'neg_log_perplexity', 'n': 123, 'unit': 'token'}
  assert only(tmp_path).results == [result(task='mine', value=-2.5, **about)]


@pytest.mark.parametrize(
  ('length', 'n', 'error'),
  [(1, 400, (0.25 * 0.75 / 399) ** 0.5), (2, None, None)],
)
def test_classes_are_counted_by_their_only_token(tmp_path, length, n, error):
  measures = {'sequence_accuracy': 0.25, 'num_eval_tokens': 400}
  measures['max_targets_length'] = length
  made_runs.measured(tmp_path, 'synth_ag_news_class', 1, measures)
  (found,) = only(tmp_path).results
  assert (found.n, found.unit) == (n, 'example')
  assert found.standard_error == (error and pytest.approx(error))


def test_curves(tmp_path):
  made_runs.trained(tmp_path)
  run = only(tmp_path)
  loss = {1: 5, 20: 4.8, 40: 4.6, 60: 4.4}
  assert run.host_losses == {'': pytest.approx(loss)}
  assert run.losses == {'': {}}
  assert run.steps_per_second == pytest.approx(4.0)
  assert run.checkpoint and run.checkpoint.step == 100


def test_event_files_of_resumed_and_killed_runs_and_of_tpus(tmp_path):
  made_runs.events(tmp_path, (1, {'loss': 5.0}), (2, {'loss': 4.0}))
  (first,) = tmp_path.iterdir()
  first = first.rename(tmp_path / 'events.out.tfevents.1000000000.host')
  made_runs.events(tmp_path, (2, {'loss': 3.0}), (3, {'loss': 2.0}))
  (last,) = {*tmp_path.iterdir()} - {first}
  last.write_bytes(last.read_bytes()[:-3])
  with tf.Graph().as_default():
    writer = tf.summary.FileWriter(str(tmp_path), filename_suffix='.tpu')
  summary = tf.Summary()
  summary.value.add(tag='loss', tensor=tf.make_tensor_proto(1.0))
  writer.add_summary(summary, 8)
  writer.close()
  assert only(tmp_path).host_losses == {'': {1: 5, 2: 3, 8: 1}}


@pytest.mark.parametrize('first', [1, 3])
def test_a_curve_in_nats_per_token_replaces_that_of_t5(tmp_path, first):
  """Unless it begins later: an earlier release had trained before."""
  per_token = {step: {'nats_per_token': 9.0} for step in (first, 4)}
  made_runs.events(tmp_path, (1, {'loss': 0.5}), *per_token.items())
  run = only(tmp_path)
  assert run.losses == {'': {first: 9, 4: 9}}
  assert run.host_losses == ({} if first == 1 else {'': {1: 0.5}})


def test_what_a_configuration_tells(tmp_path):
  made_runs.trained(
    tmp_path,
    'random_vanilla',
    ['synth_mtf.train_with_progress.seed = 3', 'utils.run.batch_size = 4'],
  )
  run = only(tmp_path)
  assert run.label == 'Syn (R+V)'
  assert run.seed == 3
  assert run.bindings['train_with_progress.seed'] == '3'
  assert run.bindings['d_model'] == '64'
  assert 'dropout_rate' in run.bindings['SelfAttention.dropout_rate']


def test_a_configuration_of_strangers_leaves_the_folders_name(tmp_path):
  made_runs.trained(tmp_path / 'theirs')
  with open(tmp_path / 'theirs' / 'operative_config.gin', 'a') as stream:
    stream.write('their.module.layer.width = 3\n')
    stream.write('make_layer_stack.layers = [@their.module.layer]\n')
  run = only(tmp_path / 'theirs')
  assert run.label == 'theirs'
  assert run.products is None
  assert run.bindings['their.module.layer.width'] == '3'


def test_parameters_are_those_that_training_changes(tmp_path):
  made_runs.trained(tmp_path / 'all')
  assert only(tmp_path / 'all').parameters == 8 * 4
  frozen = "utils.run.variable_filter = '^(?!shared)'"
  made_runs.trained(tmp_path / 'frozen', bindings=[frozen])
  assert only(tmp_path / 'frozen').parameters == 8 * 4 + 128 * 8


def test_without_slots_all_parameters_count(tmp_path):
  made_runs.trained(tmp_path)
  for path in tmp_path.glob('model.ckpt-*'):
    path.unlink()
  values = {'shared/embedding': np.zeros([128, 8]), 'w': np.zeros([8, 4])}
  files.write(str(tmp_path), 100, values)
  assert only(tmp_path).parameters == 128 * 8 + 8 * 4


def test_products_are_counted_where_there_is_a_configuration(tmp_path):
  lengths = "utils.run.sequence_length = {'inputs': 16, 'targets': 8}"
  made_runs.trained(tmp_path, bindings=[lengths, 'num_layers = 1'])
  products = only(tmp_path).products
  assert products and products > 1e6


def test_a_demo_holds_several_runs_in_the_order_of_its_table(tmp_path):
  for variant in ('random', 'vanilla'):
    for seed in (0, 10, 9):
      run = tmp_path / variant / f'seed_{seed}'
      made_runs.events(run / 'pretrain', (1, {'loss': 5.0}))
      made_runs.events(run / 'finetune', (2, {'loss': 4.0}))
  made_runs.events(tmp_path / 'dense' / 'pretrain', (1, {'loss': 5.0}))
  made_runs.demo(tmp_path, ['vanilla', 'random'])
  found = runs.read(str(tmp_path))
  assert [os.path.relpath(run.name, tmp_path) for run in found] == [
    'vanilla/seed_0',
    'vanilla/seed_9',
    'vanilla/seed_10',
    'random/seed_0',
    'random/seed_9',
    'random/seed_10',
    'dense',
  ]
  assert found[0].host_losses == {'pretrain': {1: 5}, 'finetune': {2: 4}}
  assert found[0].folder == str(tmp_path / 'vanilla' / 'seed_0' / 'finetune')
  assert [run.name for run in runs.read(str(tmp_path / 'random'))] == [
    run.name for run in found[3:6]
  ]


def test_what_is_named_twice_comes_once(tmp_path, monkeypatch):
  made_runs.events(tmp_path / 'a', (1, {'loss': 5.0}))
  monkeypatch.chdir(tmp_path)
  folders = [*(str(tmp_path / name) for name in ('a', 'a/')), 'a', './a']
  assert [run.name for run in runs.read(*folders)] == [str(tmp_path / 'a')]


@pytest.mark.parametrize('name', ['r[1]', 'r*', 'ram://runs/a'])
def test_names_are_no_patterns_and_may_be_remote(tmp_path, name):
  """And a score that is not a number has no value."""
  folder = name if '://' in name else tmp_path / name
  made_runs.trained(folder)
  scores = {'matthews_corrcoef': float('nan')}
  made_runs.evaluated(folder, COLA, 100, scores)
  run = only(folder)
  assert run.results == [result(value=None)]
  assert run.label == 'Syn (R)'


def test_metrics_in_a_folder_of_any_name_have_their_split(tmp_path):
  """As `utils.run.eval_summary_dir` chooses."""
  folder = made_runs.evaluated(tmp_path, COLA, 100, {'matthews_corrcoef': 1.0})
  known = result(value=1.0, n=9, standard_error=0.5)
  records.add_results(folder, [known], {})
  moved = tmp_path / 'scores'
  os.rename(folder, moved)
  assert only(moved).results == [known]


@pytest.mark.parametrize('name', ['nowhere', 'file'])
def test_a_folder_that_is_no_run(tmp_path, name):
  (tmp_path / 'file').write_text('')
  with pytest.raises(UserError, match=f'{name} does not exist or holds no'):
    runs.read(os.path.join(tmp_path, name))


def test_files_that_cannot_be_read_are_named(tmp_path):
  folder = made_runs.evaluated(tmp_path, COLA, 100, {'matthews_corrcoef': 1.0})
  (tmp_path / 'validation_eval' / 'metrics.json').write_text('{"a": 1}')
  with pytest.raises(UserError, match='metrics.json is damaged'):
    only(folder).results  # noqa: B018
  (tmp_path / 'operative_config.gin').write_text('this is = = not gin')
  with pytest.raises(UserError, match='gin syntax'):
    only(tmp_path).bindings  # noqa: B018
  (tmp_path / 'operative_config.gin').write_bytes(b'\xff\xfe')
  with pytest.raises(UserError, match='operative_config.gin cannot be read'):
    only(tmp_path).gin  # noqa: B018


def names(*folders):
  return list(runs.by_model(runs.read(*map(str, folders))))


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


def test_a_folder_of_runs_of_any_names(tmp_path):
  """Of which a sweep has some, three folders below."""
  for name in ('runs/rv', 'runs/v10/finetune', 'runs/v9', 'runs/a/b/c/d'):
    made_runs.trained(tmp_path / name)
  (tmp_path / 'runs' / 'notes').mkdir()
  found = [run.name for run in runs.read(str(tmp_path / 'runs'))]
  assert found == [str(tmp_path / 'runs' / x) for x in ('rv', 'v9', 'v10')]


def test_links_to_the_folder_itself_are_followed_once(tmp_path, monkeypatch):
  """Ten would otherwise be a thousand folders at depth 3."""
  made_runs.evaluated(tmp_path / 'r', COLA, 100, {'matthews_corrcoef': 12.5})
  (tmp_path / 'run.json').write_text('{}')
  for number in range(10):
    (tmp_path / f'link_{number}').symlink_to('.')
  walk = mock.Mock(side_effect=tf.io.gfile.walk)
  monkeypatch.setattr(tf.io.gfile, 'walk', walk)
  assert only(tmp_path).name == str(tmp_path / 'r')
  assert walk.call_count < 20


@pytest.mark.parametrize(
  'seed', ['{1, 2}', "b'x'", '[3]', str(2**63), '1.5', '{[]: 1}', '%s']
)
def test_a_seed_that_is_none(tmp_path, seed):
  """Such as one that JSON cannot hold."""
  line = f'synth_mtf.train_with_progress.seed = {seed}\n'
  (tmp_path / 'operative_config.gin').write_text(line)
  try:
    assert only(tmp_path).seed is None
  except UserError as error:
    assert re.search('gin syntax|unhashable', str(error))
