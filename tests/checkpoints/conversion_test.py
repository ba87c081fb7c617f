"""Checkpoints of one model turned into another's, down to the logits."""

import contextlib
import io
import pathlib
import re

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import utils

from synth_mtf import cli
from synth_mtf.checkpoints.files import Checkpoint, write
from synth_mtf.errors import UserError
from synth_mtf.host import gin_files
from synth_mtf.host import model as host_model
from synth_mtf.paths import gin_path
from tests import model
from tests.harness import assert_close

pytestmark = pytest.mark.slow  # builds whole models

VARIANTS = sorted(
  path.stem
  for path in pathlib.Path(gin_path(), 'variants').glob('*.gin')
  if 'SyntheticAttention.synthesizers' in path.read_text()
)
WITH_VANILLA = [v for v in VARIANTS if v.endswith('vanilla')]
ORIGINALS = {
  'original_random': 'random',
  'original_dense_minus': 'dense',
  'original_random_plus': 'random_vanilla',
  'original_random_plus_alpha': 'random_vanilla',
  'original_dense_plus': 'dense_vanilla',
  'original_dense_plus_alpha': 'dense_vanilla',
}


@pytest.fixture(scope='module')
def t5(tmp_path_factory):
  return model.write(tmp_path_factory.mktemp('t5'))


def convert(source, folder, variant, *arguments, bindings=()):
  """Runs the command; returns the new checkpoint's path and what it printed."""
  words = ['checkpoint', 'convert', str(source), str(folder), *arguments]
  words += [f'--gin_file={file}' for file in model.files(variant)]
  words += [f'--gin_param={b}' for b in (*model.TINY, *bindings)]
  status, out, err = run(*words)
  if status:
    raise UserError(err)
  return tf.train.latest_checkpoint(str(folder)), out


def run(*words):
  out, err = io.StringIO(), io.StringIO()
  with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
    status = cli.main([str(w) for w in words])
  return status, out.getvalue(), err.getvalue()


def test_variants_are_found():
  assert {'vanilla', 'random', 'random_vanilla'} <= set(VARIANTS)
  assert len(WITH_VANILLA) >= 5


@pytest.mark.parametrize(
  'variant, mixing',
  [(v, 'softmax') for v in WITH_VANILLA]
  + [('random_vanilla', m) for m in ('layer_softmax', 'sum')],
)
def test_t5_computes_the_same_in_what_contains_it(
  t5, tmp_path, variant, mixing
):
  bindings = [f"SyntheticAttention.mixing = '{mixing}'"]
  path, out = convert(t5, tmp_path, variant, bindings=bindings)
  assert 'computes what the source computes' in out
  assert Checkpoint(path).step == 7
  assert_close(model.logits(path, variant, bindings), model.logits(t5), variant)


def test_a_bias_that_early_checkpoints_have_for_nothing(t5, tmp_path):
  source = Checkpoint(t5)
  values = {n: source[n] for n in source.kinds}
  bias = 'decoder/block_000/layer_001/EncDecAttention/relative_attention_bias'
  values[bias] = np.ones([3, 32], np.float32)
  path = write(str(tmp_path / 'a'), 7, values.items())
  path, out = convert(path, tmp_path / 'b', 'random_vanilla')
  assert bias in out.split('left over')[1]
  assert_close(model.logits(path, 'random_vanilla'), model.logits(t5))


def test_a_language_model(tmp_path):
  bindings = ["utils.run.model_type = 'lm'"]
  source = model.write(tmp_path / 'a', 'vanilla', bindings)
  path, out = convert(
    source, tmp_path / 'b', 'random_vanilla', bindings=bindings
  )
  assert 'computes what the source computes' in out
  assert_close(
    model.logits(path, 'random_vanilla', bindings),
    model.logits(source, 'vanilla', bindings),
  )


