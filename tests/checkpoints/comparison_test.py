"""How the variables of a model compare with those of a checkpoint."""

import logging

import gin
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import utils

from synth_mtf.checkpoints import comparison
from synth_mtf.checkpoints.files import Checkpoint, write
from synth_mtf.errors import UserError
from synth_mtf.host import gin_files, model as host_model, patches
from tests import model as models

LAYER = 'encoder/block_000/layer_000/'
OURS, T5 = f'{LAYER}SyntheticAttention/', f'{LAYER}SelfAttention/'


@pytest.fixture
def compare(tmp_path):
  """Compares variables with a checkpoint, given by names and shapes."""

  def run(model, checkpoint, same=False):
    values = {n: np.zeros(s, np.float32) for n, s in checkpoint.items()}
    written = Checkpoint(write(str(tmp_path), 3, values))
    with tf.Graph().as_default():
      variables = [tf.get_variable(n, s) for n, s in model.items()]
    if same:
      return comparison.require_same(variables, written)
    return comparison.Comparison(comparison.specs_of(variables), written)

  return run


def test_weights_are_found_by_the_class_of_their_layer(compare):
  cross = 'decoder/block_000/layer_001/'
  ours, t5 = f'{cross}SyntheticEncDecAttention/o', f'{cross}EncDecAttention/o'
  compared = compare(
    {f'{OURS}q': [2], f'{OURS}random/R': [3], 'x': [4], ours: [2]},
    dict.fromkeys((f'{T5}q', f'{T5}k', t5), [2])
    | {'x': [4], 'x_slot_v': [4], 'global_step': []},
  )
  assert compared.loaded == {f'{OURS}q': f'{T5}q', 'x': 'x', ours: t5}
  assert not compared.different
  assert str(compared) == (
    f'loaded (3):\n  {ours} <- {t5}\n  {OURS}q <- {T5}q\n  x\n'
    f'new (1):\n  {OURS}random/R\n'
    f'left over (1):\n  {T5}k'
  )


def test_norms_and_places_have_other_names_in_public_checkpoints(compare):
  """Those of T5 1.0, and of models whose gin names the places of layers."""
  block = 'decoder/block_000'
  model = {
    f'{block}/layer_000/rms_norm/scale': [1],
    f'{block}/layer_000/SyntheticAttention/o': [2],
    f'{block}/layer_001/rms_norm/scale': [3],
    f'{block}/layer_001/SyntheticEncDecAttention/o': [4],
    f'{block}/layer_002/rms_norm/scale': [5],
    f'{block}/layer_002/DenseReluDense/wi/kernel': [6],
    'decoder/rms_norm/scale': [7],
  }
  checkpoint = {
    f'{block}/self_attention/layer_norm/scale': [1],
    f'{block}/self_attention/SelfAttention/o': [2],
    f'{block}/self_attention/SelfAttention/q': [2],
    f'{block}/enc_dec_attention/layer_norm/scale': [3],
    f'{block}/enc_dec_attention/EncDecAttention/o': [4],
    f'{block}/dense_relu_dense/layer_norm/scale': [5],
    f'{block}/dense_relu_dense/DenseReluDense/wi/kernel': [6],
    'decoder/final_layer_norm/scale': [7],
  }
  compared = compare(model, checkpoint)
  assert not compared.new
  assert compared.left_over == [f'{block}/self_attention/SelfAttention/q']
  compared.require_weights()
  compared.require_types()


@pytest.mark.parametrize(
  'stored',
  [
    # Numbers are an order, and another order is another model.
    {'b/layer_001/DenseReluDense/wi/kernel': [2], 'b/layer_001/rms_norm': [2]},
    # Which of the two it is cannot be known.
    {f'b/{name}/DenseReluDense/wi/kernel': [2] for name in ('first', 'second')},
    # With a mean and a bias.
    {'b/layer_000/true_layer_norm/layer_norm/scale': [2]},
  ],
)
def test_layers_that_do_not_correspond(compare, stored):
  model = {'b/layer_000/DenseReluDense/wi/kernel': [2]}
  model['b/layer_000/rms_norm/scale'] = [2]
  assert not compare(model, stored).loaded


ORIGINAL = f'{LAYER}Synthesizer/'


@pytest.mark.parametrize(
  'theirs, ours', [('R', 'random/R'), ('pi/kernel', 'dense/W2')]
)
def test_functions_of_the_original_do_not_start_anew(compare, theirs, ours):
  compared = compare(
    {f'{OURS}o': [2], f'{OURS}{ours}': [3]},
    {f'{ORIGINAL}o': [2], f'{ORIGINAL}{theirs}': [3]},
  )
  with pytest.raises(
    UserError, match=f'not use {ORIGINAL}{theirs}.*checkpoint convert'
  ):
    compared.require_no_original()


