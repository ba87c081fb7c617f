"""Exported models decode with a cache as without one, in any transformers.

The public CI runs this file each night with the oldest and the newest release:
what they name differently is found here. The models are built from their
configuration.
"""

import runpy
import sys
import types
import warnings

import numpy as np
import pytest

from synth_mtf.errors import UserError
from synth_mtf.host import gin_files, model as host_model
from synth_mtf.huggingface import layout
from tests import model

torch = pytest.importorskip('torch', reason='needs the extra [hf]')
transformers = pytest.importorskip('transformers', minversion='5')
with warnings.catch_warnings():
  warnings.simplefilter('ignore')  # of an untried transformers
  from synth_mtf.huggingface import (
    modeling_synthesizer as modeling,
    releases_synthesizer as releases,
  )

torch.set_num_threads(1)  # the models are tiny
pytestmark = [pytest.mark.hf, pytest.mark.slow]

POSITIONS = 'random+../common/learned_positions'
BOTH = 'random_dense_vanilla+cross_factorized_random_vanilla'
VARIANTS = [
  'as_original_dense_minus',
  'as_original_dense_plus',
  'as_original_dense_plus_alpha',
  'as_original_random',
  'as_original_random_plus',
  'as_original_random_plus_alpha',
  'bottleneck_dense',
  'cross_dense',
  'cross_dense_vanilla',
  'cross_factorized_dense',
  'cross_factorized_random',
  'cross_factorized_random_dense',
  'cross_factorized_random_vanilla',
  'cross_fixed_random',
  'cross_random',
  'cross_random_dense',
  'cross_random_vanilla',
  'cross_vanilla',
  'dense',
  'dense_vanilla',
  'factorized_dense',
  'factorized_random',
  'factorized_random_dense',
  'factorized_random_vanilla',
  'fixed_random',
  'glu',
  'random',
  'random_dense',
  'random_dense_vanilla',
  'random_vanilla',
  'vanilla',
]
REFUSED = sorted({*model.VARIANTS} - {*VARIANTS})
MORE = [POSITIONS, 'vanilla+../common/learned_positions', BOTH]
COUNT, LENGTH, STEPS = 12, 13, 9


def built(variant, bindings=('dropout_rate = 0.0',)):
  """A model in PyTorch whose outputs depend on all that it computes."""
  gin_files.parse(model.files(variant), [*model.TINY, *bindings])
  settings = layout.config(host_model.build(model.VOCAB))
  config = modeling.SynthesizerConfig(
    **settings, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0
  )
  torch.manual_seed(3)
  made = modeling.SynthesizerForConditionalGeneration(config).eval()
  with torch.no_grad():
    for name, weight in made.named_parameters():
      if name.endswith(('.o.weight', 'v.weight', '_bias.weight')):
        weight *= 3.0
  return made


def rows(count=COUNT, length=LENGTH, seed=5):
  """Token ids and their mask, padded on the right."""
  rng = np.random.RandomState(seed)
  lengths = rng.randint(2, length + 1, [count, 1])
  mask = torch.tensor(np.arange(length) < lengths).long()
  return torch.tensor(rng.randint(2, model.VOCAB, [count, length])) * mask, mask


def moved(x, mask):
  """Rows with their padding on the left, or the entries of such rows back."""
  count, length = mask.shape
  first = mask.sum(1, keepdim=True) if mask[:, 0].all() else mask.argmax(1)
  order = (torch.arange(length) + first.view(count, 1)) % length
  shape = [count, length] + [1] * (x.ndim - 2)
  return torch.take_along_dim(x, order.view(shape), 1)


def close(actual, expected):
  error = (actual - expected).abs().max() / expected.abs().max()
  assert error < 1e-5, error


