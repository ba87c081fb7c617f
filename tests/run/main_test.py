"""T5's own main with our layer and tasks, in this process."""

from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.errors import UserError

pytestmark = pytest.mark.slow  # trains


def values(path) -> dict[str, Any]:
  reader = tf.train.load_checkpoint(str(path))
  return {n: reader.get_tensor(n) for n in reader.get_variable_to_shape_map()}


def contents(folder) -> dict[str, int]:
  """Sizes and names of what must survive a refused run."""
  return {p.name: p.stat().st_size for p in folder.glob('model.ckpt-*')}


def test_trains_without_an_import_flag_and_keeps_a_config_that_reloads(trained):
  assert tf.train.latest_checkpoint(str(trained)).endswith('model.ckpt-2')
  config = (trained / 'operative_config.gin').read_text()
  assert 'import synth_mtf\n' in config
  assert 'SyntheticAttention.synthesizers' in config


def test_resumes_as_if_it_had_not_stopped(run, copy, tmp_path):
  assert run(copy, steps=4) == 0
  assert run(tmp_path / 'straight', steps=4) == 0
  resumed = values(copy / 'model.ckpt-4')
  straight = values(tmp_path / 'straight' / 'model.ckpt-4')
  assert resumed.keys() == straight.keys()
  changed = [n for n in straight if not np.array_equal(resumed[n], straight[n])]
  assert changed == []
  first, again = (
    values(folder / 'model.ckpt-2') for folder in (copy, tmp_path / 'straight')
  )
  assert not [n for n in first if not np.array_equal(first[n], again[n])]


@pytest.mark.parametrize(
  ('words', 'message'),
  [
    (
      ['--gin_file=variants/randm.gin'],
      r"gin file 'variants/randm.gin' does not.*'variants/random.gin'",
    ),
    (
      ['--gin_file=/nowhere/operative_config.gin'],
      r"gin file '/nowhere/operative_config.gin' does not exist",
    ),
    (
      ['--gin_param=SyntheticAtention.mixing = "sum"'],
      r"'SyntheticAtention'; did you mean 'SyntheticAttention'",
    ),
    (
      ['--gin_param=SyntheticAttention.synthesizers = [@synth_mtf.Randm]'],
      r"'synth_mtf.Randm'; did you mean .*'Random'",
    ),
    (
      ['--gin_param=utils.run.trainsteps = 1'],
      r"'utils.run' has no parameter 'trainsteps'; did you mean 'train_steps'",
    ),
    (['--gin_param=utils.run.batch_size = (4'], 'gin syntax'),
    (
      ["--gin_param=MIXTURE_NAME = 'synth_text_span_coruption'"],
      r"no task or mixture .*did you mean 'synth_text_span_corruption'",
    ),
    (
      ["--gin_param=utils.run.mesh_shape = 'batch:2'"],
      r'the mesh has 2 parts, but .*mesh_devices names 1 devices',
    ),
    (
      ["--gin_param=utils.run.mesh_shape = 'batch:3'"],
      r'batch:?=3.* does not divide',
    ),
    (
      ["--gin_param=utils.run.variable_filter = '^nowhere'"],
      r"variable_filter = '\^nowhere' matches no variable: nothing would be",
    ),
    (
      ["--gin_param=utils.run.init_checkpoint = '/nowhere/model.ckpt-1'"],
      r'there is no checkpoint /nowhere/model.ckpt-1',
    ),
    (
      [
        '--gin_param=utils.run.sequence_length ={"inputs": 600, "targets": 160}'
      ],
      r'length 600 exceeds max_length 512',
    ),
    (
      ['--gin_param=utils.run.sequence_length = {"inputs": 99, "targets": 8}'],
      r'makes 22 targets, but utils.run.sequence_length allows 8',
    ),
  ],
)
def test_a_mistake_is_one_message(run, tmp_path, words, message):
  with pytest.raises(UserError, match=f'(?s){message}') as caught:
    run(tmp_path, *words)
  assert 'In call to configurable' not in str(caught.value)
  assert 'Traceback' not in str(caught.value)
  assert contents(tmp_path) == {}


def test_no_mesh(run, tmp_path):
  with pytest.raises(UserError, match='no mesh is set. On a CPU or GPU give'):
    run(tmp_path, without='--gin_file=runs/cpu.gin')


@pytest.mark.parametrize('damage', ['truncated', 'flipped'])
def test_a_damaged_checkpoint_and_the_complete_one(run, copy, damage):
  for path in copy.glob('model.ckpt-2.data*'):
    content = bytearray(path.read_bytes())
    if damage == 'truncated':
      content = content[: len(content) // 2]
    elif content:
      content[len(content) // 2] ^= 1
    path.write_bytes(content)
  with pytest.raises(
    UserError, match=r'damaged in .*: model.ckpt-2 .*Complete: model.ckpt-0'
  ):
    run(copy, steps=4)
