"""What runs attend to, against NumPy from checkpoint and embedding."""

import contextlib
import os
import shutil
from unittest import mock

import gin
import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf import tasks
from synth_mtf.attention import computation, examples, opening
from synth_mtf.attention.examples import ModelInputs
from synth_mtf.attention.file import SIDES_OF_STACK
from synth_mtf.attention.loaded import Loaded
from synth_mtf.attention.recording import Alignment
from synth_mtf.checkpoints import identity
from synth_mtf.checkpoints.files import Checkpoint
from synth_mtf.checkpoints.folder import Folder
from synth_mtf.errors import UserError
from synth_mtf.host import gin_files
from synth_mtf.host.described import described
from synth_mtf.results.runs import INITIAL, LAST
from synth_mtf.tasks import vocabulary
from tests import family, harness, model, trained_test
from tests.harness import assert_close
from tests.results import made_runs

# What T5's main binds, for a run on a TPU.
BINDINGS = (
  'utils.run.mesh_shape = @utils.tpu_mesh_shape()',
  "utils.tpu_mesh_shape.tpu_topology = '2x2'",
  "get_vocabulary.mixture_or_task_name = 'synth_text_span_corruption'",
)
IDS = {
  'encoder': [[5, 17, 3, 99, 6, 1], [8, 44, 1]],
  'decoder': [[9, 23, 1], [31, 7, 12, 60, 1]],
}
HEADS, D_KV = 3, 8
HUGE = [f'd_model = {10**12}']
ONE_LAYER = 'num_layers = 1'


class Chosen(Exception):
  """Raised where examples are to be chosen."""


def choose(inputs):
  raise Chosen


@pytest.fixture
def trained(tmp_path):
  """A run with a checkpoint of step 100."""
  folder = tmp_path / 'run'
  made_runs.trained(folder, 'dense_vanilla', BINDINGS)
  return folder


def test_examples_are_chosen_while_tasks_have_the_runs_settings(trained):
  gin.parse_config('SelfAttention.num_heads = 77')  # of whatever was before
  before = gin.config_str()

  def look_around(inputs):
    assert '@synth_mtf.Dense' in gin.config_str()
    assert '77' not in gin.config_str()
    assert tasks.settings().vocabulary == 'bytes'
    assert inputs.vocabularies['encoder'].vocab_size == 359
    raise Chosen

  with pytest.raises(Chosen):
    computation.look(str(trained), [INITIAL], look_around, 'bytes')
  assert gin.config_str() == before


@pytest.mark.parametrize(
  'steps, gone, message',
  [
    (
      [LAST],
      ['model.ckpt-*', 'checkpoint'],
      'there is no checkpoint',
    ),
    ([7], [], 'no checkpoint .*-7; .*run holds model.ckpt-100'),
    (
      [INITIAL, 7],
      [],
      'no checkpoint .*-7; .*run holds model.ckpt-100',
    ),
    # It has 128 embeddings, and bytes take 384.
    ([LAST], [], 'has 128 rows; the vocabulary .* needs 384'),
    ([100], [], 'has 128 rows; the vocabulary .* needs 384'),
    (
      [LAST],
      ['operative_config.gin'],
      'has no operative_config.gin',
    ),
  ],
)
def test_refusals_before_examples_are_chosen(trained, steps, gone, message):
  for pattern in gone:
    for path in trained.glob(pattern):
      path.unlink()
  with pytest.raises(UserError, match=message):
    computation.look(str(trained), steps, choose, 'bytes')


def test_a_vocabulary_that_takes_a_network(trained, monkeypatch):
  text = 'Error of HTTP\n\t when reading metadata of gs://t5-data/vocabs/x'
  error = tf.errors.FailedPreconditionError(None, None, text)
  fail = mock.Mock(side_effect=error)
  monkeypatch.setattr(identity, 'check_vocabulary', fail)
  message = "^T5's own vocabulary gs://t5-data/vocabs/x cannot be read: Error"
  with pytest.raises(UserError, match=message):
    computation.look(str(trained), [LAST], choose)


@pytest.fixture(scope='module')
def pieces(tmp_path_factory):
  """A function that trains a vocabulary and returns its path."""
  folder = tmp_path_factory.mktemp('pieces')

  def train(name):
    path = folder / f'{name}.model'
    if not path.exists():
      vocabulary.train([f'{name} bird sang'] * 99, path, 18)
    return str(path)

  return train


