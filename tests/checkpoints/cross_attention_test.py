"""T5's cross-attention as ours, and back, down to the logits."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import utils

from synth_mtf import cli
from synth_mtf.checkpoints.files import Checkpoint, write
from synth_mtf.host import gin_files
from synth_mtf.host import model as host_model
from tests import family, model
from tests.harness import assert_close

pytestmark = pytest.mark.slow  # builds whole models

WITH_VANILLA = sorted(
  name for name in family.CROSS_VARIANTS if name.endswith('vanilla')
)
LAYER = 'decoder/block_000/layer_001/'


@pytest.fixture(scope='module')
def t5(tmp_path_factory):
  return model.write(tmp_path_factory.mktemp('t5'))


def convert(source, folder, variant, *arguments, bindings=()):
  """Runs the command, which must succeed; returns the new checkpoint's path."""
  words = ['checkpoint', 'convert', source, folder, *arguments]
  words += [f'--gin_file={file}' for file in model.files(variant)]
  words += [f'--gin_param={b}' for b in (*model.TINY, *bindings)]
  assert cli.main([str(w) for w in words]) == 0
  return tf.train.latest_checkpoint(str(folder))


def source_of(variant):
  return [f'--source_gin_file={f}' for f in model.files(variant)]


@pytest.mark.parametrize(
  'variant', [*WITH_VANILLA, 'random_vanilla+cross_random_vanilla']
)
def test_t5_computes_the_same_in_what_contains_it(
  t5, tmp_path, variant, capsys
):
  path = convert(t5, tmp_path, variant)
  assert 'computes what the source computes' in capsys.readouterr().out
  assert_close(model.logits(path, variant), model.logits(t5), variant)
  for name in (f'{LAYER}SyntheticEncDecAttention/{v}' for v in 'vo'):
    np.testing.assert_array_equal(
      Checkpoint(path)[name],
      Checkpoint(t5)[name.replace('Synthetic', '')],
    )


def test_t5_starts_what_does_not_contain_it(t5, tmp_path, capsys):
  path = convert(t5, tmp_path, 'cross_random')
  out = capsys.readouterr().out
  assert 'does not compute' in out
  assert f'{LAYER}EncDecAttention/q' in out.split('left over')[1]
  scope = f'{LAYER}SyntheticEncDecAttention'
  table = Checkpoint(path)[f'{scope}/random/R']
  assert 0.8 < table.std() < 1.2
  np.testing.assert_array_equal(
    Checkpoint(path)[f'{scope}/v'], Checkpoint(t5)[f'{LAYER}EncDecAttention/v']
  )


def test_back_to_t5(t5, tmp_path, capsys):
  variant = 'cross_random_vanilla'
  mixture = convert(t5, tmp_path / 'a', variant)
  path = convert(mixture, tmp_path / 'b', None, *source_of(variant))
  assert capsys.readouterr().out.count('computes what the source computes') == 2
  assert set(Checkpoint(path).weights) == set(Checkpoint(t5).weights)
  assert_close(model.logits(path), model.logits(t5))


def test_a_bias_that_early_checkpoints_have_for_nothing(t5, tmp_path, capsys):
  source = Checkpoint(t5)
  values = {n: source[n] for n in source.kinds}
  bias = f'{LAYER}EncDecAttention/relative_attention_bias'
  values[bias] = np.ones([3, 32], np.float32)
  path = write(str(tmp_path / 'a'), 7, values.items())
  path = convert(path, tmp_path / 'b', 'cross_random_vanilla')
  out = capsys.readouterr().out
  assert 'computes what the source computes' in out
  assert bias in out.split('left over')[1]
  assert_close(model.logits(path, 'cross_random_vanilla'), model.logits(t5))


def test_another_length_of_either_side(tmp_path, capsys):
  variant = 'cross_random'
  lengths = ['decoder/Unitransformer.max_length = 10']
  source = model.write(tmp_path / 'a', variant, lengths)
  table = f'{LAYER}SyntheticEncDecAttention/random/R'
  assert Checkpoint(source)[table].shape == (3, 10, 14)
  longer = [*lengths, 'encoder/Unitransformer.max_length = 20']
  files = source_of(variant)
  words = ['checkpoint', 'convert', source, tmp_path / 'b', *files]
  words += [f'--gin_file={file}' for file in model.files(variant)]
  words += [f'--gin_param={b}' for b in (*model.TINY, *longer)]
  assert cli.main([str(w) for w in words]) == 2
  assert 'for max_length 14 in the checkpoint and 20' in capsys.readouterr().err
  path = convert(
    source, tmp_path / 'b', variant, *files, '--resize', bindings=longer
  )
  assert Checkpoint(path)[table].shape == (3, 10, 20)
  assert_close(
    model.logits(path, variant, longer), model.logits(source, variant, lengths)
  )


def test_warm_start_finds_both_kinds_of_attention(t5):
  gin_files.parse(
    [
      *model.files('random_vanilla+cross_factorized_random_vanilla'),
      'common/warm_start.gin',
    ],
    [
      *model.TINY,
      "utils.run.mesh_shape = ''",
      f"utils.run.init_checkpoint = '{t5}'",
    ],
  )
  built = host_model.build(model.VOCAB)
  with built.graph.as_default():
    names = {
      name: utils.init_checkpoint_variable_mapping(name)
      for name in built.variables
    }
  for variable in 'qkvo':
    assert (
      names[f'{LAYER}SyntheticEncDecAttention/{variable}']
      == f'{LAYER}EncDecAttention/{variable}'
    )
  own = 'decoder/block_000/layer_000/'
  assert names[f'{own}SyntheticAttention/q'] == f'{own}SelfAttention/q'
