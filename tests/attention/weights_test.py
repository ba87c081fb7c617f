"""Attention of whole models, against NumPy from checkpoint and embedding."""

import numpy as np
import pytest

from synth_mtf.attention import weights
from synth_mtf.attention.examples import Examples
from synth_mtf.attention.file import SIDES
from synth_mtf.checkpoints.files import Checkpoint
from synth_mtf.errors import UserError
from synth_mtf.host import gin_files
from tests import family, model
from tests.harness import assert_close

pytestmark = pytest.mark.slow  # builds whole models

SIZES = dict.fromkeys(('inputs', 'targets'), model.VOCAB)
IDS = {
  'encoder': [[5, 17, 3, 99, 6, 1], [8, 44, 1]],
  'decoder': [[9, 23, 1], [31, 7, 12, 60, 1]],
}
HEADS, D_KV = 3, 8


def stacks(path, variant, ids=IDS, bindings=()):
  gin_files.parse(model.files(variant), [*model.TINY, *bindings])
  examples = Examples(ids, {}, {})
  checkpoint = path and Checkpoint(path)
  return weights.compute('run', 'label', examples, SIZES, checkpoint).stacks


@pytest.fixture(scope='module')
def path(tmp_path_factory):
  return model.write(tmp_path_factory.mktemp('model'), 'random_vanilla')


def first_layer(checkpoint, side, layer='SyntheticAttention'):
  """The variables of a stack's first layer, and its input's scale."""
  scope = f'{side}/block_000/layer_000'
  variables = {
    name[len(f'{scope}/{layer}/') :]: checkpoint[name].astype(np.float64)
    for name in checkpoint.weights
    if name.startswith(f'{scope}/{layer}/')
  }
  return variables, checkpoint[f'{scope}/rms_norm/scale'].astype(np.float64)


def normalized(checkpoint, tokens, scale):
  """What T5's first layer of a stack gets: RMS norm of the embedding."""
  x = checkpoint['shared/embedding'].astype(np.float64)[tokens]
  return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * scale


@pytest.mark.parametrize('side', IDS)
@pytest.mark.parametrize(
  'variant', ['random_vanilla', 'random', 'dense_vanilla', None]
)
def test_first_layers_against_numpy(tmp_path, variant, side):
  path = model.write(tmp_path, variant)
  found = stacks(path, variant)[side]
  checkpoint = Checkpoint(path)
  layer = 'SyntheticAttention' if variant else 'SelfAttention'
  variables, scale = first_layer(checkpoint, side, layer)
  expected = (
    family.ALL[variant or 'vanilla']
    .but(num_heads=HEADS, key_value_size=D_KV, relative_attention_type='bias')
    .reference
  )
  for number, ids in enumerate(IDS[side]):
    tokens = ids if side == 'encoder' else [0, *ids[:-1]]
    n = len(tokens)
    one = expected(
      normalized(checkpoint, tokens, scale), variables, side == 'decoder'
    )
    shown = one.weights != 0
    row = number if found.logits.shape[1] > 1 else 0
    assert_close(
      np.where(shown, found.logits[0, row, :, :n, :n], 0),
      np.where(shown, one.logits, 0),
      f'logits of {number}',
    )
    row = number if found.weights.shape[1] > 1 else 0
    assert_close(
      found.weights[0, row, :, :n, :n], one.weights, f'weights of {number}'
    )


def test_stacks_and_shapes(path):
  found = stacks(path, 'random_vanilla')
  shapes = {name: stack.weights.shape for name, stack in found.items()}
  assert shapes == {
    'encoder': (2, 2, HEADS, 6, 6),
    'decoder': (2, 2, HEADS, 5, 5),
    'cross': (2, 2, HEADS, 5, 6),
  }
  assert found['encoder'].functions == ('R', 'V')
  assert found['encoder'].alpha.shape == (2, HEADS, 2)
  np.testing.assert_allclose(found['encoder'].alpha.sum(-1), 1, rtol=1e-6)
  assert found['cross'].alpha is None and found['cross'].functions == ()
  for name, stack in found.items():
    queries, memory = SIDES[name]
    for row in range(2):
      n, m = len(IDS[queries][row]), len(IDS[memory][row])
      weights = stack.weights[:, row]
      assert not weights[:, :, n:].any(), 'padding looks at nobody'
      assert not weights[..., m:].any(), 'nobody looks at padding'
      np.testing.assert_allclose(weights[:, :, :n].sum(-1), 1, rtol=1e-5)
  encoder = {'encoder': IDS['encoder']}
  (alone,) = stacks(path, 'random_vanilla', encoder).values()
  assert_close(alone.weights, found['encoder'].weights, 'the encoder alone')


def test_what_is_batch_shared_is_there_once(tmp_path):
  """Weights, too, where examples are of one length, or none looks ahead."""
  path = model.write(tmp_path, 'random')
  found = stacks(path, 'random')
  assert found['encoder'].logits.shape[1] == 1
  assert found['encoder'].weights.shape[1] == 2
  assert found['decoder'].logits.shape[1] == 1
  assert found['decoder'].weights.shape[1] == 1
  alike = {'encoder': [[5, 4, 1], [7, 9, 1], [6, 6, 1]]}
  shared = stacks(path, 'random', alike)['encoder']
  assert shared.weights.shape[1] == 1
  (alone,) = stacks(path, 'random', {'encoder': [[5, 4, 1]]}).values()
  assert_close(shared.weights, alone.weights, 'weights')


def test_a_language_model(tmp_path):
  bindings = ['utils.run.model_type = "lm"']
  path = model.write(tmp_path, 'random_vanilla', bindings)
  ids = {'decoder': IDS['decoder']}
  found = stacks(path, 'random_vanilla', ids, bindings)
  assert set(found) == {'decoder'}
  assert not np.triu(found['decoder'].weights, 1).any()


def test_initial_weights(path):
  """They need no checkpoint, repeat, and are not those of a trained model."""
  trained = stacks(path, 'random_vanilla')['encoder']
  first, second = (stacks(None, 'random_vanilla') for _ in range(2))
  np.testing.assert_array_equal(
    first['encoder'].weights, second['encoder'].weights
  )
  assert np.abs(first['encoder'].weights - trained.weights).max() > 0.01


@pytest.mark.parametrize(
  'variant, ids, message',
  [
    ('dense', IDS, 'was made by another model'),
    ('random_vanilla', {'encoder': [[5] * 15]}, 'max_length'),
    ('lightconv', {'encoder': IDS['encoder']}, 'LocalConvAttnBlock'),
  ],
)
def test_what_does_not_fit(path, variant, ids, message):
  """The checkpoint; without one, layers that have no weights."""
  with pytest.raises(UserError, match=message):
    stacks(None if variant == 'lightconv' else path, variant, ids)


def test_linformer_is_left_out_of_the_encoder():
  assert set(stacks(None, 'linformer')) == {'decoder', 'cross'}


def test_what_is_written(path):
  gin_files.parse(model.files('random_vanilla'), model.TINY)
  found = weights.compute(
    'a/run',
    'Syn (R+V)',
    Examples(
      {'encoder': IDS['encoder']},
      {'encoder': [list('abcdef'), list('xyz')]},
      {'encoder': ['abcdef', 'xyz']},
    ),
    SIZES,
    Checkpoint(path),
  )
  assert found.step == 7
  assert list(found.tokens['encoder'][1]) == ['x', 'y', 'z', '', '', '']
  assert found.weights('encoder', 1).shape == (2, HEADS, 3, 3)
