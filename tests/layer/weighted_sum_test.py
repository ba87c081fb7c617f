"""Which way to the weighted sum is taken."""

import numpy as np
import pytest

from tests import family, harness
from tests.harness import DECODER, ENCODER

ROWS = np.array([[1] * 7, [1, 1, 1, 1, 0, 0, 0]])
SPLIT = harness.Mesh('model:2', 'memory_length:model')


@pytest.mark.parametrize(
  'name, shared, settings',
  [
    ('random', True, {}),
    ('random', True, {'dropout_rate': 0.5}),
    ('random', True, {'relative_attention_type': 'bias'}),
    ('random', True, {'normalize': None}),
    ('dense', False, {}),
    ('random_vanilla', False, {}),
    ('random', False, {'packed': True}),
    (
      'random',
      False,
      {
        'dropout_rate': 0.5,
        'attention_kwargs': {'dropout_broadcast_dims': []},
      },
    ),
    # Without dropout, its dimensions are of no account.
    ('random', True, {'attention_kwargs': {'dropout_broadcast_dims': []}}),
    ('random', False, {'relative_attention_type': 'contextual'}),
  ],
)
@pytest.mark.parametrize('stack', [ENCODER, DECODER], ids=lambda s: s.name)
def test_the_way_follows_from_what_depends_on_the_batch(
  name, shared, settings, stack
):
  x = family.tokens(ROWS)
  result = harness.parallel(family.ALL[name].maker(**settings), x, ROWS, stack)
  largest = max(
    int(np.prod(shape)) for _, shape in result.shapes if shape[-2:] == (7, 7)
  )
  examples = 1 if shared else len(ROWS)
  assert largest == examples * family.HEADS * 7 * 7


@pytest.mark.parametrize('name', ['random', 'random_vanilla'])
def test_where_the_mesh_splits_the_memory_the_result_is_the_same(name):
  """There is no fused softmax then, and no shared way."""
  maker = family.ALL[name].of_size(max_length=8).maker()
  ids = np.concatenate([ROWS, ROWS[:, :1]], axis=1)
  one, many = (
    harness.parallel(maker, family.tokens(ids), ids, DECODER, mesh=mesh)
    for mesh in (harness.ONE_DEVICE, SPLIT)
  )
  harness.assert_close(many.output, one.output, 'output')
  harness.assert_close(many.gradients, one.gradients, 'gradient')
