"""Runs refuse checkpoints of another vocabulary, or of other layers."""

import contextlib
import json

import numpy as np
import pytest
from sentencepiece import sentencepiece_model_pb2

from synth_mtf.checkpoints import identity
from synth_mtf.checkpoints.files import write
from synth_mtf.checkpoints.folder import Folder
from synth_mtf.errors import UserError
from synth_mtf.host import gin_files, model as host_model
from synth_mtf.tasks import vocabulary
from tests import model

BYTES = vocabulary.load('bytes')  # 359 pieces, 384 rows
SWAPPED = 'SyntheticAttention.synthesizers = [@DotProduct, @Random]'
SUM = "SyntheticAttention.mixing = 'sum'"
ROW = "SyntheticAttention.index_by = 'row'"


def save(folder, rows):
  """Writes a checkpoint of nothing but an embedding."""
  return write(str(folder), 2, {'shared/embedding': np.zeros([rows, 4])})


@pytest.fixture(scope='module')
def models(tmp_path_factory):
  """Two vocabularies of one size."""
  paths = tuple(tmp_path_factory.mktemp('models') / name for name in 'ab')
  for path, text in zip(paths, ('a bird sang', 'my dog dug'), strict=True):
    vocabulary.train([f'{text} {i}' for i in range(99)], path, 26)
  return paths


def test_vocabularies_of_other_sizes(tmp_path):
  identity.check_vocabulary(BYTES, save(tmp_path / 'same', 384))
  with pytest.raises(UserError) as error:
    identity.check_vocabulary(BYTES, save(tmp_path / 'other', 32_128))
  for part in ('32128 rows', "'ByteVocabulary' of 359", '384', '--vocabulary'):
    assert part in str(error.value)


def test_other_pieces_of_the_same_size(models, tmp_path):
  first, second = (vocabulary.load(str(model)) for model in models)
  assert first.vocab_size == second.vocab_size
  folder = str(tmp_path)
  assert identity.recorded_vocabulary(folder) is None
  identity.record_vocabulary(
    second, Folder(folder)
  )  # by a run that came to nothing
  identity.record_vocabulary(first, Folder(folder))
  checkpoint = save(tmp_path, 128)
  identity.record_vocabulary(second, Folder(folder))  # stays what it was
  assert identity.recorded_vocabulary(folder) == str(models[0])
  identity.check_vocabulary(second, save(tmp_path / 'unknown', 128))
  again = tmp_path / 'again'  # trained from another file, as its name tells
  proto = sentencepiece_model_pb2.ModelProto.FromString(models[0].read_bytes())
  proto.trainer_spec.input[:] = ['other.txt']
  again.write_bytes(proto.SerializeToString())
  for same in (first, (first, first), vocabulary.load(str(again))):
    identity.check_vocabulary(same, checkpoint)
  with pytest.raises(UserError, match='has other pieces') as error:
    identity.check_vocabulary((second, second), checkpoint)
  assert all(str(model) in str(error.value) for model in models)


@pytest.mark.parametrize('content', [b'', b'{"a"', b'{}x', b'\xff\xfe'])
def test_a_damaged_record_is_named(tmp_path, content):
  (tmp_path / identity.VOCABULARY).write_bytes(content)
  with pytest.raises(UserError, match='y.json is damaged .*remove it if'):
    identity.recorded_vocabulary(str(tmp_path))


def made(variant='random_vanilla', *bindings):
  gin_files.parse(model.files(variant), [*model.TINY, *bindings])
  return host_model.make_transformer(model.VOCAB)


@pytest.fixture
def checkpoint(tmp_path):
  """The path of a checkpoint of `random_vanilla`, of which nothing is read."""
  identity.record_model(made(), Folder(str(tmp_path)))
  (tmp_path / 'model.ckpt-2.index').touch()
  return str(tmp_path / 'model.ckpt-2')


def test_what_is_written_of_layers(checkpoint, tmp_path):
  groups = json.loads((tmp_path / identity.MODEL).read_text())
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
  single = identity.describe(made('random')).values()
  assert all('mixing' not in settings for settings in single)


# Whether a model resumes from the checkpoint: '', or the message; and whether
# it may start from it.
@pytest.mark.parametrize(
  'variant, bindings, message, starts',
  [
    ('random_vanilla', [], '', True),
    ('random_vanilla', [SWAPPED], r"synthesizers is \['random', 'dot_p", False),
    ('random_vanilla', [SUM], "mixing is 'softmax' in .*; and 1 more,", False),
    (
      'random_vanilla',
      ['SyntheticAttention.normalize = None'],
      "normalize is 'softmax' in the checkpoint, None in the model",
      False,
    ),
    ('random_vanilla', [ROW], "index_by is 'position' in", True),
    ('random_vanilla', [f'decoder/{ROW}'], r'is .*\(decoder/block.*Att', True),
    (
      'random_vanilla',
      ["DenseReluDense.activation = 'gelu'"],
      "activation is 'relu' in the",
      True,
    ),
    ('dense_vanilla', [], 'synthesizers is', True),
    ('random_vanilla', ['num_heads = 6', 'd_kv = 4'], 'num_heads is 3', False),
  ],
)
def test_other_layers(checkpoint, variant, bindings, message, starts):
  changed = made(variant, *bindings)
  refused = pytest.raises(UserError, match=f'same shapes: .*{message}')
  with refused if message else contextlib.nullcontext():
    identity.check_model(changed, checkpoint)
  with contextlib.nullcontext() if starts else refused:
    identity.check_model(changed, checkpoint, starts=True)
  elsewhere = checkpoint.replace('model.ckpt', 'other/model.ckpt')
  identity.check_model(changed, elsewhere)  # has no record