def test_an_ensemble_is_refused(t5, tmp_path):
  with pytest.raises(UserError, match='no conversion of ensembles'):
    convert(
      t5,
      tmp_path / 'b',
      'random_vanilla',
      bindings=['Unitransformer.ensemble = 2'],
    )


@pytest.mark.parametrize('alpha', ['0.9', '1'])
def test_alpha_may_start_at_the_vanilla_end(t5, tmp_path, alpha):
  path, _ = convert(t5, tmp_path, 'random_vanilla', f'--vanilla_alpha={alpha}')
  assert_close(model.logits(path, 'random_vanilla'), model.logits(t5))
  scope = 'encoder/block_000/layer_000/SyntheticAttention'
  shares = np.exp(Checkpoint(path)[f'{scope}/alpha'])
  assert_close(shares[1] / shares.sum(0), np.full(3, float(alpha)))


@pytest.mark.parametrize(
  'variant', [v for v in VARIANTS if v not in WITH_VANILLA]
)
def test_t5_starts_every_other_variant(t5, tmp_path, variant):
  path, out = convert(t5, tmp_path, variant)
  assert 'does not compute' in out
  # Here query and key projections are left over; everything else is loaded.
  assert 'SelfAttention/q' in out.split('left over')[1]
  source, target = Checkpoint(t5), Checkpoint(path)
  name = 'decoder/block_001/layer_000/{}/v'
  np.testing.assert_array_equal(
    source[name.format('SelfAttention')],
    target[name.format('SyntheticAttention')],
  )


def test_random_keeps_its_initial_spread_where_it_replaces_attention(
  t5, tmp_path
):
  path, _ = convert(t5, tmp_path, 'random')
  table = Checkpoint(path)[
    'encoder/block_000/layer_000/SyntheticAttention/random/R'
  ]
  assert 0.8 < table.std() < 1.2


def test_back_to_t5(t5, tmp_path):
  mixture, _ = convert(t5, tmp_path / 'a', 'random_vanilla')
  files = [f'--source_gin_file={f}' for f in model.files('random_vanilla')]
  path, out = convert(mixture, tmp_path / 'b', None, *files)
  assert 'computes what the source computes' in out
  assert set(Checkpoint(path).weights) == set(Checkpoint(t5).weights)
  assert_close(model.logits(path), model.logits(t5))


def test_alpha_at_the_vanilla_end_goes_back_to_t5(tmp_path):
  def at_the_end(name, value):
    if name.endswith('alpha'):
      value[:] = np.array([[-30.0], [30.0]])
    return value

  source = model.write(tmp_path, 'random_vanilla', change=at_the_end)
  files = [f'--source_gin_file={f}' for f in model.files('random_vanilla')]
  path, _ = convert(source, tmp_path / 'b', None, *files)
  assert_close(model.logits(path), model.logits(source, 'random_vanilla'))


def test_what_contributes_is_not_dropped(tmp_path):
  source = model.write(tmp_path, 'random_vanilla')
  files = [f'--source_gin_file={f}' for f in model.files('random_vanilla')]
  with pytest.raises(UserError, match='random contributes to the logits'):
    convert(source, tmp_path / 'b', None, *files)
  assert not (tmp_path / 'b').exists()
  with pytest.raises(UserError, match='--source_gin_file'):
    convert(source, tmp_path / 'b', None)


@pytest.mark.parametrize('original', sorted(ORIGINALS))
def test_from_the_original_layer(tmp_path, original):
  source = model.write(tmp_path, original, ['Unitransformer.max_length = 512'])
  variant = ORIGINALS[original]
  bindings = ['Unitransformer.max_length = 512']
  path, out = convert(source, tmp_path / 'b', variant, bindings=bindings)
  assert 'computes what the source computes' in out
  assert_close(
    model.logits(path, variant, bindings),
    model.logits(source, original, bindings),
  )


def test_the_original_factorized_mode_is_refused(tmp_path):
  source = model.write(tmp_path, 'original_factorized')
  with pytest.raises(UserError, match='same logits'):
    convert(source, tmp_path / 'b', 'factorized_random')


