"""Models built in PyTorch from their configuration start as ours do."""

import warnings

import mesh_tensorflow as mtf
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from mesh_tensorflow import optimize

from synth_mtf.host import gin_files, model as host_model
from synth_mtf.huggingface import layout
from tests import harness, model

torch = pytest.importorskip('torch', reason='needs the extra [hf]')
transformers = pytest.importorskip('transformers', minversion='5')
with warnings.catch_warnings():
  warnings.simplefilter('ignore')  # of an untried transformers
  from synth_mtf.huggingface import modeling_synthesizer as modeling

torch.set_num_threads(1)  # the models are tiny
pytestmark = [pytest.mark.hf, pytest.mark.slow]

# Every function and every kind of parameter.
CASES = {
  'T5 1.1': (
    'vanilla',
    (
      'DenseReluDense.activation = ["gelu", "linear"]',
      'Unitransformer.shared_embedding_and_softmax_weights = False',
    ),
  ),
  'R, LayerNorm, positions': (
    'random+../common/layer_norm+../common/learned_positions',
    ('SyntheticAttention.relative_attention_type = "bias_shared"',),
  ),
  'R of another deviation': ('random', ('Random.stddev = 0.2',)),
  'R, uniform': ('random', ('Random.uniform = True',)),
  'Fix': ('fixed_random', ()),
  'FR': ('factorized_random', ()),
  'D': ('dense', ('Dense.use_bias = True',)),
  'FD': ('factorized_dense', ('FactorizedDense.use_bias = True',)),
  'GLU': ('glu', ('SelfAttention.fold_scaling_into_initializer = False',)),
  'bottleneck': ('bottleneck_dense', ('DenseReluDense.use_bias = True',)),
  'R+V': ('random_vanilla', ()),
  'D+V': ('dense_vanilla', ()),
  'FR+V': ('factorized_random_vanilla', ()),
  'R+D': ('random_dense', ()),
  'R+D+V': ('random_dense_vanilla', ()),
  'FR+D': ('factorized_random_dense', ()),
  'cross': ('dense+cross_factorized_random_dense', ()),
  'original D+V': ('as_original_dense_plus_alpha', ()),
  'original D': ('as_original_dense_minus', ()),
}


DRAWS = 4  # small samples of many weights would sometimes differ


def settings_of(variant, bindings):
  """The model's settings for PyTorch, and draws of its initial values."""
  gin_files.parse(model.files(variant), [*model.TINY, *bindings])
  built = host_model.build(model.VOCAB)
  draws = [built.initial_values([*built.variables]) for _ in range(DRAWS)]
  return layout.config(built), draws


def made(settings):
  """A model in PyTorch, from its configuration alone."""
  config = modeling.SynthesizerConfig(
    **settings, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0
  )
  return modeling.SynthesizerForConditionalGeneration(config)


def moments(values):
  """The mean, and the second and fourth moments relative to the square."""
  values = np.asarray(values, np.float64).ravel()
  square = np.mean(values**2)
  fourth = np.mean(values**4) / square**2 if square else 0.0
  return np.array([values.mean(), square, fourth])


@pytest.mark.parametrize('case', CASES)
def test_initial_values_have_the_same_moments(case):
  settings, initial = settings_of(*CASES[case])
  ours = [made(settings).state_dict() for _ in initial]
  for name in initial[0]:
    values = np.stack([draw[name] for draw in initial])
    theirs = np.stack([draw[layout.name_of(name)].numpy() for draw in ours])
    assert theirs.size == values.size, name
    mean, square, fourth = moments(theirs)
    expected = moments(values)
    # Six standard deviations of what two samples of a normal differ by.
    error = 6 * (2 / values.size) ** 0.5
    assert abs(mean - expected[0]) <= error * square**0.5, name
    between = (square + expected[1]) / 2
    assert abs(square - expected[1]) <= error * 2**0.5 * between, name
    # Normal 3, cut at two deviations 2.4, uniform 1.8; constant 0 or 1.
    if values.size > 10_000:  # another six
      assert abs(fourth - expected[2]) <= 0.4, (name, fourth, expected[2])


def batches(seed, steps, size=16, length=8):
  """Rows to copy, [step, batch, length]."""
  rng = np.random.RandomState(seed)
  return rng.randint(2, 10, [steps, size, length]).astype(np.int32)


