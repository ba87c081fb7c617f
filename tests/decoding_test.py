"""T5's own decoder with whole models: greedy, sampling, beam, partial."""

import itertools

import mesh_tensorflow as mtf
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer, utils

from synth_mtf.host import gin_files
from tests import harness, model

pytestmark = pytest.mark.slow  # decodes with whole models

TINY = (
  'd_model = 10',
  'd_ff = 6',
  'num_layers = 1',
  'num_heads = 2',
  'd_kv = 3',
  'Unitransformer.max_length = 12',
  'Unitransformer.vocab_divisor = 1',
)
EOS, VOCAB = 1, 19
BATCH, INPUTS = 3, 7
VARIANTS = ['random', 'conv_relu_conv', 'random_dense_vanilla', 'dyconv']
FLOAT32 = mtf.VariableDType(tf.float32, tf.float32, tf.float32)


def run(
  variant,
  build,
  model_type='bitransformer',
  vocab=VOCAB,
  bindings=(),
  weights=harness.draw,
  mesh=harness.ONE_DEVICE,
):
  """What `build` makes of a mesh and a model on it."""
  gin_files.parse(model.files(variant), [*TINY, *bindings])
  rules = mtf.convert_to_layout_rules(mesh.layout)
  shape = mtf.convert_to_shape(mesh.shape)
  made = utils.build_model(model_type, vocab, vocab, rules, shape)
  return harness.evaluate(lambda mesh: build(mesh, made), mesh, weights)


def ids(mesh, array):
  return harness.constant(mesh, np.asarray(array, np.int32), 'batch length')


def some_inputs(batch=BATCH, vocab=VOCAB):
  inputs = np.random.RandomState(0).randint(2, vocab, [batch, INPUTS])
  inputs[-1, 4:] = 0
  return inputs


def in_parallel(model, inputs, targets, **segments):
  """The logits of every target token at once, [batch, length, vocab]."""
  if inputs is None:  # a language model
    inputs = transformer.autoregressive_inputs(targets)
  elif not segments:
    segments = {
      'encoder_sequence_id': mtf.cast(mtf.not_equal(inputs, 0), tf.int32),
      'decoder_sequence_id': mtf.ones_like(targets),
    }
  return model.call_simple(
    inputs,
    targets,
    compute_loss=False,
    mode='eval',
    variable_dtype=FLOAT32,
    **segments,
  )[0]


def assert_greedy(decoded, logits, start):
  """Every token from `start` to EOS is the most likely one."""
  decoded = decoded.astype(int)
  for row, scores, first in zip(decoded, logits, start, strict=True):
    assert row[first:].any(), 'nothing was decoded'
    for t in range(first, len(row)):
      assert scores[t, row[t]] >= scores[t].max() - 1e-4, (
        f'token {t} of {row} is not the most likely one'
      )
      if row[t] == EOS:  # what follows is arbitrary
        break


@pytest.mark.parametrize(
  'variant', [*VARIANTS, 'dense_vanilla+cross_random_vanilla']
)
def test_greedy_and_sampling(variant):
  def build(mesh, model):
    inputs = ids(mesh, some_inputs())
    top_1 = {'temperature': 1.0, 'sampling_keep_top_k': 1}
    greedy = model.decode(inputs, FLOAT32, max_decode_length=6)
    return {
      'greedy': greedy,
      'logits': in_parallel(model, inputs, greedy),
      'top_1': model.decode(inputs, FLOAT32, max_decode_length=6, **top_1),
    }

  found = run(variant, build)
  assert_greedy(found['greedy'], found['logits'], [0] * BATCH)
  # Without ties, the only token kept is the most likely one.
  np.testing.assert_array_equal(found['top_1'], found['greedy'])


@pytest.mark.parametrize('variant', VARIANTS)
def test_greedy_from_partial_sequences_in_a_language_model(variant):
  start = [2, 4, 1]
  partial = np.random.RandomState(1).randint(2, VOCAB, [BATCH, 8])
  partial *= np.arange(8) < np.array(start)[:, None]

  def build(mesh, model):
    decoded = model.sample_autoregressive(
      ids(mesh, partial), variable_dtype=FLOAT32
    )
    return {'ids': decoded, 'logits': in_parallel(model, None, decoded)}

  found = run(variant, build, 'lm')
  for row, given, first in zip(found['ids'], partial, start, strict=True):
    np.testing.assert_array_equal(row[:first], given[:first])
  assert_greedy(found['ids'], found['logits'], start)


@pytest.mark.parametrize('variant', ['conv_relu_conv', 'random_vanilla'])
def test_beam_search_is_exhaustive_search(variant):
  """With one beam per prefix, the best of all sequences is found."""
  vocab, length, alpha = 5, 3, 0.6
  words = [w for w in range(vocab) if w != EOS]
  candidates = [
    [*prefix, EOS] + [0] * (length - 1 - size)
    for size in range(length)
    for prefix in itertools.product(words, repeat=size)
  ]

  def build(mesh, model):
    inputs = some_inputs(2, vocab)
    best = model.decode(
      ids(mesh, inputs),
      FLOAT32,
      beam_size=len(words) ** (length - 1),
      alpha=alpha,
      decode_length_multiplier=0.0,
      decode_length_constant=length,
      max_decode_length=length,
    )
    logits = [
      in_parallel(
        model, ids(mesh, [row] * len(candidates)), ids(mesh, candidates)
      )
      for row in inputs
    ]
    return {'best': best, 'logits': logits}

  found = run(variant, build, vocab=vocab)
  for best, logits in zip(
    found['best'].astype(int), found['logits'], strict=True
  ):
    logits = logits.astype(np.float64)
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    scores = []
    for ids_, row in zip(candidates, log_p, strict=True):
      size = ids_.index(EOS) + 1
      total = sum(row[t, ids_[t]] for t in range(size))
      scores.append(total / ((5 + size) / 6) ** alpha)
    assert scores[candidates.index(best.tolist())] >= max(scores) - 1e-4


@pytest.mark.parametrize('variant', ['vanilla', 'cross_vanilla'])
def test_beams_of_vanilla_are_those_of_t5(variant):
  """The same weights under T5's names."""

  def build(mesh, model):
    return model.decode(
      ids(mesh, some_inputs()), FLOAT32, beam_size=4, max_decode_length=5
    )

  ours = run(variant, build, weights=as_t5)
  np.testing.assert_array_equal(ours, run(None, build))


def as_t5(name, shape):
  """The weight of T5's layer in the place of ours."""
  name = name.replace('SyntheticEncDecAttention', 'EncDecAttention')
  return harness.draw(
    name.replace('SyntheticAttention', 'SelfAttention'), shape
  )
