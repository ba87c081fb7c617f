"""What a conversion makes of each value, in a model of one block.

That models compute the same is tested with whole ones, in conversion_test.py.
"""

import functools

import numpy as np
import pytest

from synth_mtf.checkpoints import files
from synth_mtf.checkpoints.conversion import Conversion
from synth_mtf.checkpoints.files import Checkpoint
from synth_mtf.errors import UserError
from synth_mtf.host import gin_files, model as host_model
from tests import model

ONE = (*model.TINY, 'num_layers = 1')
BLOCK = 'encoder/block_000/layer_000'
OURS, T5 = f'{BLOCK}/SyntheticAttention', f'{BLOCK}/SelfAttention'
MIXTURE = 'random_vanilla'


@functools.cache
def built(variant, *bindings):
  gin_files.parse(model.files(variant), [*ONE, *bindings])
  return host_model.build(model.VOCAB)


@pytest.fixture(scope='module')
def stored(tmp_path_factory):
  """Makes a checkpoint of a variant, with the same values in each test."""

  def make(variant, **changed):
    random = np.random.RandomState(3)
    values = {'global_step': np.array(7, np.int64)}
    for name, variable in sorted(built(variant).variables.items()):
      shape = variable.shape.as_list()
      values[name] = random.normal(size=shape).astype(np.float32)
      for end, value in changed.items():
        if name.endswith(f'/{end}'):
          values[name] = np.full(shape, 0, np.float32) + value
    for name in ('q', 'v'):
      slot = f'{T5}/{name}_slot_vr'
      if f'{T5}/{name}' in values:
        values[slot] = np.ones([24], np.float32)
    folder = tmp_path_factory.mktemp('stored')
    return Checkpoint(files.write(str(folder), 7, values))

  return make


def column(*rows):
  return np.array(rows, np.float32)[:, np.newaxis]


def test_t5_starts_a_mixture_that_computes_the_same(stored):
  t5 = stored(None)
  made = Conversion(t5, None, built(MIXTURE))
  assert made.exact and not made.reread
  assert made.rounding[0] == 0
  assert made.values['global_step'] == 7
  values = made.values
  assert not values[f'{OURS}/random/R'].any()
  assert not values[f'{OURS}/alpha'].any()
  # Half of twice the logits are the logits.
  np.testing.assert_allclose(values[f'{OURS}/q'], 2 * t5[f'{T5}/q'])
  for name in ('k', 'v', 'o'):
    np.testing.assert_array_equal(values[f'{OURS}/{name}'], t5[f'{T5}/{name}'])
  for name in t5.weights:
    if 'SelfAttention' not in name:
      np.testing.assert_array_equal(values[name], t5[name], name)
  # Slots are those of the same value.
  assert f'{OURS}/v_slot_vr' in values
  assert f'{OURS}/q_slot_vr' not in values


def test_heads_keep_their_own_shares(stored):
  alphas = np.log(np.array([[1, 3, 1], [1, 1, 3]], np.float32))
  mixture = stored(MIXTURE, alpha=alphas, R=0.0)
  made = Conversion(mixture, built(MIXTURE), built(None))
  assert made.exact
  shares = np.array([0.5, 0.25, 0.75], np.float32)[:, np.newaxis]
  before = mixture[f'{OURS}/q'].reshape(24, 3, 8)
  found = made.values[f'{T5}/q'].reshape(24, 3, 8)
  np.testing.assert_allclose(found, before * shares, rtol=1e-6)


@pytest.mark.parametrize(
  ('alpha', 'is_lost'),
  [([-30, 30], False), ([-10, 10], False), ([-5, 5], True), ([0, 0], True)],
)
def test_what_contributes_is_not_dropped(stored, alpha, is_lost):
  mixture = stored(MIXTURE, alpha=column(*alpha))
  if not is_lost:
    assert Conversion(mixture, built(MIXTURE), built(None)).exact
    return
  message = 'random contributes to the logits .alpha up to'
  with pytest.raises(UserError, match=message):
    Conversion(mixture, built(MIXTURE), built(None))