def chosen(folder, given=None):
  """The vocabulary of a run, as in `--vocabulary`; None is T5's own."""
  opened = opening.open_run(str(folder), [INITIAL], given)
  found = set()
  for known in opened.inputs.vocabularies.values():
    file = getattr(known, 'sentencepiece_model_file', 'bytes')
    found.add(None if file.startswith('gs://') else file)
  (name,) = found
  return name


def test_the_vocabulary_is_what_is_given_set_or_recorded(
  trained, pieces, monkeypatch
):
  assert chosen(trained) is None, 'nothing is recorded'
  identity.record_vocabulary(vocabulary.load('bytes'), Folder(str(trained)))
  assert chosen(trained) == 'bytes'
  assert chosen(trained, pieces('given')) == pieces('given')
  monkeypatch.setenv('SYNTH_MTF_VOCABULARY', pieces('set'))
  assert chosen(trained) == pieces('set')
  assert chosen(trained, 'bytes') == 'bytes'
  monkeypatch.delenv('SYNTH_MTF_VOCABULARY')
  (trained / identity.VOCABULARY).unlink()
  path = pieces('some')
  identity.record_vocabulary(vocabulary.load(path), Folder(str(trained)))
  assert chosen(trained) == path
  os.rename(path, f'{path}.moved')
  assert chosen(trained) is None, 'it is no longer there'


@pytest.mark.parametrize('task', ['glue_v002_proportional', 'somebodys', None])
def test_the_vocabulary_of_a_run_on_another_task(tmp_path, pieces, task):
  """On T5's own, one of somebody's module, or none, as after an import."""
  bindings = [f'get_vocabulary.mixture_or_task_name = {task!r}']
  made_runs.trained(tmp_path / 'run', 'dense_vanilla', bindings if task else [])
  run = tmp_path / 'run'
  assert chosen(run, 'bytes') == 'bytes'
  assert chosen(run, pieces('given')) == pieces('given')
  with pytest.raises(UserError, match='has 128 rows; the vocabulary .* 384'):
    opening.open_run(str(run), [LAST], 'bytes')
  with pytest.raises(UserError, match="T5's own voc|128 rows|no task"):
    opening.open_run(str(run), [LAST])
  identity.record_vocabulary(vocabulary.load('bytes'), Folder(str(run)))
  assert chosen(run) == 'bytes'


def test_an_imported_vocabulary_stays_beside_the_checkpoint(tmp_path, pieces):
  source, run = tmp_path / 'hf', tmp_path / 'run'
  source.mkdir()
  made_runs.trained(run, 'dense_vanilla')
  opening.keep_vocabulary(str(source), str(run))  # there is none
  assert not (run / identity.VOCABULARY).exists()
  shutil.copy(pieces('beside'), source / 'spiece.model')
  opening.keep_vocabulary(str(source), str(run))
  assert chosen(run) == str(run / 'spiece.model')
  run.rename(tmp_path / 'moved')
  assert chosen(tmp_path / 'moved') == str(tmp_path / 'moved' / 'spiece.model')


def test_what_is_set_for_our_tasks_is_not_that_of_t5s(tmp_path, monkeypatch):
  monkeypatch.setenv('SYNTH_MTF_VOCABULARY', 'bytes')
  name = "get_vocabulary.mixture_or_task_name = 'glue_v002_proportional'"
  made_runs.trained(tmp_path, 'dense_vanilla', [name])
  assert chosen(tmp_path) is None


def test_a_folder_of_several_runs(tmp_path):
  made_runs.demo(tmp_path, ['random', 'dense'])
  for variant in ('dense', 'random'):
    made_runs.trained(tmp_path / variant / 'finetune', variant)
  names = [os.path.join(tmp_path, name) for name in ('random', 'dense')]
  message = f'holds 2 runs; give one of them: {" ".join(names)}$'
  with pytest.raises(UserError, match=message):
    computation.look(str(tmp_path), [LAST], choose)


def stacks(path, variant, ids=IDS, bindings=()):
  gin_files.parse(model.files(variant), [*model.TINY, ONE_LAYER, *bindings])
  small = [mock.Mock(vocab_size=model.VOCAB)] * 2
  with described(gin.config_str(), 'operative_config.gin') as made:
    inputs = ModelInputs(
      made.run.model_type, {}, dict(zip(examples.SIDES, small, strict=True))
    )
  gin.clear_config()
  loading = Loaded(made, inputs, path and Checkpoint(path))
  with contextlib.closing(loading) as loaded:
    return computation.stacks(ids, loaded)


