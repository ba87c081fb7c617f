"""What is read from a folder of transformers, and what is refused."""

import json
import resource
import struct

import numpy as np
import pytest

from synth_mtf.checkpoints.files import Checkpoint
from synth_mtf.host import gin_files, model as models
from synth_mtf.huggingface import config_file, layout
from tests import model
from tests.cli.command import run

safetensors = pytest.importorskip('safetensors.numpy')
pytest.importorskip('transformers', minversion='5')
pytestmark = pytest.mark.hf

CONFIG = {
  'model_type': 't5',
  'vocab_size': model.VOCAB,
  'd_model': 24,
  'd_kv': 8,
  'd_ff': 20,
  'num_layers': 2,
  'num_heads': 3,
}
INDEX = 'model.safetensors.index.json'


@pytest.fixture
def weights():
  gin_files.parse(model.files(), model.TINY)
  rng = np.random.RandomState(3)
  values = {}
  for name, variable in models.build(model.VOCAB).variables.items():
    value = rng.standard_normal(variable.shape.as_list())
    values[layout.name_of(name)] = layout.weight_of(name, value)
  return values


@pytest.fixture
def folder(tmp_path, weights):
  """A plain T5."""
  folder = tmp_path / 'hf'
  folder.mkdir()
  safetensors.save_file(weights, folder / 'model.safetensors')
  configure(folder)
  return folder


def configure(folder, **settings):
  (folder / 'config.json').write_text(json.dumps({**CONFIG, **settings}))


def imported(folder):
  """Returns the embedding of the checkpoint, or the complaint."""
  words = [f'--gin_param={binding}' for binding in model.TINY]
  out = folder.parent / 'ours'
  status, _, err = run(
    *('checkpoint', 'import', '--from=hf', folder, out),
    *('--gin_file=sizes/tiny.gin', *words),
  )
  if status:
    assert status == 2 and not out.exists(), err
    return err
  return Checkpoint(str(out))['shared/embedding']


def test_only_the_files_that_transformers_reads_are_read(folder, weights):
  other = {name: value + 1 for name, value in weights.items()}
  for name in ('model_ema', 'a', 'model-00001-of-00001'):
    safetensors.save_file(other, folder / f'{name}.safetensors')
  np.testing.assert_array_equal(imported(folder), weights['shared.weight'])


def divide(folder, weights):
  """Divides the weights between two files and an index."""
  (folder / 'model.safetensors').unlink()
  names = sorted(weights)
  index = {}
  for part, some in (('b', names[:5]), ('a', names[5:])):
    file = f'{part}.safetensors'
    safetensors.save_file({name: weights[name] for name in some}, folder / file)
    index.update(dict.fromkeys(some, file))
  write_index(folder, index)
  return index


def write_index(folder, index):
  (folder / INDEX).write_text(json.dumps({'weight_map': index}))


def test_an_index_names_the_files(folder, weights):
  divide(folder, weights)
  other = {name: value + 1 for name, value in weights.items()}
  safetensors.save_file(other, folder / 'c.safetensors')
  np.testing.assert_array_equal(imported(folder), weights['shared.weight'])


def test_a_wrong_index_is_refused(folder, weights):
  index = divide(folder, weights)
  assert 'shared.weight' in index
  for change, message in (
    ({'shared.weight': 'b.safetensors'}, 'b.safetensors lacks shared.weight'),
    ({'more': 'none.safetensors'}, 'none.safetensors is missing, which'),
    ({'more': '../x.safetensors'}, "'../x.safetensors', outside the folder"),
    ({'more': ['b.safetensors']}, f'{INDEX} is damaged'),
  ):
    write_index(folder, {**index, **change})
    assert message in imported(folder)
  (folder / INDEX).write_text('[]')
  assert f'{INDEX} is damaged' in imported(folder)
  write_index(folder, {**index, 'more': 'c.safetensors'})
  again = {name: weights[name] for name in ('shared.weight',)}
  safetensors.save_file(again, folder / 'c.safetensors')
  assert 'shared.weight is in ' in imported(folder)


