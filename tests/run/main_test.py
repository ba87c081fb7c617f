"""T5's own main with our layer and tasks, in this process."""

from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

pytestmark = pytest.mark.slow  # trains


def values(path) -> dict[str, Any]:
  reader = tf.train.load_checkpoint(str(path))
  return {n: reader.get_tensor(n) for n in reader.get_variable_to_shape_map()}


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


def test_alpha_moves_at_the_learning_rate_where_it_is_set_free(
  run, trained, tmp_path
):
  """Some 0.01 a step, and 0.001 of that by T5's own Adafactor."""
  assert run(tmp_path, '--gin_file=common/free_alpha.gin') == 0
  for folder, far in ((trained, 2e-5), (tmp_path, 2e-2)):
    found = values(folder / 'model.ckpt-2')
    moved = [
      abs(v).max() for name, v in found.items() if name.endswith('alpha')
    ]
    assert len(moved) == 2, 'an encoder and a decoder of a layer each'
    assert 0.2 * far < max(moved) < 3 * far


@pytest.mark.parametrize(
  ('words', 'message'),
  [
    (
      ['--gin_file=variants/randm.gin'],
      r"gin file 'variants/randm.gin' does not.*'variants/random.gin'",
    ),
    (
      ['--gin_param=utils.run.trainsteps = 1'],
      r"'utils.run' has no parameter 'trainsteps'; did you mean 'train_steps'",
    ),
    (
      ["--gin_param=MIXTURE_NAME = 'synth_text_span_coruption'"],
      r"no task or mixture .*did you mean 'synth_text_span_corruption'",
    ),
    (
      ["--gin_param=utils.run.mesh_shape = 'batch:2'"],
      r'the mesh has 2 parts, but .*mesh_devices names 1 devices',
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
def test_what_the_host_finds_is_one_message(refused, tmp_path, words, message):
  refused(tmp_path, *words, match=message)


def test_no_mesh(refused, tmp_path):
  match = 'no mesh is set. On a CPU or GPU give'
  refused(tmp_path, match=match, without='--gin_file=runs/cpu.gin')


@pytest.mark.parametrize('damage', ['truncated', 'flipped'])
def test_a_damaged_checkpoint_and_the_complete_one(refused, copy, damage):
  for path in copy.glob('model.ckpt-2.data*'):
    content = bytearray(path.read_bytes())
    if damage == 'truncated':
      content = content[: len(content) // 2]
    elif content:
      content[len(content) // 2] ^= 1
    path.write_bytes(content)
  match = 'damaged in .*: model.ckpt-2 .*Complete: model.ckpt-0'
  refused(copy, match=match, steps=4)