@pytest.mark.parametrize('model', [f'{ORIGINAL}R', f'{OURS}dense/W2'])
def test_the_original_itself_and_other_functions_start(compare, model):
  compare({model: [3]}, {f'{ORIGINAL}R': [3]}).require_no_original()


X = {'x': [4]}


@pytest.mark.parametrize(
  'model, checkpoint, message',
  [
    (X, {'x': [5]}, r'x is float32\[5\] in the .*, float32\[4\] in the model'),
    ({**X, 'y': [1]}, X, 'y is not in it'),
    ({**X, 'x_slot_v': [4]}, X, 'x_slot_v is not in it'),
    ({**X, f'{OURS}q': [2]}, {**X, f'{T5}q': [2]}, f'{OURS}q is not'),
    (X, {**X, 'a/y': [1]}, 'a/y is not in the model'),
    (
      X,
      {**X, **{f'a{i}/y': [1] for i in range(5)}},
      'a0/y .*; a1/y .*; a2/y .*; and 2 more. Use the variant',
    ),
  ],
)
def test_a_run_does_not_resume_from(compare, model, checkpoint, message):
  with pytest.raises(UserError, match=message) as error:
    compare(model, checkpoint, same=True)
  assert 'operative_config.gin' in str(error.value)


@pytest.mark.parametrize(
  'model, more',
  [
    ({f'{OURS}q': [2], 'x_slot_v': [4]}, {}),
    # One more in a scope that the model has, as in early T5 checkpoints.
    ({'a/x': [4]}, {'a/bias': [1]}),
  ],
)
def test_a_run_resumes_from(compare, model, more):
  compare(model, {**model, **more}, same=True)


@pytest.mark.parametrize(
  'model, checkpoint, message',
  [
    ({f'{OURS}{x}': [2] for x in 'qov'}, {f'{T5}o': [2]}, 'it lacks .*/v. Use'),
    (
      {f'{OURS}o': [2]},
      {f'{T5}o': [2], 'encoder/block_001/layer_000/SelfAttention/o': [2]},
      'block_001/.*/o belongs to a layer that the model lacks. Use',
    ),
    ({f'{OURS}random/R': [2], **X}, X, 'it lacks .*random/R. Use'),
    (X, {'y': [4]}, 'it lacks x. Use'),
    ({f'{OURS}{i}': [2] for i in 'abcdefg'} | X, X, '/a; .*/c; and 4 more'),
  ],
)
def test_weights_that_must_be_there(compare, model, checkpoint, message):
  compared = compare(model, checkpoint)
  with pytest.raises(UserError, match=f'does not fit this model: .*{message}'):
    compared.require_weights()


def test_a_function_may_start_anew_in_a_layer_that_is_there(compare):
  new = ['alpha', 'k', 'q', 'random/R', 'relative_attention_bias']
  compared = compare(
    {f'{OURS}o': [2], **{f'{OURS}{name}': [3] for name in new}}, {f'{T5}o': [2]}
  )
  assert compared.new == [f'{OURS}{name}' for name in new]
  compared.require_weights()
  compared.require_types()


def test_other_shapes_are_refused(compare):
  with pytest.raises(
    UserError,
    match=r'other shapes or types: x is float32\[5\] in the checkpoint, '
    r'float32\[4\] in the model.*--resize',
  ):
    compare(X, {'x': [5]}).require_types()


def mapped(path, binding='', more=()):
  """Calls warm_start as the host does, and returns what it maps."""
  gin_files.parse(
    [*models.files('random_vanilla'), 'common/warm_start.gin'],
    [
      *models.TINY,
      f'utils.run.init_checkpoint = {path!r}',
      "utils.run.mesh_shape = ''",
      binding,
    ],
  )
  built = host_model.build(models.VOCAB)
  with built.graph.as_default():
    return {
      name: utils.init_checkpoint_variable_mapping(name)
      for name in [*built.variables, *more]
    }


def test_warm_start_maps_weights_and_slots(t5, tmp_path):
  checkpoint = Checkpoint(t5)
  values = {n: checkpoint[n] for n in checkpoint.variables}
  values[f'{T5}v_slot_vr'] = np.ones(24, np.float32)
  path = write(str(tmp_path), 7, values)
  names = mapped(path, more=[f'{OURS}v_slot_vr'])
  assert names[f'{OURS}q'] == f'{T5}q'
  assert names[f'{OURS}v_slot_vr'] == f'{T5}v_slot_vr'
  assert names[f'{OURS}random/R'] == f'{OURS}random/R'
  assert names['shared/embedding'] == 'shared/embedding'


@pytest.mark.parametrize(
  'binding, message',
  [
    ('num_layers = 1', 'a layer that the model lacks'),
    ('d_ff = 21', 'other shapes or types'),
    (
      "utils.get_variable_dtype.master_dtype = 'bfloat16'",
      'float32.* in the checkpoint, bfloat16.* in the model',
    ),
  ],
)
def test_warm_start_insists(t5, binding, message):
  with pytest.raises(UserError, match=message):
    mapped(t5, binding)