@pytest.mark.sampled
@pytest.mark.parametrize(
  'settings, message',
  [
    ({'model_type': 'umt5'}, "of the type 'umt5'; expected t5"),
    ({'model_type': ['t5']}, "of the type ['t5']"),
    ({'eos_token_id': 2}, 'config.json has eos_token_id = 2; in Mesh-Tensor'),
    ({'eos_token_id': [1, 2]}, 'eos_token_id = [1, 2]'),
    ({'decoder_start_token_id': 2}, 'decoder_start_token_id = 2'),
    ({'pad_token_id': 3}, 'pad_token_id = 3'),
    ({'d_ff': 21}, 'd_ff is 21 in it, 20 in the model'),
    ({'d_model': '24'}, "d_model is '24' in it"),
    ({'num_layers': 1}, 'num_layers is 1 in it'),
    ({'num_decoder_layers': 3}, 'num_decoder_layers is 3 in it'),
    ({'num_attention_heads': 4}, 'num_heads is 4 in it'),
    ({'relative_attention_num_buckets': 31}, 'num_buckets is 31 in it'),
    ({'relative_attention_max_distance': 64}, 'max_distance is 64 in it'),
    ({'layer_norm_epsilon': 1e-5}, 'layer_norm_epsilon is 1e-05'),
    (
      {'feed_forward_proj': 'gelu'},
      "feed_forward_proj is 'gelu' in it, 'relu'",
    ),
    ({'dense_act_fn': 'silu'}, "feed_forward_proj is 'silu' in it"),
    ({'is_gated_act': True}, "feed_forward_proj is 'gated-relu' in it"),
    ({'tie_word_embeddings': False}, 'tie_word_embeddings is False in it'),
    ({'scale_decoder_outputs': False}, 'tie_word_embeddings is False in it'),
    ({'model_type': 'mt5'}, "feed_forward_proj is 'gated-gelu_new' in it"),
    ({'is_encoder_decoder': False}, 'is_encoder_decoder = False'),
    ({'tie_encoder_decoder': True}, 'tie_encoder_decoder = True'),
    ({'pruned_heads': {'0': [1]}}, "pruned_heads = {'0': [1]}"),
    ({'quantization_config': {'bits': 8}}, "quantization_config = {'bits': 8}"),
    ({'transformers_weights': 'x'}, "transformers_weights = 'x'"),
    ({'auto_map': {'AutoConfig': 'x.X'}}, "auto_map = {'AutoConfig': 'x.X'}"),
    ({'vocab_size': '128'}, "vocab_size is '128'; expected a number of rows"),
    ({'synth_mtf': {'step': [1]}}, 'its synth_mtf.step is [1]'),
    ({'synth_mtf': {'step': 2**80}}, 'its synth_mtf.step is 12089258196146'),
    ({'synth_mtf': {'gin': 1}}, 'its synth_mtf.gin is not a text'),
    ({'synth_mtf': {'vocabulary': [1]}}, 'synth_mtf.vocabulary is not an obj'),
  ],
)
def test_settings_that_change_the_model_are_refused(folder, settings, message):
  configure(folder, **settings)
  assert message in imported(folder)


def test_what_changes_nothing_is_accepted(folder, weights):
  configure(
    folder,
    eos_token_id=[1],
    pad_token_id=None,
    bos_token_id=5,
    dropout_rate=0.3,
    dense_act_fn='relu',
    is_gated_act=False,
    num_hidden_layers=2,
    pruned_heads={},
    task_specific_params={'summarization': {'prefix': 'summarize: '}},
  )
  np.testing.assert_array_equal(imported(folder), weights['shared.weight'])


