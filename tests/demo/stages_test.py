"""The stages of a demo: command lines, and processes that run them."""

import contextlib
import io
import pathlib
import sys
from typing import Any

import pytest

from synth_mtf.demo.configuration import Configuration
from synth_mtf.demo.stages import Stage, follow, stages, started, task_settings
from synth_mtf.errors import RunFailed, UserError
from synth_mtf.run.console import Console

OUT = pathlib.Path('/out')


def made(**changes):
  configuration = Configuration(**changes)
  batches = stages('random', 3, configuration, OUT)
  return {stage.name: stage for batch in batches for stage in batch}


def test_their_order_and_files():
  found = made(gin_file=('mine.gin',), gin_param=('d_model = 8',))
  assert [(s.name, s.model_dir.name) for s in found.values()] == [
    ('pretrain', 'pretrain'),
    ('finetune', 'finetune'),
    ('perplexity', 'pretrain'),
    ('evaluate', 'finetune'),
  ]
  for stage in found.values():
    assert stage.run == stage.model_dir.parent == OUT / 'random'
    assert stage.gin_files == (
      'sizes/tiny.gin',
      'variants/random.gin',
      f'runs/demo_{stage.name}.gin',
      'mine.gin',
    )
    assert stage.flags[0] == f'--model_dir={stage.model_dir}'
    assert stage.flags[-1] == '--gin_param=d_model = 8'


def test_perplexity_is_measured_beside_finetuning():
  batches = stages('random', 3, Configuration(), OUT)
  assert [[stage.name for stage in batch] for batch in batches] == [
    ['pretrain'],
    ['finetune', 'perplexity'],
    ['evaluate'],
  ]


def test_each_of_several_seeds_has_a_folder():
  found = made(seeds=(3, 4))
  for stage in found.values():
    assert stage.run == OUT / 'random' / 'seed_3'
    for binding in ('mesh_train_dataset_fn', 'synth_mtf.train_with_progress'):
      assert (f'{binding}.seed = 3' in stage.gin_params) == (
        stage.name in ('pretrain', 'finetune')
      )


def test_finetuning_starts_where_pretraining_ends():
  found = made(pretrain_steps=20, finetune_steps=30)
  assert 'utils.run.train_steps = 20' in found['pretrain'].gin_params
  assert 'utils.run.init_checkpoint = None' in found['pretrain'].gin_params
  assert {
    "utils.run.init_checkpoint = '/out/random/pretrain/model.ckpt-20'",
    'utils.run.train_steps = 50',
    'utils.run.seen_data_init_step = 20',
  } <= set(found['finetune'].gin_params)


def test_pretraining_may_start_from_a_checkpoint():
  found = made(init_checkpoint='/t5/model.ckpt-7', pretrain_steps=20)
  assert found['pretrain'].gin_files[-1] == 'common/warm_start.gin'
  assert {
    "utils.run.init_checkpoint = '/t5/model.ckpt-7'",
    'utils.run.train_steps = 27',
    'utils.run.seen_data_init_step = 7',
  } <= set(found['pretrain'].gin_params)
  assert any('model.ckpt-27' in one for one in found['finetune'].gin_params)


def test_without_pretraining_finetuning_starts_from_the_checkpoint():
  found = made(
    init_checkpoint='/t5/model.ckpt-7', pretrain_steps=0, finetune_steps=20
  )
  assert list(found) == ['finetune', 'evaluate']
  assert 'utils.run.train_steps = 27' in found['finetune'].gin_params


def test_mixture_and_examples():
  found = made(mixture='mine', eval_examples=None)
  for name in ('finetune', 'evaluate'):
    assert "MIXTURE_NAME = 'mine'" in found[name].gin_params
  examples = 'mesh_eval_dataset_fn.num_eval_examples = None'
  assert examples in found['evaluate'].gin_params


