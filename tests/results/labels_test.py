"""What a model is called in tables."""

import pathlib

from synth_mtf.host import gin_files, model as host_model
from synth_mtf.paths import gin_path
from synth_mtf.results import labels
from tests import model

VARIANTS = sorted(
  p.stem for p in pathlib.Path(gin_path(), 'variants').iterdir()
)
# The paper's names, where it has one.
EXPECTED = {
  'vanilla': 'T5 (V)',
  'random': 'Syn (R)',
  'fixed_random': 'Syn (Fix)',
  'factorized_random': 'Syn (FR)',
  'dense': 'Syn (D)',
  'factorized_dense': 'Syn (FD)',
  'random_dense': 'Syn (R+D)',
  'dense_vanilla': 'Syn (D+V)',
  'random_vanilla': 'Syn (R+V)',
  'factorized_random_vanilla': 'Syn (FR+V)',
  'factorized_random_dense': 'Syn (FR+D)',
  'random_dense_vanilla': 'Syn (R+D+V)',
  'convolution': 'Syn (Conv)',
  'conv_relu_conv': 'Syn (CRC)',
  'bottleneck_dense': 'Syn (BD)',
  'bottleneck_conv_relu_conv': 'Syn (BCRC)',
  'glu': 'Syn (GLU)',
  'fixed_patterns': 'Syn (Patterns)',
  'mlp_mixer': 'MLP-Mixer (R)',
  'lightconv': 'LightConv',
  'dyconv': 'DyConv',
  'linformer': 'Linformer',
  'cross_random': 'T5, cross-attention R',
  'as_original_random': 'Syn (R), by row',
  'as_original_random_plus': 'Syn (R+V), sum, by row',
  'original_random': 'mtf random',
  'original_dense_plus_alpha': 'mtf dense_plus_alpha',
}


def test_models_have_the_papers_names_and_no_two_have_the_same():
  found = {}
  for variant in [None, *VARIANTS]:
    gin_files.parse(model.files(variant), model.TINY)
    found[variant] = labels.kind(host_model.make_transformer()).label
  assert {name: found[name] for name in EXPECTED} == EXPECTED
  assert found[None] == 'T5'
  assert len({*found.values()} - {''}) == len(found)


def test_mixtures_are_counted_by_stack():
  variant = 'random_vanilla+cross_random_vanilla'
  gin_files.parse(model.files(variant), model.TINY)
  found = labels.mixtures(host_model.make_transformer())
  assert [(one.stack, one.layer) for one in found] == [
    *(('encoder', 1), ('encoder', 2)),
    *(('decoder', 1), ('cross', 1), ('decoder', 2), ('cross', 2)),
  ]
  assert {tuple(one.letters) for one in found} == {('R', 'V')}


def test_a_layer_that_nobody_knows_has_the_name_of_its_class():
  class Other:
    pass

  assert labels.label_of(Other()) == 'Other'
