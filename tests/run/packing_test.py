"""What packed rows cost, against products counted by hand."""

import pytest

from synth_mtf.host import gin_files
from synth_mtf.host import model as host_model
from synth_mtf.run import packing
from tests import model

D_MODEL, HEADS, D_KV, N = 24, 3, 32, 128
LENGTHS = {'inputs': 128, 'targets': 96}
SIZES = (*model.TINY, f'd_kv = {D_KV}', f'Unitransformer.max_length = {N}')
# Multiplications of single entries count as products, too.
SMALL = 0.1


def factor(variant, *bindings):
  gin_files.parse(model.files(variant), [*SIZES, *bindings])
  return packing.factor(host_model.make_transformer(model.VOCAB), LENGTHS)


def test_of_random_by_hand():
  """A table is multiplied with a one-hot matrix for each of its axes."""
  packed = unpacked = 0
  for length in LENGTHS.values():
    rest = 2 * length * D_MODEL * HEADS * D_KV  # values and output projection
    rest += HEADS * length**2 * D_KV
    unpacked += rest
    packed += rest + HEADS * (length * N * N + length**2 * N)
  assert factor('random') == pytest.approx(packed / unpacked, rel=SMALL)


def test_of_layers_without_tables():
  assert factor(None) == 1
  assert factor('vanilla') == pytest.approx(1, rel=SMALL)


def test_of_tables_that_are_read_by_the_row():
  by_row = factor('random', "SyntheticAttention.index_by = 'row'")
  assert by_row == pytest.approx(1, rel=SMALL)


def test_of_a_language_model():
  assert factor('random', "utils.run.model_type = 'lm'") > 2


@pytest.mark.parametrize(
  'run, variant, label',
  [
    ('translate', 'random', 'Syn (R)'),
    ('translate', 'vanilla', None),
    ('translate', 'lightconv', None),
    ('lm1b', 'dense', 'Syn (D)'),
    ('pretrain_c4', 'random', None),
    ('pretrain_text', 'random', None),
    ('summarize', 'random', None),
    ('finetune_en_mix', 'random', None),
    ('perplexity_en_mix', 'random', None),
  ],
)
def test_what_a_run_says(run, variant, label):
  gin_files.parse(
    ['sizes/tiny.gin', f'variants/{variant}.gin', f'runs/{run}.gin'],
    ["utils.run.init_checkpoint = 'model.ckpt-7'"],
  )
  found = packing.notice({'inputs': 256, 'targets': 256})
  if label is None:
    assert found is None
  else:
    assert found is not None
    assert f'so that {label} reads its tables by the position' in found
    assert 'times the products that it has with mesh_train_dataset_fn.' in found