@pytest.mark.parametrize('variant', VARIANTS + MORE)
@torch.no_grad()
def test_cached_is_uncached(variant):
  found = built(variant)
  ids, mask = rows()
  given = {'input_ids': ids, 'attention_mask': mask, 'max_new_tokens': STEPS}
  static = {'cache_implementation': 'static', 'disable_compile': True}
  for search in ({}, {'num_beams': 4}, {'do_sample': True}):
    torch.manual_seed(1)
    expected = found.generate(**given, **search, use_cache=False)
    assert len({*map(tuple, expected.tolist())}) > COUNT // 3
    for cache in ({'use_cache': True}, static):
      torch.manual_seed(1)
      torch.testing.assert_close(
        found.generate(**given, **search, **cache), expected
      )

  one = {**given, 'max_new_tokens': 1}
  torch.testing.assert_close(
    found.generate(**one, **static), found.generate(**one, use_cache=False)
  )

  targets = torch.randint(2, model.VOCAB, [COUNT, STEPS])
  logits = found(
    input_ids=ids,
    attention_mask=mask,
    decoder_input_ids=targets,
    use_cache=False,
  ).logits
  memory = found.encoder(input_ids=ids, attention_mask=mask)
  cache = {}
  for step in range(STEPS):
    outputs = found(
      encoder_outputs=memory,
      attention_mask=mask,
      decoder_input_ids=targets[:, step : step + 1],
      **cache,
    )
    cache = {releases.CACHE: outputs[releases.CACHE]}
    close(outputs.logits[:, 0], logits[:, step])


@pytest.mark.parametrize(
  'variant', ['random', 'random_vanilla', 'dense', 'factorized_dense', *MORE]
)
@torch.no_grad()
def test_padding_on_the_left(variant):
  found = built(variant)
  ids, mask = rows()
  targets, target_mask = rows(length=STEPS, seed=6)
  own = 'input_ids', 'attention_mask'
  names = (*own, 'decoder_input_ids', 'decoder_attention_mask')
  right = dict(zip(names, (ids, mask, targets, target_mask), strict=True))
  left = {
    name: moved(value, mask if value.shape == mask.shape else target_mask)
    for name, value in right.items()
  }
  wanted = {'output_attentions': True, 'output_hidden_states': True}
  expected, actual = found(**right, **wanted), found(**left, **wanted)
  real = target_mask.bool()
  back = moved(actual.logits, left['decoder_attention_mask'])
  close(back[real], expected.logits[real])
  hidden = moved(actual.encoder_last_hidden_state, left['attention_mask'])
  close(hidden[mask.bool()], expected.encoder_last_hidden_state[mask.bool()])
  for name in ('decoder_attentions', 'cross_attentions', 'encoder_attentions'):
    for weights in actual[name]:
      key_mask = left['decoder_attention_mask']
      if name != 'decoder_attentions':
        key_mask = left['attention_mask']
      # The first token of a decoder sees itself alone.
      assert weights[..., -1, :].mul(1 - key_mask[:, None]).abs().max() < 1e-6
      torch.testing.assert_close(
        weights[..., -1, :].sum(-1), torch.ones(weights.shape[:2])
      )

  steps = {'max_new_tokens': STEPS - 2}
  for search in ({}, {'num_beams': 3}):
    torch.testing.assert_close(
      found.generate(**{k: left[k] for k in own}, **steps, **search),
      found.generate(**{k: right[k] for k in own}, **steps, **search),
    )
  left['decoder_input_ids'][:, 0] = 0
  static = {'cache_implementation': 'static', 'disable_compile': True}
  for cache in ({}, static):
    with pytest.raises(ValueError, match='from a cache with padding'):
      found.generate(**left, max_new_tokens=3, **cache)
  with pytest.raises(ValueError, match=r'expected \[batch, length\]'):
    found(input_ids=ids, attention_mask=mask[:, None], labels=targets)