def test_a_function_of_zero_may_be_dropped(stored):
  mixture = stored(MIXTURE, alpha=column(0, 0), R=0.0)
  assert Conversion(mixture, built(MIXTURE), built(None)).exact


def test_another_function_starts_as_a_new_model_does(stored):
  made = Conversion(stored(None), None, built('random'))
  assert not made.exact
  assert 0.8 < made.values[f'{OURS}/random/R'].std() < 1.2


def test_of_a_new_function_the_last_factor_alone_is_zero(stored):
  made = Conversion(stored(None), None, built('dense_vanilla'))
  assert made.exact
  assert not made.values[f'{OURS}/dense/W2'].any()
  assert (made.values[f'{OURS}/dense/W1'] != 0).all()


@pytest.mark.parametrize('bias', [0.0, 0.5])
def test_a_bias_of_values_may_be_dropped_if_it_is_zero(stored, bias):
  with_bias = built('random', 'SyntheticAttention.value_bias = True')
  values = {name: stored('random')[name] for name in built('random').variables}
  for name in with_bias.variables.keys() - values.keys():
    values[name] = np.full([3, 8], bias, np.float32)
  source = Checkpoint(files.write(stored('random').path + '_bias', 7, values))
  made = Conversion(source, with_bias, built('random'))
  assert made.exact == (bias == 0)


def test_an_ensemble_is_refused(stored):
  target = built('random', 'Unitransformer.ensemble = 2')
  with pytest.raises(UserError, match='ensembles cannot be converted'):
    Conversion(stored('random'), None, target)


@pytest.mark.parametrize(
  ('binding', 'exact', 'reread'),
  [
    ('num_layers = 1', True, False),
    ("SyntheticAttention.index_by = 'row'", True, True),
    ('SyntheticAttention.normalize = None', False, False),
    ("DenseReluDense.activation = 'gelu'", False, False),
    ('SyntheticAttention.value_bias = True', True, False),
  ],
)
def test_the_same_functions_with_another_setting(
  stored, binding, exact, reread
):
  mixture = stored(MIXTURE)
  made = Conversion(mixture, built(MIXTURE), built(MIXTURE, binding))
  assert (made.exact, made.reread) == (exact, reread)
  for name in mixture.weights:
    np.testing.assert_array_equal(made.values[name], mixture[name], name)
  bias = made.values.get(f'{OURS}/v_bias', np.zeros(1))
  assert not bias.any()


@pytest.mark.parametrize('length', [20, 9])
def test_tables_of_another_length(stored, length):
  random = stored('random')
  target = built('random', f'Unitransformer.max_length = {length}')
  message = f'is for max_length 14 in the checkpoint and {length} in the model'
  with pytest.raises(UserError, match=message):
    Conversion(random, None, target)
  made = Conversion(random, None, target, resize=True)
  table, before = made.values[f'{OURS}/random/R'], random[f'{OURS}/random/R']
  both = min(length, 14)
  assert table.shape[-2:] == (length, length)
  np.testing.assert_array_equal(table[:, :both, :both], before[:, :both, :both])
  assert (table != 0).all()


def test_other_sizes_are_not_resized(stored):
  with pytest.raises(UserError, match='they are of different sizes'):
    Conversion(stored('random'), None, built('random', 'd_ff = 21'), True)


def test_what_is_rounded_is_told(stored):
  t5 = stored(None)
  binding = "utils.get_variable_dtype.master_dtype = 'bfloat16'"
  made = Conversion(t5, None, built(None, binding))
  most, name = made.rounding
  assert 0 < most < 0.02 * np.abs(t5[name]).max()
  errors = [
    np.abs(made.values[x].astype(np.float32) - t5[x]).max() for x in t5.weights
  ]
  assert most == max(errors)