@pytest.mark.parametrize('variant', [None, 'random', 'dense_vanilla'])
def test_settings_are_read_as_they_were_written(tmp_path, variant):
  gin_files.parse(model.files(variant), model.TINY)
  settings = layout.config(models.build(model.VOCAB))
  written = config_file.ConfigFile(settings, 'x = 1', 7, {'kind': 'bytes'})
  written.write(tmp_path)
  read = config_file.ConfigFile.read(str(tmp_path))
  assert written.is_plain == read.is_plain == (variant is None)
  assert {name: read.settings[name] for name in settings} == settings
  assert (read.gin, read.step) == (written.gin, written.step)
  assert read.vocabulary == written.vocabulary
  content = json.loads((tmp_path / 'config.json').read_text())
  is_refused = content['feed_forward_proj'].startswith('T5-cannot load this')
  assert is_refused == (variant is not None)


def test_activations_have_the_names_of_transformers():
  assert config_file.activation('gated-gelu') == 'gated-gelu_new'
  assert config_file.activation('gated-gelu_new') == 'gated-gelu_new'
  assert config_file.activation('gated-gelu', 'gelu', True) == 'gated-gelu'
  assert config_file.activation('gated-swish') == 'gated-silu'


def test_how_the_model_is_told_to_generate_is_checked(folder):
  path = folder / 'generation_config.json'
  path.write_text('{"eos_token_id": 2}')
  assert f'{path} has eos_token_id = 2' in imported(folder)
  path.write_text('[')
  assert f'{path} is damaged' in imported(folder)


def test_an_adapter_is_not_left_out(folder):
  (folder / 'adapter_config.json').write_text('{}')
  assert 'would add the weights of this adapter' in imported(folder)


@pytest.mark.parametrize('bad', [np.nan, np.inf])
def test_weights_that_overflowed_are_refused(folder, weights, bad):
  halves = {name: x.astype(np.float16) for name, x in weights.items()}
  safetensors.save_file(halves, folder / 'model.safetensors')
  assert imported(folder).shape == (model.VOCAB, 24)
  name = 'encoder.block.1.layer.1.DenseReluDense.wo.weight'
  halves[name][2, 3] = bad
  safetensors.save_file(halves, folder / 'model.safetensors')
  (folder.parent / 'ours').rename(folder.parent / 'before')
  assert f'1 of 480 values of {name} are NaN or infinite' in imported(folder)


def test_a_copy_of_the_embedding_must_be_one(folder, weights):
  copy = {'lm_head.weight': weights['shared.weight'].copy()}
  safetensors.save_file({**weights, **copy}, folder / 'model.safetensors')
  assert imported(folder).shape == (model.VOCAB, 24)
  (folder.parent / 'ours').rename(folder.parent / 'before')
  copy['lm_head.weight'][3, 3] += 1
  safetensors.save_file({**weights, **copy}, folder / 'model.safetensors')
  assert 'lm_head.weight is not in the model, and is not' in imported(folder)


def test_a_type_that_is_not_a_float_is_named(folder, weights):
  eight = {**weights, 'shared.weight': np.ones([model.VOCAB, 24], np.int8)}
  safetensors.save_file(eight, folder / 'model.safetensors')
  assert 'shared.weight is I8, expected F64, F32, F16' in imported(folder)


def test_a_pointer_of_git_lfs_is_named(folder):
  pointer = 'version https://git-lfs.github.com/spec/v1\noid sha256:46'
  (folder / 'model.safetensors').write_text(pointer)
  assert 'is a pointer of Git LFS' in imported(folder)


def test_shapes_are_compared_before_values_are_read(folder):
  """Of eight gigabytes, which are a hole in the file."""
  size = 8 << 30
  header = json.dumps(
    {
      'decoder.x': {
        'dtype': 'F32',
        'shape': [size // 4],
        'data_offsets': [0, size],
      }
    }
  ).encode()
  header += b' ' * (-len(header) % 8)
  with open(folder / 'model.safetensors', 'wb') as stream:
    stream.write(struct.pack('<Q', len(header)) + header)
    stream.truncate(8 + len(header) + size)
  before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  assert 'does not fit the model' in imported(folder)
  after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  assert after - before < 1 << 20  # kilobytes