@pytest.fixture(scope='module')
def path(tmp_path_factory):
  folder = tmp_path_factory.mktemp('model')
  return model.write(folder, 'random_vanilla', [ONE_LAYER])


@pytest.mark.slow
@pytest.mark.parametrize('side', IDS)
@pytest.mark.parametrize(
  'variant', ['random_vanilla', 'random', 'dense_vanilla', None]
)
def test_first_layers_against_numpy(tmp_path, variant, side):
  path = model.write(tmp_path, variant, [ONE_LAYER])
  found = stacks(path, variant)[side]
  checkpoint = Checkpoint(path)
  scope = f'{side}/block_000/layer_000'
  layer = f'{scope}/{"SyntheticAttention" if variant else "SelfAttention"}/'
  variables = {
    name[len(layer) :]: checkpoint[name].astype(np.float64)
    for name in checkpoint.weights
    if name.startswith(layer)
  }
  scale = checkpoint[f'{scope}/rms_norm/scale'].astype(np.float64)
  embedding = checkpoint['shared/embedding'].astype(np.float64)
  expected = (
    family.ALL[variant or 'vanilla']
    .but(num_heads=HEADS, key_value_size=D_KV, relative_attention_type='bias')
    .reference
  )
  for number, ids in enumerate(IDS[side]):
    # RMS norm of the embedding of what the layer reads.
    x = embedding[ids if side == 'encoder' else [0, *ids[:-1]]]
    x = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * scale
    one = expected(x, variables, side == 'decoder')
    for name in ('logits', 'weights'):
      array = getattr(found, name)
      row = number if array.shape[1] > 1 else 0
      assert_close(
        np.where(one.weights != 0, array[0, row, :, : len(x), : len(x)], 0),
        np.where(one.weights != 0, getattr(one, name), 0),
        f'{name} of {number}',
      )


def test_stacks_and_shapes(path):
  found = stacks(path, 'random_vanilla')
  shapes = {name: stack.weights.shape for name, stack in found.items()}
  assert shapes == {
    'encoder': (1, 2, HEADS, 6, 6),
    'decoder': (1, 2, HEADS, 5, 5),
    'cross': (1, 2, HEADS, 5, 6),
  }
  assert found['encoder'].functions == ('R', 'V')
  assert found['encoder'].alpha.shape == (1, HEADS, 2)
  np.testing.assert_allclose(found['encoder'].alpha.sum(-1), 1, rtol=1e-6)
  assert found['cross'].alpha is None and found['cross'].functions == ('V',)
  for name, stack in found.items():
    queries, memory = SIDES_OF_STACK[name]
    for row in range(2):
      n, m = len(IDS[queries][row]), len(IDS[memory][row])
      weights = stack.weights[:, row]
      assert not weights[:, :, n:].any(), 'padding looks at nobody'
      assert not weights[..., m:].any(), 'nobody looks at padding'
      np.testing.assert_allclose(weights[:, :, :n].sum(-1), 1, rtol=1e-5)
  encoder = {'encoder': IDS['encoder']}
  (alone,) = stacks(path, 'random_vanilla', encoder).values()
  assert_close(alone.weights, found['encoder'].weights, 'the encoder alone')


@pytest.mark.slow
def test_batch_shared_logits_are_there_once(tmp_path):
  two = ['num_layers = 2']
  path = model.write(tmp_path, 'random', two)
  found = stacks(path, 'random', bindings=two)
  for side in IDS:
    assert found[side].logits.shape[:2] == (2, 1)
    assert found[side].weights.shape[:2] == (2, 2)
  second = {'encoder': [IDS['encoder'][1]]}
  (alone,) = stacks(path, 'random', second, two).values()
  assert_close(found['encoder'].weights[:, 1:, :, :3, :3], alone.weights, 'R')


@pytest.mark.slow
def test_a_language_model(tmp_path):
  bindings = ['utils.run.model_type = "lm"', ONE_LAYER]
  path = model.write(tmp_path, 'random_vanilla', bindings)
  ids = {'decoder': IDS['decoder']}
  found = stacks(path, 'random_vanilla', ids, bindings)
  assert set(found) == {'decoder'}
  assert not np.triu(found['decoder'].weights, 1).any()


@pytest.mark.slow
def test_initial_weights(path):
  """They need no checkpoint, repeat, and are not those of a trained model."""
  trained, first, second = (
    stacks(one, 'random_vanilla')['encoder'].weights
    for one in (path, None, None)
  )
  np.testing.assert_array_equal(first, second)
  assert np.abs(first - trained).max() > 0.01