@torch.no_grad()
def test_padding_between_tokens_is_refused():
  found = built('random_vanilla')
  ids, mask = rows()
  mask[0] = 1
  gap = mask.clone()
  gap[0, 3] = 0
  message = 'attention_mask has padding between tokens'
  with pytest.raises(ValueError, match=message):
    found(input_ids=ids, attention_mask=gap, decoder_input_ids=ids)
  memory = found.encoder(input_ids=ids, attention_mask=mask)
  given = {'encoder_outputs': memory, 'decoder_input_ids': ids}
  with pytest.raises(ValueError, match=message):
    found(attention_mask=gap, **given)
  with pytest.raises(ValueError, match=message):
    found(attention_mask=mask, decoder_attention_mask=gap, **given)
  # Prompts with padding on the right would continue after it.
  prompts, prompt_mask = rows(length=4, seed=6)
  prompts[:, 0], prompt_mask[:, 0] = 0, 1
  given = {'input_ids': ids, 'attention_mask': mask, 'max_new_tokens': 3}
  given |= {'decoder_input_ids': prompts}
  given |= {'decoder_attention_mask': prompt_mask}
  for cache, match in (({}, 'from a cache'), ({'use_cache': False}, message)):
    with pytest.raises(ValueError, match=match):
      found.generate(**given, **cache)


def softmax(x):
  e = np.exp(x - x.max(-1, keepdims=True))
  return e / e.sum(-1, keepdims=True)


@torch.no_grad()
def test_attention_weights_are_those_of_the_paper():
  """R's and D+V's in float64 NumPy, with the bias and both masks."""
  length = 7
  ids, mask = rows(length=length)
  hidden = np.where(mask[:, None, None], 0.0, -np.inf)
  causal = np.where(np.tri(length), 0.0, -np.inf)

  def bias(attention, ahead):
    table = attention.relative_attention_bias.weight.double().numpy()
    # Up to 7 positions, each distance has its own bucket.
    buckets = np.maximum(-ahead, 0)
    if not attention.causal:
      buckets = np.abs(ahead) + 16 * (ahead > 0)
    return table[buckets].transpose(2, 0, 1)

  ahead = np.arange(length) - np.arange(length)[:, None]
  found = built('random')
  outputs = found(
    input_ids=ids, attention_mask=mask, decoder_input_ids=ids,
    output_attentions=True,
  )  # fmt: skip
  assert len(outputs.encoder_attentions) == len(outputs.cross_attentions) == 2
  for stack, weights, term in (
    (found.encoder, outputs.encoder_attentions[0], hidden),
    (found.decoder, outputs.decoder_attentions[0], causal),
  ):
    attention = stack.block[0].layer[0].SelfAttention
    table = attention.random.R.double().numpy()[:, :length, :length]
    logits = table + bias(attention, ahead)
    expected = softmax(logits + term)
    expected = np.broadcast_to(expected, weights.shape)
    np.testing.assert_allclose(weights.numpy(), expected, atol=1e-6)

  found = built('dense_vanilla')
  outputs = found.encoder(
    input_ids=ids,
    attention_mask=mask,
    output_attentions=True,
    output_hidden_states=True,
  )
  layer = found.encoder.block[0].layer[0]
  attention = layer.SelfAttention
  x = layer.layer_norm(outputs.hidden_states[0]).double().numpy()
  w = {n: v.double().numpy() for n, v in attention.state_dict().items()}
  h = np.einsum('bnd,dhk->bhnk', x, w['dense.W1'])
  dense = np.maximum(h, 0.0) @ w['dense.W2'][..., :length]
  q, k = (
    (x @ w[f'{n}.weight'].T)
    .reshape(COUNT, length, attention.heads, -1)
    .transpose(0, 2, 1, 3)
    for n in 'qk'
  )
  alpha = np.exp(w['alpha']) / np.exp(w['alpha']).sum(0)
  terms = {'dense': dense, 'dot_product': q @ k.swapaxes(-1, -2)}
  logits = bias(attention, ahead) + hidden
  for scope, weight in zip(attention.scopes, alpha, strict=True):
    logits = logits + weight[:, None, None] * terms[scope]
  weights = outputs.attentions[0].numpy()
  np.testing.assert_allclose(weights, softmax(logits), atol=1e-6)