@pytest.mark.parametrize(
  'variant',
  [
    'random',
    'factorized_random',
    'dense',
    'convolution',
    'random_dense_vanilla',
  ],
)
def test_another_max_length(tmp_path, variant):
  source = model.write(tmp_path / 'a', variant)
  files = [f'--source_gin_file={f}' for f in model.files(variant)]
  longer = ['Unitransformer.max_length = 20']
  with pytest.raises(UserError, match='max_length 14 .* 20 .*--resize'):
    convert(source, tmp_path / 'b', variant, *files, bindings=longer)
  path, _ = convert(
    source, tmp_path / 'b', variant, *files, '--resize', bindings=longer
  )
  assert_close(
    model.logits(path, variant, longer), model.logits(source, variant)
  )
  assert np.isfinite(
    model.logits(path, variant, longer, {'inputs': 20, 'targets': 17})
  ).all()
  # And back again: the result is what there was at first.
  again, _ = convert(path, tmp_path / 'c', variant, *files, '--resize')
  first, last = Checkpoint(source), Checkpoint(again)
  for name in first.weights:
    np.testing.assert_array_equal(first[name], last[name])


def test_factors_of_dense_cannot_be_resized(tmp_path):
  source = model.write(tmp_path / 'a', 'factorized_dense')
  with pytest.raises(UserError, match='a b = max_length'):
    convert(
      source,
      tmp_path / 'b',
      'factorized_dense',
      '--resize',
      bindings=['Unitransformer.max_length = 20'],
    )


@pytest.mark.parametrize(
  'binding, message',
  [
    ('num_layers = 1', 'layers that the model lacks .*block_001'),
    ('num_layers = 3', 'no self-attention in encoder/block_002'),
    ('d_ff = 21', 'different sizes'),
    ('num_heads = 6', 'different sizes'),
  ],
)
def test_another_size_is_refused(t5, tmp_path, binding, message):
  with pytest.raises(UserError, match=message):
    convert(t5, tmp_path / 'b', 'random_vanilla', bindings=[binding])
  assert not (tmp_path / 'b').exists()


def test_a_folder_with_checkpoints_is_not_overwritten(t5, tmp_path):
  convert(t5, tmp_path, 'random')
  before = (tmp_path / 'checkpoint').read_bytes()
  with pytest.raises(UserError, match='already holds'):
    convert(t5, tmp_path, 'random_vanilla')
  assert (tmp_path / 'checkpoint').read_bytes() == before


def test_slots_come_along_for_what_stays(t5, tmp_path):
  source = Checkpoint(t5)
  values = {n: source[n] for n in source.kinds}
  values['encoder/block_000/layer_000/SelfAttention/v_slot_vr'] = np.ones(24)
  values['encoder/block_000/layer_000/SelfAttention/q_slot_vr'] = np.ones(24)
  path = write(str(tmp_path / 'a'), 7, values.items())
  path, _ = convert(path, tmp_path / 'b', 'random_vanilla')
  assert Checkpoint(path).slots == [
    'encoder/block_000/layer_000/SyntheticAttention/v_slot_vr'
  ]


def test_inspect_and_compare(t5, tmp_path):
  status, out, _ = run('checkpoint', 'inspect', t5)
  assert status == 0 and 'step 7' in out and 'vocabulary of 128' in out
  assert 'encoder/block_000/layer_000/SelfAttention/q  [24, 24]  float32' in out
  path, _ = convert(t5, tmp_path, 'random_vanilla')
  status, out, _ = run('checkpoint', 'compare', t5, tmp_path)
  assert status == 0
  assert re.search(r'differs by .*SelfAttention/q', out)
  assert re.search(r'only in the second .*random/R', out)
  assert '4 of them with other values' in out


def _truncate(data, folder):
  data.write_bytes(data.read_bytes()[:1000])


