"""Checkpoints of one model converted to another's, down to the logits."""

import functools
import re

import gin
import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.checkpoints.files import Checkpoint, write
from synth_mtf.errors import UserError
from synth_mtf.host import gin_files, model as host_model
from synth_mtf.synthesizers.dot_product import DotProduct
from tests import family, model
from tests.cli.command import run
from tests.harness import assert_close

pytestmark = pytest.mark.slow  # builds whole models

# What contains T5 can compute what T5 computes.
WITH_VANILLA = [
  name
  for name, member in family.VARIANTS.items()
  if any(isinstance(f, DotProduct) for f in member.functions())
  and member.reference.normalize == 'softmax'
]
CROSS_WITH_VANILLA = [
  name for name in family.CROSS_VARIANTS if name.endswith('vanilla')
]
# Modes of mesh_tensorflow's Synthesizer, and the variants of the paper.
ORIGINALS = {
  'random': 'random',
  'dense_minus': 'dense',
  'random_plus': 'random_vanilla',
  'random_plus_alpha': 'random_vanilla',
  'dense_plus': 'dense_vanilla',
  'dense_plus_alpha': 'dense_vanilla',
}
SELF = 'decoder/block_001/layer_000/SelfAttention'
CROSS = 'decoder/block_000/layer_001/EncDecAttention'
SAME = 'computes what the source computes'
# One block in each stack shows what is not about several.
ONE = ('num_layers = 1',)
LONG = (*ONE, 'Unitransformer.max_length = 512')  # the table of the original
LONGER = (*ONE, 'Unitransformer.max_length = 20')

with_or_without_cross = pytest.mark.parametrize(
  'variant', ['random_vanilla', 'cross_random_vanilla']
)


def ours(scope):
  return scope.replace('Self', 'Synthetic').replace('Enc', 'SyntheticEnc')


def convert(path, folder, variant, source=None, bindings=(), resize=False):
  """Runs the command; returns the new checkpoint's path and what it printed."""
  words = ['checkpoint', 'convert', str(path), str(folder)]
  if source:
    words += [f'--source_gin_file={file}' for file in model.files(source)]
  if resize:
    words.append('--resize')
  words += [f'--gin_file={file}' for file in model.files(variant)]
  words += [f'--gin_param={b}' for b in (*model.TINY, *bindings)]
  status, out, err = run(*words)
  if status:
    raise UserError(err)
  return tf.train.latest_checkpoint(str(folder)), out


@functools.cache
def logits_of(path, variant=None, *bindings):
  """The logits of a checkpoint that several tests start from."""
  return model.logits(path, variant, bindings)


@pytest.fixture(scope='module')
def written(tmp_path_factory):
  """Writes a checkpoint of a variant with bindings, once."""
  return functools.cache(
    lambda variant, *bindings: model.write(
      tmp_path_factory.mktemp('written'), variant, bindings
    )
  )


def with_more(path, folder, values):
  """Writes a checkpoint again, with more variables."""
  source = Checkpoint(path)
  all_values = {**{n: source[n] for n in source.variables}, **values}
  return write(str(folder), 7, all_values)


@pytest.mark.parametrize(
  'source, variant, bindings',
  [
    *((None, v, ONE) for v in (*WITH_VANILLA, *CROSS_WITH_VANILLA)),
    *((None, f'as_original_dense_plus{end}', ONE) for end in ('', '_alpha')),
    # Scaling q for V would scale D as well.
    ('as_original_dense_plus', 'as_original_dense_plus_alpha', ONE),
    ('as_original_dense_plus', 'dense_vanilla', LONG),
    # Blocks after the first take its bias of distances.
    ('original_dense_plus_alpha', 'as_original_dense_plus_alpha', ()),
    ('as_original_dense_minus', 'dense', LONG),
    ('as_original_dense_minus', 'as_original_dense_plus', ONE),
    (None, 'random_vanilla+cross_random_vanilla', ()),
    (None, 'random_vanilla', ["SyntheticAttention.mixing = 'layer_softmax'"]),
    (None, 'random_vanilla', ["SyntheticAttention.mixing = 'sum'"]),
    ('vanilla', 'random_vanilla', ["utils.run.model_type = 'lm'"]),
    *((f'original_{mode}', v, LONG) for mode, v in ORIGINALS.items()),
  ],
  ids=str,
)
def test_a_model_that_computes_the_same(
  written, tmp_path, source, variant, bindings
):
  there = written(source, *bindings)
  path, out = convert(there, tmp_path, variant, bindings=bindings)
  assert SAME in out
  # The original's tables are those of as_original, even in packed rows.
  by_row = variant in ORIGINALS.values() or 'as_' in str(source)
  assert by_row or f'{SAME}.' in out
  assert Checkpoint(path).step == 7
  expected = logits_of(there, source, *bindings)
  assert_close(model.logits(path, variant, bindings), expected)


