"""Models that differ although their variables do not."""

import contextlib
import json

import pytest

from synth_mtf.checkpoints import layer_settings
from synth_mtf.errors import UserError
from synth_mtf.host import gin_files
from synth_mtf.host import model as host_model
from tests import model

SWAPPED = 'SyntheticAttention.synthesizers = [@DotProduct, @Random]'


def made(variant='random_vanilla', *bindings):
  gin_files.parse(model.files(variant), [*model.TINY, *bindings])
  return host_model.make_transformer(model.VOCAB)


@pytest.fixture
def checkpoint(tmp_path):
  """The path of a checkpoint of `random_vanilla`, of which nothing is read."""
  layer_settings.record(made(), str(tmp_path))
  (tmp_path / 'model.ckpt-2.index').touch()
  return str(tmp_path / 'model.ckpt-2')


def test_what_is_written(checkpoint, tmp_path):
  groups = json.loads((tmp_path / layer_settings.FILE).read_text())
  (ours,) = (group for group in groups if 'mixing' in group)
  assert ours['layers'] == [
    f'{stack}/block_{block:03d}/layer_000/SyntheticAttention'
    for stack in ('encoder', 'decoder')
    for block in range(2)
  ]
  assert ours['synthesizers'] == ['random', 'dot_product']
  assert (ours['mixing'], ours['normalize']) == ('softmax', 'softmax')
  assert ours['index_by'] == 'position'
  (feed_forward,) = (group for group in groups if 'activation' in group)
  assert feed_forward['activation'] == 'relu'
  assert len(feed_forward['layers']) == 4


def test_the_same_model_goes_on(checkpoint):
  layer_settings.check(made(), checkpoint)
  layer_settings.check(made(), checkpoint, starts=True)
  other_folder = checkpoint.replace('model.ckpt', 'other/model.ckpt')
  layer_settings.check(made('dense'), other_folder)  # has no record
  assert all(
    'mixing' not in x for x in layer_settings.describe(made('random')).values()
  )


@pytest.mark.parametrize(
  ('binding', 'message'),
  [
    (SWAPPED, r"synthesizers is \['random', 'dot_product'\] in the checkpoint"),
    ("SyntheticAttention.mixing = 'sum'", "mixing is 'softmax' in the"),
    ('SyntheticAttention.normalize = None', "normalize is 'softmax' in"),
    ("SyntheticAttention.index_by = 'row'", "index_by is 'position' in"),
    (
      "decoder/SyntheticAttention.index_by = 'row'",
      r'index_by is .*\(decoder/block_000/layer_000/\S+ and 1 more\)',
    ),
    ("DenseReluDense.activation = 'gelu'", "activation is 'relu' in the"),
    (
      "SyntheticAttention.mixing = 'sum';SyntheticAttention.index_by = 'row'",
      r"'softmax'.* and 3 more\); index_by",
    ),
  ],
)
def test_another_one_does_not(checkpoint, binding, message):
  changed = made('random_vanilla', *binding.split(';'))
  with pytest.raises(UserError, match=f'same shapes: .*{message}'):
    layer_settings.check(changed, checkpoint)


@pytest.mark.parametrize(
  'variant, binding, starts',
  [
    ('dense_vanilla', '', True),
    ('random_vanilla', "SyntheticAttention.index_by = 'row'", True),
    ('random_vanilla', SWAPPED, False),
  ],
)
def test_what_may_start_from_a_checkpoint(checkpoint, variant, binding, starts):
  """More than may resume from it."""
  changed = made(variant, binding)
  refused = pytest.raises(UserError, match='(synthesizers|index_by) is')
  with refused:
    layer_settings.check(changed, checkpoint)
  with contextlib.nullcontext() if starts else refused:
    layer_settings.check(changed, checkpoint, starts=True)
