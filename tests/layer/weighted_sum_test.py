"""Which way to the weighted sum is taken."""

from typing import Any

import numpy as np
import pytest

from tests import family, harness
from tests.family import PADDED
from tests.harness import DECODER, ENCODER

UNSHARED_DROPOUT: dict[str, Any] = {
  'attention_kwargs': {'dropout_broadcast_dims': []}
}


@pytest.mark.parametrize(
  'name, shared, settings',
  [
    ('random', True, {}),
    ('random', True, {'dropout_rate': 0.5}),
    ('random', True, {'relative_attention_type': 'bias'}),
    ('random', True, {'normalize': None}),
    # Without dropout, its dimensions do not matter.
    ('random', True, UNSHARED_DROPOUT),
    ('random', False, {'dropout_rate': 0.5, **UNSHARED_DROPOUT}),
    ('random', False, {'packed': True}),
    ('random', False, {'relative_attention_type': 'contextual'}),
    ('dense', False, {}),
    ('random_vanilla', False, {}),
  ],
)
@pytest.mark.parametrize('stack', [ENCODER, DECODER], ids=lambda s: s.name)
def test_the_way_follows_from_what_depends_on_the_batch(
  name, shared, settings, stack
):
  ids = PADDED.ids
  result = harness.parallel(
    family.ALL[name].but(**settings), family.tokens(ids), ids, stack
  )
  largest = max(
    int(np.prod(shape)) for _, shape in result.shapes if shape[-2:] == (7, 7)
  )
  examples = 1 if shared else len(ids)
  assert largest == examples * family.HEADS * 7 * 7


@pytest.mark.parametrize(
  'name, dim, size, mode',
  [
    ('random', 'memory_length', 2, 'train'),
    ('random', 'heads', 3, 'train'),
    ('random', 'batch', 2, 'train'),
    ('random_vanilla', 'memory_length', 2, 'train'),
    ('random_vanilla', 'heads', 3, 'train'),
    ('random_vanilla', 'batch', 2, 'train'),
    # The host cannot differentiate it.
    ('random_vanilla', 'd_kv', 5, 'eval'),
  ],
)
@pytest.mark.parametrize('settings', [{}, {'z_loss_coeff': 0.1}], ids=str)
def test_any_dimension_may_be_split(name, dim, size, mode, settings):
  """If it is memory_length, there is no fused softmax and no shared way."""
  ids = np.concatenate([PADDED.ids, PADDED.ids[:, :1]], axis=1)
  member = family.ALL[name].of_size(max_length=8).but(**settings)
  one, many = (
    harness.parallel(
      member, family.tokens(ids), ids, DECODER, mode=mode, mesh=mesh
    )
    for mesh in (
      harness.ONE_DEVICE,
      harness.Mesh(f'all:{size}', f'{dim}:all'),
    )
  )
  harness.assert_close(many.output, one.output, 'output')
  harness.assert_close(many.gradients, one.gradients, 'gradient')
  harness.assert_close(np.array(many.losses), np.array(one.losses), 'z loss')