@pytest.mark.parametrize('mode', ORIGINALS)
@pytest.mark.parametrize('mirror', ['as_original', 'replaced'])
def test_to_a_mirror_of_the_original_layer_and_back(
  written, tmp_path, mode, mirror
):
  """What is trained here runs in stock mesh_tensorflow."""
  original = f'original_{mode}'
  variant = f'as_{original}'
  if mirror == 'replaced':
    variant = f'{original}+../common/replace_synthesizer'
  there = written(original, *LONG)
  path, out = convert(there, tmp_path / 'a', variant, bindings=LONG)
  assert SAME in out
  assert_close(
    model.logits(path, variant, LONG), logits_of(there, original, *LONG)
  )
  path, out = convert(path, tmp_path / 'b', original, variant, LONG)
  assert SAME in out
  back, stored = Checkpoint(path), Checkpoint(there)
  assert set(back.weights) == set(stored.weights)
  for name in stored.weights:
    np.testing.assert_array_equal(back[name], stored[name], name)


@pytest.mark.parametrize('are_named', [False, True])
def test_names_of_public_checkpoints(t5, tmp_path, are_named):
  """The public T5 1.0 has other names of norms, other models of layers."""
  there = Checkpoint(t5)
  public = model.with_public_names(there, tmp_path / 'a', are_named)
  path, out = convert(public, tmp_path / 'b', 'random_vanilla')
  assert f'{SAME}.' in out
  assert 'left over (0)' in out
  assert_close(model.logits(path, 'random_vanilla'), logits_of(t5))


@with_or_without_cross
def test_a_bias_that_early_checkpoints_have_and_do_not_use(
  t5, tmp_path, variant
):
  bias = f'{CROSS}/relative_attention_bias'
  path = with_more(t5, tmp_path / 'a', {bias: np.ones([3, 32], np.float32)})
  path, out = convert(path, tmp_path / 'b', variant)
  assert SAME in out
  assert bias in out.split('left over')[1]
  assert_close(model.logits(path, variant), logits_of(t5))


@pytest.mark.parametrize(
  'variant',
  ['random', 'dense', 'factorized_dense', 'fixed_patterns', 'cross_random'],
)
def test_t5_starts_other_variants(t5, tmp_path, variant):
  path, out = convert(t5, tmp_path, variant)
  assert 'does not compute' in out
  layer = CROSS if variant.startswith('cross') else SELF
  # Here query and key projections are left over; everything else is loaded.
  assert f'{layer}/q' in out.split('left over')[1]
  there, found = Checkpoint(t5), Checkpoint(path)
  np.testing.assert_array_equal(there[f'{layer}/v'], found[f'{ours(layer)}/v'])
  if variant in ('random', 'cross_random'):  # starts with its usual spread
    assert 0.8 < found[f'{ours(layer)}/random/R'].std() < 1.2


def test_new_weights_repeat_and_depend_on_the_seed(t5, tmp_path):
  def drawn(folder, *words):
    to = str(tmp_path / folder)
    files = [f'--gin_file={file}' for file in model.files('dense')]
    sizes = [f'--gin_param={binding}' for binding in model.TINY]
    command = ['checkpoint', 'convert', t5, to, *files, *sizes, *words]
    assert run(*command)[0] == 0
    return Checkpoint(to)[f'{ours(SELF)}/dense/W1']

  first = drawn('first')
  np.testing.assert_array_equal(drawn('again'), first)
  assert (drawn('other', '--seed=1') != first).any()