RATE, MEAN, SQUARE, EPSILON = 0.003, 0.9, 0.999, 1e-6


def losses_of_mesh(variant, bindings, seeds, rows):
  """The losses of training from the model's own initial values, by seed."""
  gin_files.parse(model.files(variant), [*model.TINY, *bindings])
  with harness.new_graph() as (graph, mesh):
    tf.set_random_seed(seeds[0])
    tf.get_variable_scope().set_caching_device('/cpu:0')
    step = tf.train.get_or_create_global_step()
    dims = [mtf.Dimension('batch', rows.shape[1])]
    dims.append(mtf.Dimension('length', rows.shape[2]))
    ids = mtf.import_tf_tensor(mesh, tf.gather(rows, step), mtf.Shape(dims))
    transformer = host_model.make_transformer(model.VOCAB)
    _, loss = model.call(transformer, ids, ids)
    variables = graph.trainable_variables
    gradients = mtf.gradients([loss], [v.outputs[0] for v in variables])
    adam = optimize.AdamWeightDecayOptimizer(
      RATE, beta_1=MEAN, beta_2=SQUARE, epsilon=EPSILON
    )
    updates = adam.apply_grads(gradients, variables)
    lowering = mtf.Lowering(graph, {mesh: harness.ONE_DEVICE.implementation()})
    fetches = [lowering.export_to_tf_tensor(loss)]
    fetches += [lowering.lowered_operation(op) for op in updates]
    advance = step.assign_add(1)
    initialize = tf.global_variables_initializer()
    copy = lowering.copy_masters_to_slices()
    losses: list[list[float]] = []
    with tf.Session() as session:
      for _ in seeds:  # each draw of the initial values is another one
        session.run(initialize)
        session.run(copy)
        losses.append([])
        for _ in rows:
          losses[-1].append(session.run(fetches)[0])
          session.run(advance)
  return np.array(losses)


def losses_of_torch(settings, seed, rows):
  """The same, in PyTorch."""
  torch.manual_seed(seed)
  trained = made(settings).train()
  weights = [w for w in trained.parameters() if w.requires_grad]
  means = [torch.zeros_like(w) for w in weights]
  squares = [torch.zeros_like(w) for w in weights]
  losses = []
  for batch in torch.tensor(rows).long():
    loss = trained(input_ids=batch, labels=batch).loss
    losses.append(loss.item())
    gradients = torch.autograd.grad(loss, weights)
    with torch.no_grad():
      for weight, gradient, mean, square in zip(
        weights, gradients, means, squares, strict=True
      ):
        mean.lerp_(gradient, 1 - MEAN)
        square.lerp_(gradient**2, 1 - SQUARE)
        weight -= RATE * mean / (square.sqrt() + EPSILON)
  return np.array(losses)


@pytest.mark.parametrize('variant', ['dense', 'random_vanilla'])
def test_the_first_losses_have_the_same_mean(variant, draws=40):
  """Those before training, of models with values that each draws itself."""
  bindings = ('dropout_rate = 0.0', 'Unitransformer.z_loss = 0.0')
  settings, _ = settings_of(variant, bindings)
  rows = batches(0, steps=1)
  ours = losses_of_mesh(variant, bindings, range(draws), rows)
  theirs = np.stack([losses_of_torch(settings, n, rows) for n in range(draws)])
  error = np.sqrt((ours.var(0) + theirs.var(0)) / draws)
  assert (np.abs(ours.mean(0) - theirs.mean(0)) < 4 * error).all()
  assert (error < 0.02 * ours.mean(0)).all()


@pytest.mark.parametrize('variant', ['dense', 'random_vanilla'])
def test_the_loss_falls_as_fast(variant, seeds=2, steps=60):
  bindings = ('dropout_rate = 0.0', 'Unitransformer.z_loss = 0.0')
  settings, _ = settings_of(variant, bindings)
  rows = batches(0, steps)
  ours = losses_of_mesh(variant, bindings, range(seeds), rows).mean(0)
  theirs = [losses_of_torch(settings, seed, rows) for seed in range(seeds)]
  theirs = np.mean(theirs, 0)
  start, end = ours[0], ours[-5:].mean()
  assert end < 0.5 * start
  assert abs(theirs[0] - start) < 0.15 * start
  assert abs(theirs[-5:].mean() - end) < 0.15 * end
