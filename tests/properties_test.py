"""Properties of any layer: it ignores the future and padding."""

import functools

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import synth_mtf
from tests import family, harness
from tests.harness import DECODER, ENCODER, LM

pytestmark = pytest.mark.slow  # many layers of many sizes

PRIMES = [2, 3, 5, 7, 11, 13, 17, 19]
MAX_LENGTH = 21

bounded = functools.partial(
  hypothesis.settings,
  deadline=None,
  derandomize=True,
  database=None,
  suppress_health_check=list(hypothesis.HealthCheck),
)

# One of each function. FactorizedDense factors 21 into 3 and 7; a bottleneck of
# width 1 is narrower than any model.
FUNCTIONS = {
  name: member.of_size(max_length=MAX_LENGTH, bottleneck_size=1).synthesizers[0]
  for name, member in family.SINGLE.items()
}


@st.composite
def layers(draw):
  """A random layer and x, [batch, length, d_model], of distinct primes."""
  sizes = draw(st.permutations(PRIMES))
  heads, d_kv, batch, length, d_model = sizes[:5]
  names = draw(
    st.lists(st.sampled_from(sorted(FUNCTIONS)), min_size=1, max_size=3)
  )
  settings = {
    'num_heads': heads,
    'key_value_size': d_kv,
    'packed': draw(st.booleans()),
    'mixing': draw(st.sampled_from(['softmax', 'layer_softmax', 'sum'])),
    'normalize': draw(st.sampled_from(['softmax', 'softmax', None])),
    'relative_attention_type': draw(
      st.sampled_from([None, 'bias', 'contextual'])
    ),
    'shared_kv': draw(st.booleans()),
  }
  hypothesis.note(f'{names} {settings}')
  x = harness.draw('x', [batch, length, d_model])

  def make():
    return synth_mtf.SyntheticAttention(
      synthesizers=[FUNCTIONS[n] for n in names], **settings
    )

  return make, x


@bounded(max_examples=12)
@hypothesis.given(layers(), st.data())
def test_the_future_changes_nothing(layer, data):
  make, x = layer
  now = data.draw(st.integers(0, x.shape[1] - 1))
  other = x.copy()
  other[:, now + 1 :] = harness.draw('future', x.shape)[:, now + 1 :]
  both = harness.parallel(
    make, np.concatenate([x, other]), stack=LM, mode='eval'
  ).output
  one, two = np.split(both, 2)
  harness.assert_close(two[:, : now + 1], one[:, : now + 1], 'until now')
  if now + 1 < x.shape[1]:
    assert np.abs(one[:, now + 1 :] - two[:, now + 1 :]).max() > 0


@bounded(max_examples=12)
@hypothesis.given(layers(), st.data(), st.sampled_from([ENCODER, DECODER]))
def test_padding_changes_nothing(layer, data, stack):
  make, x = layer
  length = data.draw(st.integers(1, x.shape[1]))
  padded_ids = np.arange(x.shape[1]) < length
  ids = np.broadcast_to(padded_ids, x.shape[:2]).astype(int)
  cotangent = harness.draw('cotangent', x.shape)
  padded = harness.parallel(
    make, x, ids, stack, cotangent=cotangent, mask_padding=False
  )
  short = harness.parallel(
    make,
    x[:, :length],
    ids[:, :length],
    stack,
    cotangent=cotangent[:, :length],
  )
  harness.assert_close(padded.output[:, :length], short.output, 'output', 3e-5)


@bounded(max_examples=8)
@hypothesis.given(layers(), st.booleans())
def test_decoding_is_parallel(layer, beam):
  make, x = layer
  x = x[:3, :4]
  if beam:
    x = np.stack([x, x[:, :, ::-1]], axis=1)
  ids = np.ones(x.shape[:-1], int)
  parallel = harness.parallel(make, x, ids, DECODER, mode='eval').output
  decoded, _ = harness.decode(make, x, beam=beam)
  harness.assert_close(decoded, parallel, 'token by token', 3e-5)