@with_or_without_cross
def test_back_to_t5(t5, tmp_path, variant):
  mixture, _ = convert(t5, tmp_path / 'a', variant)
  path, out = convert(mixture, tmp_path / 'b', None, variant)
  assert SAME in out
  assert set(Checkpoint(path).weights) == set(Checkpoint(t5).weights)
  assert_close(model.logits(path), logits_of(t5))


def test_alpha_at_the_vanilla_end_goes_back_to_t5(tmp_path):
  def at_the_end(name, value):
    if name.endswith('alpha'):
      value[:] = np.array([[-30.0], [30.0]])
    return value

  source = model.write(tmp_path, 'random_vanilla', change=at_the_end)
  path, _ = convert(source, tmp_path / 'b', None, 'random_vanilla')
  assert_close(model.logits(path), model.logits(source, 'random_vanilla'))


def test_what_contributes_is_not_dropped(tmp_path):
  path = model.write(tmp_path, 'random_vanilla')
  with pytest.raises(UserError, match='random contributes to the logits'):
    convert(path, tmp_path / 'b', None, 'random_vanilla')
  assert not (tmp_path / 'b').exists()
  with pytest.raises(UserError, match='--source_gin_file'):
    convert(path, tmp_path / 'b', None)


def test_the_defaults_of_the_original(tmp_path):
  """Where gin binds nothing but the mode."""
  bindings = [
    *ONE,
    'transformer_layers.Synthesizer.num_heads = 8',
    'transformer_layers.Synthesizer.key_value_size = 128',
    'transformer_layers.Synthesizer.dropout_rate = 0.0',
    'transformer_layers.Synthesizer.relative_attention_type = None',
  ]
  source = model.write(tmp_path / 'a', 'original_random_plus_alpha', bindings)
  variant = 'as_original_random_plus_alpha'
  gin_files.parse(
    [*model.files(variant), 'common/original_defaults.gin'], model.TINY
  )
  same = [
    *ONE,
    *(
      f'SyntheticAttention.{name} = {value!r}'
      for name, value in gin.get_bindings('SyntheticAttention').items()
      if name in ('num_heads', 'key_value_size', 'relative_attention_type')
    ),
  ]
  path, _ = convert(source, tmp_path / 'b', variant, bindings=same)
  assert_close(
    model.logits(path, variant, same),
    model.logits(source, 'original_random_plus_alpha', bindings),
  )


@pytest.mark.parametrize('mode', ['random', 'dense_plus_alpha'])
def test_a_warning_about_tables_learned_from_packed_rows(tmp_path, mode):
  source = model.write(tmp_path / 'a', f'original_{mode}', LONG)
  target = ORIGINALS[mode]
  _, out = convert(source, tmp_path / 'b', target, bindings=LONG)
  assert 'on rows that hold one sequence each. Warning:' in out
  # Not if the source's gin file says that they were not packed.
  (tmp_path / 'a' / 'operative_config.gin').write_text(
    "include 'sizes/tiny.gin'\n"
    f"include 'variants/original_{mode}.gin'\n"
    + '\n'.join([*model.TINY, *LONG, 'mesh_train_dataset_fn.pack = False'])
  )
  _, out = convert(source, tmp_path / 'c', target, bindings=LONG)
  assert f'{SAME}.' in out


def test_keys_and_values_of_one_projection_go_back_and_forth(written, tmp_path):
  source = written('as_original_random', *LONG)
  there, _ = convert(source, tmp_path / 'b', 'random', bindings=LONG)
  back, _ = convert(there, tmp_path / 'c', 'as_original_random', bindings=LONG)
  assert set(Checkpoint(back).weights) == set(Checkpoint(source).weights)
  assert_close(
    model.logits(there, 'random', LONG),
    model.logits(back, 'as_original_random', LONG),
  )