@pytest.mark.slow
def test_another_max_length_is_refused(tmp_path):
  path = models.write(tmp_path, 'random_vanilla')
  with pytest.raises(UserError, match='checkpoint convert.*--resize'):
    mapped(path, 'Unitransformer.max_length = 20')


def test_without_a_checkpoint_nothing_is_mapped():
  assert all(name == there for name, there in mapped(None).items())


@pytest.mark.slow
@pytest.mark.parametrize(
  'variant, lost', [('random', 'R'), ('dense_plus_alpha', 'pi/kernel')]
)
def test_a_start_from_the_original_is_refused(tmp_path, variant, lost):
  """Its functions started anew, and only the log said so."""
  path = models.write(tmp_path, f'original_{variant}')
  gin_files.parse(
    [
      *models.files(f'original_{variant}'),
      'common/replace_synthesizer.gin',
      'common/warm_start.gin',
    ],
    [*models.TINY, f'utils.run.init_checkpoint = {path!r}'],
  )
  built = host_model.build(models.VOCAB)
  with pytest.raises(UserError, match=f'would not use .*/Synthesizer/{lost}'):
    comparison.require_loadable(built.variables.values(), Checkpoint(path))


WARM_START = (
  'utils.init_checkpoint_variable_mapping.mapping_fn = @synth_mtf.warm_start'
)
MAPPED = (
  'utils.init_checkpoint_variable_mapping.mapping_fn = @utils.save_scores'
)
FILTER = "utils.tpu_estimator_model_fn.init_variable_filter = 'encoder'"


@pytest.fixture
def start(tmp_path):
  """Checks that a run with some gin settings starts from a checkpoint."""

  def run(setting, model, stored):
    gin_files.parse([], [setting] if setting else [])
    values = {n: np.zeros(s, np.float32) for n, s in stored.items()}
    written = Checkpoint(write(str(tmp_path), 3, values))
    with tf.Graph().as_default():
      variables = [tf.get_variable(n, s) for n, s in model.items()]
    comparison.require_loadable(variables, written)

  return run


@pytest.mark.parametrize(
  ('setting', 'message'),
  [
    (None, r'other shapes or types: x is float32\[5\]'),
    (WARM_START, r'other shapes or types: x is float32\[5\]'),
    (MAPPED, None),
    (FILTER, None),
  ],
)
def test_a_start_from_other_shapes(start, setting, message):
  if message is None:  # whatever gin selects may fit
    start(setting, X, {'x': [5]})
    return
  with pytest.raises(UserError, match=message):
    start(setting, X, {'x': [5]})


def test_by_default_what_is_missing_starts_anew(start, caplog, monkeypatch):
  tf.logging.set_verbosity(tf.logging.WARN)
  monkeypatch.setattr(logging.getLogger('tensorflow'), 'propagate', True)
  model = {**X, 'y': [1], 'y_slot_v': [1]}
  start(None, model, {**X, 'x_slot_v': [4], 'z': [2]})
  used, new = [record.getMessage() for record in caplog.records]
  assert used.endswith('has weights that this run does not use: z.')
  assert new.endswith('start from their initial values: y.')


def test_a_warm_start_needs_no_slot(start):
  start(WARM_START, {**X, 'x_slot_v': [4]}, X)


def test_a_warm_start_needs_each_weight(start):
  with pytest.raises(UserError, match='does not fit this model: it lacks y'):
    start(WARM_START, {**X, 'y': [1]}, X)


def test_names_under_which_a_run_resumes(tmp_path):
  """Norms may have other names, but no layer another class."""
  model = {f'{T5}o': [2], f'{LAYER}rms_norm/scale': [3]}
  stored = {f'{T5}o': [2], f'{LAYER}layer_norm/scale': [3]}
  values = {n: np.zeros(s, np.float32) for n, s in stored.items()}
  written = Checkpoint(write(str(tmp_path), 3, values))

  def found(model):
    with tf.Graph().as_default():
      variables = [tf.get_variable(n, s) for n, s in model.items()]
    return comparison.same_under_other_names(variables, written)

  assert found(model) == dict(zip(model, stored, strict=True))
  with pytest.raises(UserError, match=f'{OURS}o is not in it'):
    found({f'{OURS}o': [2], f'{LAYER}rms_norm/scale': [3]})


def test_what_gin_selects_is_known_where_the_model_function_is_replaced(
  tmp_path,
):
  """As in a run on JAX's devices."""
  name = 'utils.tpu_estimator_model_fn.init_variable_filter'
  gin.bind_parameter(name, 'encoder')
  written = Checkpoint(write(str(tmp_path), 3, {'x': np.zeros(2, np.float32)}))

  def replaced(**_):
    raise AssertionError

  with patches.model_functions_made_by(replaced):
    comparison.require_loadable([], written)
