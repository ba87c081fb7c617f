"""gin/variants/as_original_*: mesh_tensorflow's layer, moved to ours by gin."""

import re

import gin
import pytest

from synth_mtf.checkpoints.files import Checkpoint
from synth_mtf.host import gin_files
from synth_mtf.results import labels
from tests import model
from tests.checkpoints.conversion_test import convert
from tests.harness import assert_close

pytestmark = pytest.mark.slow  # builds whole models

MODES = (
  'random',
  'random_plus',
  'random_plus_alpha',
  'dense_minus',
  'dense_plus',
  'dense_plus_alpha',
)
OF_THE_PAPER = {
  'random': 'random',
  'random_plus': 'random_vanilla',
  'random_plus_alpha': 'random_vanilla',
  'dense_minus': 'dense',
  'dense_plus': 'dense_vanilla',
  'dense_plus_alpha': 'dense_vanilla',
}


@pytest.mark.parametrize('mode', MODES)
def test_computes_what_the_original_computes(tmp_path, mode):
  source = model.write(tmp_path / 'a', f'original_{mode}')
  path, out = convert(source, tmp_path / 'b', f'as_original_{mode}')
  assert 'computes what the source computes.' in out
  assert_close(
    model.logits(path, f'as_original_{mode}'),
    model.logits(source, f'original_{mode}'),
    mode,
  )


def test_the_defaults_of_the_original(tmp_path):
  """Where gin binds nothing but the mode."""
  bindings = [
    'transformer_layers.Synthesizer.num_heads = 8',
    'transformer_layers.Synthesizer.key_value_size = 128',
    'transformer_layers.Synthesizer.dropout_rate = 0.0',
    'transformer_layers.Synthesizer.relative_attention_type = None',
  ]
  source = model.write(tmp_path / 'a', 'original_random_plus_alpha', bindings)
  gin_files.parse(
    [
      *model.files('as_original_random_plus_alpha'),
      'common/original_defaults.gin',
    ],
    model.TINY,
  )
  ours = [
    f'SyntheticAttention.{name} = {value!r}'
    for name, value in gin.get_bindings('SyntheticAttention').items()
    if name in ('num_heads', 'key_value_size', 'relative_attention_type')
  ]
  path, _ = convert(
    source, tmp_path / 'b', 'as_original_random_plus_alpha', bindings=ours
  )
  assert_close(
    model.logits(path, 'as_original_random_plus_alpha', ours),
    model.logits(source, 'original_random_plus_alpha', bindings),
  )


@pytest.mark.parametrize('mode', ['random', 'dense_plus_alpha'])
def test_convert_warns_of_tables_that_packed_rows_have_taught(tmp_path, mode):
  bindings = ['Unitransformer.max_length = 512']
  source = model.write(tmp_path / 'a', f'original_{mode}', bindings)
  target = OF_THE_PAPER[mode]
  _, out = convert(source, tmp_path / 'b', target, bindings=bindings)
  assert re.search(r'of rows that hold one sequence each\. Warning:', out)
  # Not where the source's gin file says that they were not packed.
  (tmp_path / 'a' / 'operative_config.gin').write_text(
    "include 'sizes/tiny.gin'\n"
    f"include 'variants/original_{mode}.gin'\n"
    + '\n'.join([*model.TINY, *bindings, 'mesh_train_dataset_fn.pack = False'])
  )
  _, out = convert(source, tmp_path / 'c', target, bindings=bindings)
  assert 'computes what the source computes.' in out


def test_convert_does_not_warn_of_t5(tmp_path):
  source = model.write(tmp_path / 'a')
  _, out = convert(source, tmp_path / 'b', 'as_original_random_plus')
  assert 'computes what the source computes.' in out


def test_keys_and_values_of_one_projection_go_back_and_forth(tmp_path):
  bindings = ['Unitransformer.max_length = 512']
  source = model.write(tmp_path / 'a', 'as_original_random', bindings)
  there, _ = convert(source, tmp_path / 'b', 'random', bindings=bindings)
  back, _ = convert(
    there, tmp_path / 'c', 'as_original_random', bindings=bindings
  )
  assert set(Checkpoint(back).weights) == set(Checkpoint(source).weights)
  assert_close(
    model.logits(there, 'random', bindings),
    model.logits(back, 'as_original_random', bindings),
  )


def test_their_labels_are_their_own():
  found = {}
  for variant in [*OF_THE_PAPER.values(), *(f'as_original_{m}' for m in MODES)]:
    gin_files.parse(model.files(variant), model.TINY)
    found[variant] = labels.label()
  assert len(set(found.values())) == len(found)
  assert found['as_original_random_plus'] == 'Syn (R+V), sum, by row'
  assert found['as_original_random'] == 'Syn (R), by row'
