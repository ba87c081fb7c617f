"""What the layers of a model compute once, unless they are computed again."""

import pytest
from mesh_tensorflow.transformer import transformer

from synth_mtf.core.once import once
from tests import harness
from tests.core import calls


@pytest.mark.parametrize(
  'stack, shared',
  [
    (None, True),
    (transformer.LayerStack([]), True),
    (transformer.LayerStack([], recompute_grads=True), False),
    (transformer.ReversibleLayerStack([]), False),
  ],
  ids=['none', 'plain', 'recomputed', 'reversible'],
)
def test_layers_share_what_is_not_computed_again(stack, shared):
  with harness.new_graph() as (_, mesh):
    context = calls.make(mesh).context
    context.model.layer_stack = stack
    one, other = (once(context, 'x', lambda: object()) for _ in range(2))
    assert (one is other) == shared
    assert once(context, 'y', lambda: 3) == 3
