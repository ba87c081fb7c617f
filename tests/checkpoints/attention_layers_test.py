"""Attention layers of any class, read as ours: names, shapes and shares."""

import numpy as np
import pytest

from synth_mtf.checkpoints import attention_layers
from synth_mtf.checkpoints.attention_layers import VANILLA, Layer, Weight
from synth_mtf.checkpoints.files import Checkpoint, write
from synth_mtf.errors import UserError

PLACE = 'encoder/block_000/layer_000'
ORIGINAL = f'{PLACE}/Synthesizer'
OURS = f'{PLACE}/SyntheticAttention'
TABLE = np.arange(75, dtype=np.float32).reshape(5, 3, 5)


@pytest.fixture
def read(tmp_path):
  """Reads a layer without its model, given its variables."""

  def run(scope, **values):
    named = {
      f'{scope}/{name.replace("_", "/")}': np.asarray(value, np.float32)
      for name, value in values.items()
    }
    checkpoint = Checkpoint(write(str(tmp_path), 3, named))
    return attention_layers.read(checkpoint, scope, None)

  return run


def test_the_originals_table_has_its_heads_first_in_ours(read):
  layer = read(ORIGINAL, R=TABLE, q=[1], alpha=[2])
  np.testing.assert_array_equal(
    layer.weights['random/R'].value, TABLE.transpose(1, 0, 2)
  )
  assert layer.weights['random/R'].origin == f'{ORIGINAL}/R'
  assert 'R' not in layer.weights
  assert [*layer.functions] == ['random', VANILLA]
  assert layer.index_by == 'row'


def test_a_table_without_heads_is_read_as_it_is(read):
  """What does not fit is refused later, with its shape."""
  assert read(ORIGINAL, R=[1]).weights['random/R'].value.shape == (1,)


@pytest.mark.parametrize(
  ('values', 'message'),
  [
    ({'R': TABLE, 'alpha': [1, 2]}, r'alpha is \[2\] in the ckpt'),
    ({'R': TABLE, 'alpha': [[1]]}, r'alpha is \[1, 1\] in the ckpt'),
    ({'R1': TABLE}, 'mode "factorized" gives all queries the same'),
  ],
)
def test_an_original_that_has_no_counterpart(read, values, message):
  with pytest.raises(UserError, match=message.replace('ckpt', 'checkpoint')):
    read(ORIGINAL, **values)


def test_the_order_of_a_mixture_is_not_in_a_checkpoint(read):
  with pytest.raises(UserError, match='is a mixture, .*--source_gin_file'):
    read(OURS, random_R=TABLE, q=[1], alpha=[1])


def test_functions_are_known_by_their_variables(read):
  layer = read(OURS, random_R=TABLE, q=[1], k=[1], o=[1], v=[1])
  assert {*layer.functions} == {'random', VANILLA}
  assert layer.index_by == 'position'
  assert layer.weights['v'].origin == f'{OURS}/v'


@pytest.mark.parametrize(
  ('alpha', 'shares'),
  [
    (None, [1, 1]),
    (np.log([3.0, 1.0]), [0.75, 0.25]),
    (np.log([3.0]), [0.75, 0.25]),  # that of the last function is 0
  ],
)
def test_shares_are_a_softmax(alpha, shares):
  layer = Layer({'random': None, VANILLA: None})
  if alpha is not None:
    layer.weights['alpha'] = Weight(alpha)
  found = layer.shares()
  assert [*found] == ['random', VANILLA]
  assert [*found.values()] == pytest.approx(shares)


@pytest.mark.parametrize(
  ('variables', 'factors'),
  [
    (('q', 'k', 'v', 'o', 'random/R'), {'q': VANILLA, 'random/R': 'random'}),
    (('v', 'o'), {}),
    (('q', 'k', 'dense/W1', 'dense/W2'), {'q': VANILLA, 'dense/W2': 'dense'}),
    # The queries are the hidden layer of the Dense, too.
    (('q', 'k', 'dense/W2'), {'k': VANILLA, 'dense/W2': 'dense'}),
    (('q', 'dense/W2'), {'dense/W2': 'dense'}),
  ],
)
def test_what_scales_the_logits(variables, factors):
  assert attention_layers.last_factors(variables) == factors


def layer_of(**weights):
  functions = ['dense'] + [VANILLA] * ('k' in weights)
  named = {name.replace('_', '/'): x for name, x in weights.items()}
  return Layer(
    dict.fromkeys(functions),
    weights={
      name: Weight(np.asarray(x, np.float32), name) for name, x in named.items()
    },
  )


def test_a_dense_that_shares_the_queries_gets_its_own():
  q = np.arange(12).reshape(2, 6)
  shapes = {'dense/W1': [2, 3, 2], 'dense/W2': [3, 2, 4]}
  for has_keys in (False, True):
    w2 = np.ones([2, 4])
    layer = layer_of(q=q, dense_W2=w2, **({'k': [1]} if has_keys else {}))
    layer.separate_weights(shapes)
    found = layer.weights
    np.testing.assert_array_equal(found['dense/W1'].value, q.reshape(2, 3, 2))
    assert found['dense/W1'].origin == 'q'
    assert found['dense/W2'].value.shape == (3, 2, 4)
    assert ('q' in found) == has_keys


def test_what_the_target_shares_too_stays_shared():
  layer = layer_of(q=[[1]], dense_W2=[[1]])
  layer.separate_weights({'dense/W2': [1, 1]})
  assert {*layer.weights} == {'q', 'dense/W2'}


@pytest.mark.parametrize(
  ('has', 'needs', 'finds'),
  [('v', 'kv', 'kv'), ('kv', 'v', 'v'), ('v', 'v', 'v'), ('kv', 'kv', 'kv')],
)
def test_without_keys_one_projection_is_that_of_values(has, needs, finds):
  layer = layer_of(**{has: [1]})
  layer.separate_weights({needs: [1]})
  assert [*layer.weights] == [finds]