@pytest.mark.parametrize(
  'steps, between', [(1, 1), (4, 1), (20, 4), (100_000, 1000)]
)
def test_a_kill_loses_a_fifth_of_a_run_at_most(steps, between):
  bindings = made(pretrain_steps=steps)['pretrain'].gin_params
  assert f'utils.run.save_checkpoints_steps = {between}' in bindings


def test_settings_of_the_data():
  assert task_settings(Configuration(), OUT) == {
    'data_dir': '/out/data',
    'vocabulary': '/out/vocabulary.model',
  }
  given: dict[str, Any] = {
    'data_dir': '/data', 'vocabulary': '/a.model', 'skip_bad_rows': True,
  }  # fmt: skip
  assert task_settings(Configuration(**given), OUT) == given
  assert '--skip_bad_rows=True' in made(**given)['pretrain'].flags


def follow_script(tmp_path, monkeypatch, script):
  """Follows a stage whose command is a script; returns the printed lines."""
  command = tmp_path / 'synth-mtf'
  command.write_text(f'import os, sys\n{script}')
  monkeypatch.setattr(sys, 'argv', [str(command)])
  stage = Stage('pretrain', tmp_path, tmp_path / 'model', ['a.gin'], [], {})
  stream = io.StringIO()
  try:
    with started(stage) as running:
      follow(stage, running, '[1/4]', Console(stream))
  finally:
    lines = stream.getvalue().splitlines()
    assert stage.done.exists() == ('failed' not in lines[-1])
  return lines


def test_a_stage_is_the_command_in_a_process(tmp_path, monkeypatch):
  lines = follow_script(
    tmp_path,
    monkeypatch,
    """
print('train  ...')
print('train  step 1/2  loss 2.000  1.0 steps/s  1 s left')
print('train  step 2/2  loss 1.000  1.0 steps/s  0 s left')
print('warning:', sys.argv[1:], os.environ['PYTHONHASHSEED'], file=sys.stderr)
print('Done in 3 s.')""",
  )
  model = tmp_path / 'model'
  words = ['transformer', f'--model_dir={model}', '--gin_file=a.gin']
  assert lines[0] == '[1/4]  ...'
  assert f'[1/4]  warning: {words} 0' in lines
  assert lines[-1] == ('[1/4]  step 2/2  loss 1.000  1.0 steps/s  Done in 3 s.')


@pytest.mark.parametrize(
  'script, error, message',
  [
    (
      "print('synth-mtf: error: no\\nsuch file'); sys.exit(2)",
      UserError,
      r'^no\nsuch file$',
    ),
    (
      "print('step 1'); print('synth-mtf: error: ValueError'); sys.exit(1)",
      RunFailed,
      r'^\[1/4\]: ValueError\nThe log is .*/model/log; the same command ',
    ),
    ('1 / 0', RunFailed, r'(?s)^\[1/4\]: Traceback.*ZeroDivisionError.*\nThe'),
    ('os.kill(os.getpid(), 9)', RunFailed, 'was killed, .* memory runs out'),
    ('sys.exit(3)', RunFailed, 'ended with status 3'),
  ],
)
def test_failures(tmp_path, monkeypatch, script, error, message):
  with pytest.raises(error, match=message):
    follow_script(tmp_path, monkeypatch, script)


def test_an_interrupted_stage_may_save_before_it_ends(tmp_path, monkeypatch):
  command = tmp_path / 'synth-mtf'
  command.write_text(f"""
import pathlib, signal, sys, time
def save(*_):
  pathlib.Path('{tmp_path}/saved').touch()
  sys.exit(1)
signal.signal(signal.SIGTERM, save)
print('ready', flush=True)
time.sleep(60)""")
  monkeypatch.setattr(sys, 'argv', [str(command)])
  stage = Stage('pretrain', tmp_path, tmp_path / 'model', [], [], {})
  with contextlib.suppress(KeyboardInterrupt), started(stage) as running:
    next(iter(running.stdout or []))
    raise KeyboardInterrupt
  assert running.returncode == 1
  assert (tmp_path / 'saved').exists()