def _flip(data, folder):
  content = bytearray(data.read_bytes())
  content[len(content) // 2] ^= 1
  data.write_bytes(bytes(content))


def _remove_index(data, folder):
  next(folder.glob('model.ckpt-9.index')).unlink()


def _remove_data(data, folder):
  data.unlink()


def _remove_pointer(data, folder):
  (folder / 'checkpoint').unlink()


@pytest.mark.parametrize(
  'damage, message',
  [
    (_truncate, 'damaged in .*model.ckpt-9 .*Complete: model.ckpt-7'),
    (_flip, 'damaged in .*model.ckpt-9 .*Complete: model.ckpt-7'),
    (_remove_index, 'points at .*model.ckpt-9, which is not there'),
    (_remove_data, 'damaged in .*model.ckpt-9 .*Complete: model.ckpt-7'),
    (_remove_pointer, 'holds model.ckpt-9, but the file .*checkpoint that'),
  ],
)
def test_a_damaged_checkpoint_is_named(t5, tmp_path, damage, message):
  source = Checkpoint(t5)
  values = {n: source[n] for n in source.kinds}
  write(str(tmp_path / 'other'), 7, values.items())
  write(str(tmp_path / 'a'), 9, values.items())
  for path in (tmp_path / 'other').glob('model.ckpt-7*'):
    path.rename(tmp_path / 'a' / path.name)
  folder = tmp_path / 'a'
  damage(next(folder.glob('model.ckpt-9.data*')), folder)
  for words in (
    ['inspect', folder],
    ['convert', folder, tmp_path / 'b', '--gin_file=sizes/tiny.gin'],
    ['compare', folder, t5],
  ):
    status, _, err = run('checkpoint', *words)
    assert status == 2 and re.search(message, err, re.S), err
    assert 'Traceback' not in err
  assert not list((tmp_path / 'b').glob('*.index'))


def training_names(variant, bindings=()):
  """Calls warm_start as the host does, and returns what it maps."""
  gin_files.parse(
    [*model.files(variant), 'common/warm_start.gin'],
    [*model.TINY, *bindings, "utils.run.mesh_shape = ''"],
  )
  built = host_model.build(model.VOCAB)
  with built.graph.as_default():
    return {
      name: utils.init_checkpoint_variable_mapping(name)
      for name in built.variables
    }


def test_warm_start_through_gin(t5):
  here = [f"utils.run.init_checkpoint = '{t5}'"]
  names = training_names('random_vanilla', here)
  scope = 'encoder/block_000/layer_000/'
  assert names[scope + 'SyntheticAttention/q'] == scope + 'SelfAttention/q'
  assert (
    names[scope + 'SyntheticAttention/random/R']
    == scope + 'SyntheticAttention/random/R'
  )
  assert names['shared/embedding'] == 'shared/embedding'


@pytest.mark.parametrize(
  'binding, message',
  [
    ('num_layers = 1', 'layers that the model lacks'),
    ('num_layers = 3', 'variables of the model are not in it'),
    ('d_ff = 21', 'other shapes or types'),
    (
      "tpu_estimator_model_fn.init_variable_filter = '^nowhere'",
      'nothing would be loaded',
    ),
    (
      "utils.get_variable_dtype.master_dtype = 'bfloat16'",
      r'bfloat16\S* .*in the model, float32\S* .*in it',
    ),
  ],
)
def test_warm_start_insists(t5, binding, message):
  here = [f"utils.run.init_checkpoint = '{t5}'", binding]
  with pytest.raises(UserError, match=message):
    training_names('random_vanilla', here)


def test_warm_start_from_another_max_length_says_how(tmp_path):
  path = model.write(tmp_path, 'random')
  here = [
    f"utils.run.init_checkpoint = '{path}'",
    'Unitransformer.max_length = 20',
  ]
  with pytest.raises(UserError, match='checkpoint convert.*--resize'):
    training_names('random', here)