@pytest.mark.parametrize(
  'variant, ids, bindings, message',
  [
    ('dense', IDS, [], 'was made by another model'),
    ('random_vanilla', IDS, HUGE, r'24\] in the checkpoint, .*[10]{13}.*model'),
    ('random_vanilla', {'encoder': [[5] * 15]}, [], 'max_length'),
    ('lightconv', {'encoder': IDS['encoder']}, [], 'LocalConvAttnBlock'),
    ('random', IDS, HUGE, 'a size of the model is too large'),
  ],
)
def test_what_does_not_fit(path, variant, ids, bindings, message):
  """The checkpoint; without one, layers that have no weights, and sizes."""
  with pytest.raises(UserError, match=message):
    given = None if variant in ('lightconv', 'random') else path
    stacks(given, variant, ids, bindings)


def test_an_encoder_alone_needs_no_tables_of_its_decoder():
  tables = [
    f'decoder/Random.{size} = 3' for size in ('max_length', 'memory_max_length')
  ]
  found = stacks(None, 'random', {'encoder': IDS['encoder']}, tables)
  assert found['encoder'].weights.shape == (1, 2, HEADS, 6, 6)


def test_layers_of_a_stack_are_joined():
  """One has logits that all examples share, the other two axes of heads."""
  rng = np.random.default_rng(0)
  shared, grouped, weights = (
    rng.standard_normal(shape).astype(np.float32)
    for shape in ([6, 7, 8], [4, 2, 3, 7, 8], [2, 4, 6, 7, 8])
  )
  alphas = [
    [np.array(0.25), np.array(0.75)],
    [rng.random([2, 3]), rng.random([2, 3])],
  ]
  logits = {
    'heads length memory_length': shared,
    'batch heads group length memory_length': grouped,
  }

  def joined(*variants, alphas=alphas):
    layers = []
    with harness.new_graph() as (_, mesh):
      for name, (dims, array), *values in zip(
        variants, logits.items(), weights, alphas, strict=True
      ):
        alignment = Alignment(
          family.ALL[name](),
          mock.sentinel.context,
          harness.constant(mesh, array, dims),
          harness.constant(mesh, values[0], 'batch heads length memory_length'),
          (),
        )
        layers.append(computation._Layer(alignment, array, *values))  # noqa: SLF001
    return computation._stack(layers, [5, 3], 6)  # noqa: SLF001

  found = joined('random_vanilla', 'random_vanilla')
  assert found.weights.shape == found.logits.shape == (2, 2, 6, 5, 6)
  assert found.weights.dtype == np.float32
  for row, length in enumerate([5, 3]):
    equal = np.testing.assert_array_equal
    equal(found.logits[0, row], shared[:, :5, :6])
    equal(found.logits[1, row], grouped[row].reshape(6, 7, 8)[:, :5, :6])
    tokens = found.weights[:, row, :, :length]
    equal(tokens, weights[:, row, :, :length, :6])
    assert not found.weights[:, row, :, length:].any()
  assert found.functions == ('R', 'V')
  assert found.alpha.shape == (2, 6, 2)
  assert found.alpha[0].tolist() == [[0.25, 0.75]] * 6
  for function in range(2):
    expected = alphas[1][function].ravel().tolist()
    assert found.alpha[1, :, function].tolist() == expected
  other = joined('random_vanilla', 'dense_vanilla')
  assert (other.functions, other.alpha) == ((), None)
  partly = joined('random_vanilla', 'random_vanilla', alphas=[alphas[0], []])
  assert (partly.functions, partly.alpha) == (('R', 'V'), None)


def test_each_step_is_computed(tmp_path):
  bindings = ONE_LAYER, *BINDINGS
  trained_test.write(tmp_path / 'run', *bindings)

  def encoders(inputs):
    return examples.from_texts(inputs, {'inputs': ['ab', 'c']})

  run = str(tmp_path / 'run')
  found = computation.look(run, [LAST, INITIAL], encoders)
  assert [x.step for x in found] == [7, 0]
  weights = [x.stacks['encoder'].weights for x in found]
  assert np.abs(weights[0] - weights[1]).max() > 0.01
  assert found[0].texts['encoder'].tolist() == ['ab', 'c']


@pytest.mark.slow
def test_linformer_is_left_out_of_the_encoder():
  assert set(stacks(None, 'linformer')) == {'decoder', 'cross'}