@pytest.mark.parametrize(
  'variant',
  [
    'random',
    'factorized_random',
    'dense',
    'factorized_dense',
    'convolution',
    'bottleneck_dense',
    'fixed_patterns',
    'random_dense_vanilla',
  ],
)
def test_tables_grow_with_max_length(tmp_path, variant):
  """Their first positions stay as they were, and so does everything else."""
  source = model.write(tmp_path / 'a', variant, ONE)
  gin_files.parse(model.files(variant), [*model.TINY, *LONGER])
  shapes = host_model.build(model.VOCAB).shapes
  before = Checkpoint(source)
  changed = {
    (there, here)
    for name, shape in shapes.items()
    for there, here in zip(
      before.variables[name].shape, shape.to_integer_list, strict=True
    )
    if there != here
  }
  arguments = (source, tmp_path / 'b', variant, variant, LONGER)
  if not changed <= {(14, 20)}:  # no table, but of another size
    with pytest.raises(UserError, match='max_length and factors'):
      convert(*arguments, resize=True)
    return
  if changed:
    with pytest.raises(UserError, match='max_length 14 .*20 .*--resize'):
      convert(*arguments)
  # A run writes all settings beside its checkpoints.
  gin_files.parse(model.files(variant), [*model.TINY, *ONE])
  (tmp_path / 'a' / 'operative_config.gin').write_text(gin.config_str())
  path, out = convert(source, tmp_path / 'b', variant, None, LONGER, True)
  same = variant != 'fixed_patterns'  # some of which depend on the length
  assert (f'the model {SAME}' in out) == same
  assert same == np.allclose(
    model.logits(path, variant, LONGER),
    model.logits(source, variant, ONE),
    atol=1e-5,
  )
  long = {'inputs': 20, 'targets': 17}
  assert np.isfinite(model.logits(path, variant, LONGER, long)).all()
  # And back again, to what it was at first.
  again, _ = convert(path, tmp_path / 'c', variant, variant, ONE, resize=True)
  longer, last = Checkpoint(path), Checkpoint(again)
  for name in before.weights:
    value = before[name]
    assert longer.variables[name].shape == tuple(shapes[name].to_integer_list)
    common = longer[name][tuple(map(slice, value.shape))]
    np.testing.assert_array_equal(common, value)
    np.testing.assert_array_equal(last[name], value)


def test_another_length_of_either_side_of_cross_attention(tmp_path):
  variant = 'cross_random'
  lengths = [*ONE, 'decoder/Unitransformer.max_length = 10']
  source = model.write(tmp_path / 'a', variant, lengths)
  table = f'{ours(CROSS)}/random/R'
  assert Checkpoint(source)[table].shape == (3, 10, 14)
  longer = [*lengths, 'encoder/Unitransformer.max_length = 20']
  arguments = (source, tmp_path / 'b', variant, variant, longer)
  with pytest.raises(UserError, match='for max_length 14 .*and 20'):
    convert(*arguments)
  path, _ = convert(*arguments, resize=True)
  assert Checkpoint(path)[table].shape == (3, 10, 20)
  assert_close(
    model.logits(path, variant, longer), model.logits(source, variant, lengths)
  )


@pytest.mark.parametrize('source', ['random', 'mlp_mixer'])
@pytest.mark.parametrize('target', ['random', 'mlp_mixer'])
def test_the_softmax_is_part_of_what_a_model_computes(
  written, tmp_path, source, target
):
  path = written(source, *ONE)
  _, out = convert(path, tmp_path / 'b', target, source, ONE)
  assert (f'the model {SAME}' in out) == (source == target)
  assert (tmp_path / 'b' / 'model.json').exists()
  gelu = [*ONE, "DenseReluDense.activation = 'gelu'"]
  _, out = convert(path, tmp_path / 'c', target, source, gelu)
  assert f'the model {SAME}' not in out


def test_a_bias_of_values_is_added_exactly_and_not_dropped_in_silence(
  t5, tmp_path
):
  biased = ['SyntheticAttention.value_bias = True']
  path, out = convert(t5, tmp_path / 'a', 'random_vanilla', bindings=biased)
  name = f'{ours(SELF)}/v_bias'
  assert f'the model {SAME}' in out and not Checkpoint(path)[name].any()
  for value, is_same in ((0.0, True), (1.0, False)):
    bias = np.full([3, 8], value, np.float32)
    path = with_more(path, tmp_path / f'b{value}', {name: bias})
    files = tmp_path / f'c{value}', 'random_vanilla', 'random_vanilla'
    _, out = convert(path, *files)
    assert (f'the model {SAME}' in out) == is_same


