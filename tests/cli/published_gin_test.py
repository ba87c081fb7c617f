"""The published gin files of the paper's C4 models, run without an edit.

The files here bind what those of google-research/transformer_modifications
bind (arXiv 2102.11972). `common/replace_synthesizer.gin` follows them.
"""

import pathlib

import gin
import numpy as np
import pytest

from synth_mtf.checkpoints.files import Checkpoint
from synth_mtf.errors import UserError
from synth_mtf.host import gin_files, model as host_model
from tests.cli.modes_test import COLA, SHORT, data_dir, program  # noqa: F401

pytestmark = pytest.mark.slow  # builds models at full size, trains

OURS = 'common/replace_synthesizer'
LEARNED = 'models/vanilla_transformer'
SHARED = 'models/vanilla_transformer_rel_bias_shared'
STACKS = """
encoder/transformer.make_layer_stack.layers = [@{0}{1}, @{0}DenseReluDense]
decoder/transformer.make_layer_stack.layers = [
    @{0}{1}, @{0}EncDecAttention, @{0}DenseReluDense]
"""
SYNTHESIZER = """
dropout_rate = 0.0
transformer_layers.Synthesizer.synthesize_mode="{}"
transformer_layers.Synthesizer.relative_attention_type = "bias_shared"
""" + STACKS.format(
  'mesh_tensorflow.transformer.transformer_layers.', 'Synthesizer'
)
CONVOLUTION = """
import mesh_tensorflow.transformer.transformer_layers
{block}.output_size = %d_model
{block}.num_unique_depth_filters = 2
{block}.attention_type = "{kind}"
encoder/transformer.{block}.max_relative_pos = 4
encoder/transformer.{block}.min_relative_pos = -4
decoder/transformer.{block}.max_relative_pos = 0
decoder/transformer.{block}.min_relative_pos = -8
""" + STACKS.format('transformer_layers.', 'LocalConvAttnBlock')
MODES = {
  'r': 'random',
  'fr': 'factorized',
  'de': 'dense_minus',
  'dep': 'dense_plus',
  'depa': 'dense_plus_alpha',
  'rp': 'random_plus',
  'rpa': 'random_plus_alpha',
  'unknown': 'randm_plus',
}
FILES = {
  LEARNED: """
include 'models/t5.1.0.base.gin'
import mesh_tensorflow.transformer.transformer
import mesh_tensorflow.transformer.transformer_layers
transformer.LayerStack.sublayers_per_layer = [
    @transformer.sublayer_true_layer_norm,
    @transformer.sublayer_mask_padding,
    @transformer.sublayer_call_layer,
    @transformer.sublayer_dropout,
    @transformer.sublayer_residual]
transformer.LayerStack.sublayers_final = [
    @transformer.sublayer_true_layer_norm,
    @transformer.sublayer_dropout,
    @transformer.sublayer_mask_padding]
transformer_layers.SelfAttention.relative_attention_type = None
transformer.Unitransformer.positional_embedding = True
DenseReluDense.use_bias = True
""",
  SHARED: f"""
include '{LEARNED}.gin'
transformer_layers.SelfAttention.relative_attention_type = "bias_shared"
transformer.Unitransformer.positional_embedding = False
""",
  **{
    f'models/synthesizer_{name}': SYNTHESIZER.format(mode)
    for name, mode in MODES.items()
  },
  **{
    f'models/{kind}_convolution': more
    + CONVOLUTION.format(
      block='transformer_layers.LocalConvAttnBlock', kind=f'{kind}_conv'
    )
    for kind, more in (('dynamic', 'd_ff = 512'), ('lightweight', ''))
  },
}


@pytest.fixture(scope='module')
def published(tmp_path_factory) -> pathlib.Path:
  """A folder of gin files, for --gin_location_prefix."""
  folder = tmp_path_factory.mktemp('gin')
  (folder / 'models').mkdir()
  for name, text in FILES.items():
    (folder / f'{name}.gin').write_text(text)
  return folder


@pytest.fixture
def millions(published, monkeypatch):
  """Counts the trained parameters of a model, whose blocks are all alike."""
  monkeypatch.chdir(published)

  def of_blocks(files: list[str], blocks: int) -> int:
    gin_files.parse(files, [f'num_layers = {blocks}'])
    variables = host_model.build(32128).mtf_graph.trainable_variables
    return sum(v.shape.size for v in variables)

  def count(*names: str) -> float:
    files = [f'{name}.gin' for name in names]
    gin_files.parse(files)
    blocks = gin.query_parameter('num_layers/macro.value')
    one, two = (of_blocks(files, n) for n in (1, 2))
    return (one + (blocks - 1) * (two - one)) / 1e6

  return count