@torch.no_grad()
def test_what_is_not_supported_is_an_error(tmp_path):
  found = built('random')
  ids, _ = rows()
  given = {'input_ids': ids, 'decoder_input_ids': ids[:, :STEPS]}
  for part in (found, found.encoder, found.decoder):
    given_to_part = given if part is found else {'input_ids': ids}
    with pytest.raises(TypeError, match='no argument kv_cache'):
      part(**given_to_part, kv_cache=None)
  attention = found.encoder.block[0].layer[0].SelfAttention
  with pytest.raises(TypeError, match='no argument kv_cache'):
    attention(torch.zeros(1, 2, 24), kv_cache=None)
  cache = {releases.CACHE: transformers.DynamicCache()}
  with pytest.raises(TypeError, match='expected an EncoderDecoderCache'):
    found(**given, **cache)
  message = "not supported; leave it out, or use 'sdpa', 'eager' or 'flex_"
  with pytest.raises(ValueError, match=message):
    found.set_attn_implementation('flash_attention_2')
  found.save_pretrained(tmp_path)
  with pytest.raises(ValueError, match=message):
    modeling.SynthesizerForConditionalGeneration.from_pretrained(
      tmp_path, attn_implementation='flash_attention_2'
    )
  for name in ('T5ForConditionalGeneration', 'T5EncoderModel'):
    with pytest.raises(Exception, match='T5-cannot load this model: use Auto'):
      getattr(transformers, name).from_pretrained(tmp_path)
  again = modeling.SynthesizerForConditionalGeneration.from_pretrained(tmp_path)
  close(again.eval()(**given).logits, found(**given).logits)


def test_own_output_embeddings_stay_own(tmp_path):
  """As in T5 1.1, though transformers ties them in its own class."""
  untied = 'Unitransformer.shared_embedding_and_softmax_weights = False'
  found = built('dense', [untied])
  assert not torch.equal(found.lm_head.weight, found.shared.weight)
  found.save_pretrained(tmp_path)
  again = modeling.SynthesizerForConditionalGeneration.from_pretrained(tmp_path)
  ids, _ = rows()
  given = {'input_ids': ids, 'decoder_input_ids': ids[:, :STEPS]}
  with torch.no_grad():
    close(again.eval()(**given).logits, found(**given).logits)


def test_other_releases(monkeypatch):
  """Older: an error; newer: a warning; without what we need: an error."""
  fake = types.SimpleNamespace(__version__='5.99.1')
  monkeypatch.setattr(releases, 'transformers', fake)
  with pytest.warns(UserWarning, match=r'5\.99\.1; .* tried with 5\.1 to 5\.2'):
    releases.check_release()
  fake.__version__ = '4.57.6'
  with pytest.raises(ImportError, match='older ones: pip install'):
    releases.check_release()
  fake.__version__ = transformers.__version__

  def forward(self, hidden_states, mask=None, kv_cache=None):
    pass

  with monkeypatch.context() as patch:
    patch.setitem(sys.modules, 'transformers.masking_utils', None)
    with pytest.raises(ImportError, match=r'5\.1 to 5\.24, .*masking_utils'):
      runpy.run_path(releases.__file__)

  attention = releases.RELIED_ON[0][0]
  monkeypatch.setattr(attention, 'forward', forward)
  with pytest.raises(ImportError, match=rf'forward\({releases.CACHE}\)'):
    releases.check_release()


@pytest.mark.parametrize('variant', REFUSED)
def test_other_variants_are_refused(variant):
  gin_files.parse(model.files(variant), model.TINY)
  with pytest.raises(UserError, match='cannot be exported'):
    layout.config(host_model.build(model.VOCAB))