@pytest.mark.parametrize(
  'source, bindings, message',
  [
    (None, ['num_layers = 1'], 'block_001.* a layer that the model lacks'),
    (None, ['num_layers = 3'], 'no attention layer like encoder/block_002'),
    (None, ['d_ff = 21'], 'different sizes'),
    (None, ['num_heads = 6'], 'different sizes'),
    (None, ['num_heads = 5'], 'different sizes'),
    ('random_vanilla', ['num_heads = 6', 'd_kv = 4'], 'heads is 3 in .* and 6'),
    (None, ['Unitransformer.ensemble = 2'], 'ensembles cannot be converted'),
    ('original_factorized', [], 'gives all queries the same logits'),
  ],
)
def test_what_cannot_be_converted(t5, tmp_path, source, bindings, message):
  path = model.write(tmp_path / 'a', source) if source else t5
  with pytest.raises(UserError, match=message):
    convert(path, tmp_path / 'b', 'random_vanilla', source, bindings)
  assert not (tmp_path / 'b').exists()


@pytest.mark.parametrize(
  'name, shape, expected',
  [
    ('alpha', [2], r'alpha is \[2\] .* and \[1\] in the model'),
    ('pi/kernel', [3, 8, 512], r'\[3, 8, 512\] .* and \[8, 512\] in'),
    ('pi/kernel', [4, 512], r'\[4, 512\] .* and \[8, 512\] in the model'),
    ('pi/kernel', [8, 300], 'max_length 300 .* and 512'),
  ],
)
def test_variables_of_another_shape_than_the_originals(
  tmp_path, name, shape, expected
):
  path = model.write(tmp_path / 'a', 'original_dense_plus_alpha')
  full = f'encoder/block_001/layer_000/Synthesizer/{name}'
  values = {full: np.ones(shape, np.float32)}
  path = with_more(path, tmp_path / 'b', values)
  with pytest.raises(UserError, match=expected):
    convert(path, tmp_path / 'c', 'as_original_dense_plus_alpha')


def test_rounding_is_reported(t5, tmp_path):
  bfloat16 = ["utils.get_variable_dtype.master_dtype = 'bfloat16'"]
  _, out = convert(t5, tmp_path, 'random_vanilla', bindings=bfloat16)
  (error,) = re.findall(r'Warning: .* are rounded, by up to (\S+): bind', out)
  assert 1e-4 < float(error) < 1e-2


def test_only_unchanged_weights_keep_their_slots(t5, tmp_path):
  slots = {f'{SELF}/{name}_slot_vr': np.ones(24) for name in 'vq'}
  path = with_more(t5, tmp_path / 'a', slots)
  path, _ = convert(path, tmp_path / 'b', 'random_vanilla')
  assert Checkpoint(path).slots == [f'{ours(SELF)}/v_slot_vr']
  source = model.write(tmp_path / 'f', 'original_dense_plus_alpha')
  scope = 'encoder/block_000/layer_000/Synthesizer'
  slots = {f'{scope}/{name}_slot_v': np.ones(3) for name in ('alpha', 'q')}
  slots[f'{scope}/pi/kernel_slot_v'] = np.ones(3)
  path = with_more(source, tmp_path / 'g', slots)
  path, _ = convert(path, tmp_path / 'h', 'as_original_dense_plus_alpha')
  assert len(Checkpoint(path).slots) == 3
  # The original's R has its axes in another order.
  source = model.write(tmp_path / 'c', 'original_random', LONG)
  scope = 'encoder/block_000/layer_000/Synthesizer'
  slots = {f'{scope}/{name}_slot_v': np.ones(3) for name in ('R', 'o')}
  path = with_more(source, tmp_path / 'd', slots)
  path, _ = convert(path, tmp_path / 'e', 'random', bindings=LONG)
  assert Checkpoint(path).slots == [f'{scope[:-11]}SyntheticAttention/o_slot_v']