@pytest.mark.parametrize(
  'base, name, expected, variant',
  [
    (SHARED, '', 223.043, ''),
    (SHARED, 'synthesizer_r', 254.500, 'random'),
    (SHARED, 'synthesizer_rp', 292.249, 'random_plus'),
    (SHARED, 'synthesizer_rpa', 292.249, 'random_plus_alpha'),
    (SHARED, 'synthesizer_de', 224.616, 'dense_minus'),
    (SHARED, 'synthesizer_dep', 243.490, 'dense_plus'),
    (SHARED, 'synthesizer_depa', 243.490, 'dense_plus_alpha'),
    (LEARNED, 'dynamic_convolution', 256.663, 'dyconv'),
    (LEARNED, 'lightweight_convolution', 223.694, 'lightconv'),
  ],
)
def test_parameters(base, name, expected, variant, millions):
  """Of theirs, of ours in their place, and of the models that we ship."""
  theirs = [base, *[f'models/{name}'] * bool(name)]
  shipped = ['sizes/base_8x128']
  if base == LEARNED:
    shipped.append('common/learned_positions')
  mirrored = name.startswith('synth')
  if name:
    shipped.append(f'variants/{"as_original_" * mirrored}{variant}')
  models = [theirs, shipped, *[[*theirs, OURS]] * mirrored]
  # 0.14 of them are the biases of LayerNorm and of the feed-forward layers.
  np.testing.assert_allclose(
    [millions(*names) for names in models], expected, rtol=0, atol=1e-3
  )


@pytest.mark.parametrize(
  'name, ours, message',
  [
    ('fr', [OURS], "'factorized' gives all queries .*factorized_random.gin"),
    ('unknown', [OURS], "'randm_plus': expected one .*mean 'random_plus'"),
    ('unknown', [], 'synthesize_mode is not one that mesh_tensorflow knows'),
  ],
)
def test_modes_without_a_place(name, ours, message, millions):
  with pytest.raises(UserError, match=message):
    millions(SHARED, f'models/synthesizer_{name}', *ours)


SMALL = (
  'num_layers = 1',
  'd_model = 16',
  'd_ff = 16',
  "utils.get_variable_dtype.master_dtype = 'float32'",
  "utils.run.mesh_shape = 'model:1,batch:1'",
  "utils.run.mesh_devices = ['']",
  'utils.run.batch_size = 4',
  "utils.run.sequence_length = {'inputs': 64, 'targets': 32}",
)
WARM_UP = (
  'utils.run.learning_rate_schedule = '
  '[@learning_rate_schedules.constant_learning_rate, '
  '@learning_rate_schedules.linear_warmup]',
  'constant_learning_rate.learning_rate = 0.0005',
  'learning_rate_schedules.linear_warmup.steps_or_fraction = 4',
  'dropout_rate = 0.1',
)


@pytest.fixture
def command(program, published):  # noqa: F811
  """Runs a command with published files on a folder of that name."""
  prefix = f'--gin_location_prefix={published}/'

  def run(folder, model, more, *bindings):
    words = [f'{name}.gin' for name in ('dataset', SHARED, *model, *more)]
    return program(folder, words, *SMALL, *bindings, flags=[prefix])

  return run


def train(command, folder, *model):
  trained = command(
    folder,
    model,
    ['learning_rate_schedules/rsqrt_no_ramp_down'],
    "MIXTURE_NAME = 'synth_text_span_corruption'",
    'utils.run.train_steps = 2',
    'dropout_rate = 0.0',
  )
  assert Checkpoint(str(trained)).step == 2
  return trained


def decode(command, tmp_path, folder, *model):
  (tmp_path / 'inputs.txt').write_text('cola sentence: A.\n')
  command(
    folder,
    model,
    ['infer', 'greedy_decode'],
    COLA,
    SHORT,
    'infer_checkpoint_step = -1',
    f"input_filename = '{tmp_path}/inputs.txt'",
    f"output_filename = '{tmp_path}/outputs.txt'",
  )
  assert list(tmp_path.glob('outputs.txt-*'))


def test_a_convolution_trains_and_decodes(command, tmp_path):
  model = 'models/dynamic_convolution'
  train(command, 'convolution', model)
  decode(command, tmp_path, 'convolution', model)


def test_ours_trains_is_finetuned_and_decodes(command, tmp_path):
  model = 'models/synthesizer_rpa', OURS
  trained = train(command, 'started', *model)
  command(
    'started',
    model,
    ['perplexity_eval'],
    COLA,
    "utils.run.dataset_split = 'validation'",
    'utils.run.eval_checkpoint_step = -1',
    'utils.run.perplexity_eval_steps = 2',
  )
  assert list(trained.glob('eval_synth_glue_cola_v002_validation*'))
  finetuned = command(
    'finetuned',
    model,
    [f'{trained}/operative_config'],
    COLA,
    *WARM_UP,
    'utils.run.train_steps = 4',
    f"utils.run.init_checkpoint = '{trained}/model.ckpt-2'",
  )
  found = Checkpoint(str(finetuned))
  assert found.step == 4
  assert not any('/Synthesizer/' in n for n in found.variables)
  decode(command, tmp_path, 'finetuned', *model)
